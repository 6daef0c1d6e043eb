"""Messages by the official SDK; see tests/e2e/test_sdk.py."""

import json
import sys

sys.path.pop(0)  # this file has the SDK's name

from anthropic import Anthropic, BadRequestError

client = Anthropic(api_key="sk-nobody", max_retries=0)
MESSAGES = [{"role": "user", "content": "List the files"}]
SCHEMA = {"type": "object", "properties": {"command": {"type": "string", "maxLength": 20}}, "required": ["command"]}
ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "boolean"}},
    "required": ["answer"],
    "additionalProperties": False,
}
TOOLS = [{"name": "bash", "description": "Execute a bash command", "input_schema": SCHEMA}]


def ask(stream=False, **more):
    asked = {"model": "claude-opus-5", "messages": MESSAGES, "max_tokens": 64, **more}
    if stream:
        with client.messages.stream(**asked) as events:
            reply = events.get_final_message()
    else:
        reply = client.messages.create(**asked)
    return {
        "text": "".join(block.text for block in reply.content if block.type == "text"),
        "arguments": [json.dumps(block.input) for block in reply.content if block.type == "tool_use"],
        "prompt": reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0),
        "completion": reply.usage.output_tokens,
    }


calls = [ask(stream, **more) for stream in (False, True) for more in ({}, {"tools": TOOLS})]
calls.append(ask(tools=TOOLS, tool_choice={"type": "any", "disable_parallel_tool_use": True}))
calls.append(ask(output_config={"format": {"type": "json_schema", "schema": ANSWER}}))
calls.append(ask(max_tokens=2))
counted = client.messages.count_tokens(model="claude-opus-5", messages=MESSAGES).input_tokens
try:
    client.messages.create(model="m", max_tokens=3, messages=[])
    refused = None
except BadRequestError as error:
    refused = error.status_code
models = [model.id for model in client.models.list()]
print(json.dumps({"calls": calls, "counted": counted, "models": models, "refused": refused}))
