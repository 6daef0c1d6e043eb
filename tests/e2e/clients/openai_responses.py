"""Responses by the official SDK; see tests/e2e/test_sdk.py."""

import json

from openai import BadRequestError, OpenAI

client = OpenAI(api_key="sk-nobody", max_retries=0)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string", "maxLength": 20}}, "required": ["command"]}
ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "boolean"}},
    "required": ["answer"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "name": "bash", "description": "Execute a bash command", "parameters": SCHEMA, "strict": False}
]


def ask(stream=False, **more):
    asked = {"model": "gpt-5.2", "input": "List the files", **more}
    if stream:
        with client.responses.stream(**asked) as events:
            for _ in events:
                pass
            reply = events.get_final_response()
    else:
        reply = client.responses.create(**asked)
    return {
        "text": reply.output_text,
        "arguments": [item.arguments for item in reply.output if item.type == "function_call"],
        "prompt": reply.usage.input_tokens,
        "completion": reply.usage.output_tokens,
    }


calls = [ask(stream, **more) for stream in (False, True) for more in ({}, {"tools": TOOLS})]
calls.append(ask(tools=TOOLS, tool_choice="required", parallel_tool_calls=False))
calls.append(ask(text={"format": {"type": "json_schema", "name": "answer", "schema": ANSWER}}))
calls.append(ask(max_output_tokens=2))
counted = client.responses.input_tokens.count(model="gpt-5.2", input="List the files").input_tokens
try:
    client.responses.create(model="m", input=[{"type": "message", "role": "wizard", "content": "x"}])
    refused = None
except BadRequestError as error:
    refused = error.status_code
models = [model.id for model in client.models.list()]
print(json.dumps({"calls": calls, "counted": counted, "models": models, "refused": refused}))
