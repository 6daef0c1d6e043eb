"""Chat Completions by the official SDK; see tests/e2e/test_sdk.py."""

import json

from openai import BadRequestError, OpenAI

client = OpenAI(api_key="sk-nobody", max_retries=0)
MESSAGES = [{"role": "user", "content": "List the files"}]
SCHEMA = {"type": "object", "properties": {"command": {"type": "string", "maxLength": 20}}, "required": ["command"]}
ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "boolean"}},
    "required": ["answer"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "bash", "description": "Execute a bash command", "parameters": SCHEMA}}
]


def ask(stream=False, **more):
    asked = {"model": "gpt-5.2", "messages": MESSAGES, **more}
    if stream:
        with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
            reply = events.get_final_completion()
    else:
        reply = client.chat.completions.create(**asked)
    message = reply.choices[0].message
    return {
        "text": message.content,
        "arguments": [call.function.arguments for call in message.tool_calls or []],
        "prompt": reply.usage.prompt_tokens,
        "completion": reply.usage.completion_tokens,
    }


calls = [ask(stream, **more) for stream in (False, True) for more in ({}, {"tools": TOOLS})]
calls.append(ask(tools=TOOLS, tool_choice="required", parallel_tool_calls=False))
form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": ANSWER}}
calls.append(ask(response_format=form))
calls.append(ask(max_completion_tokens=2))
try:
    client.chat.completions.create(model="m", messages=[])
    refused = None
except BadRequestError as error:
    refused = error.status_code
models = [model.id for model in client.models.list()]
print(json.dumps({"calls": calls, "counted": None, "models": models, "refused": refused}))
