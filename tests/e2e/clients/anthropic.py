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


def create(stream, **asked):
    asked = {"model": "claude-opus-5", "max_tokens": 64, **asked}
    if not stream:
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as events:
        return events.get_final_message()


def told(reply):
    calls = [block for block in reply.content if block.type == "tool_use"]
    return {
        "text": "".join(block.text for block in reply.content if block.type == "text"),
        "reasoning": "".join(block.thinking for block in reply.content if block.type == "thinking"),
        "calls": [[block.id, block.name, json.dumps(block.input)] for block in calls],
        "finish": [reply.stop_reason, *([reply.stop_sequence] if reply.stop_sequence else [])],
        "prompt": reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0),
        "completion": reply.usage.output_tokens,
    }


def ask(stream=False, **more):
    return told(create(stream, messages=MESSAGES, **more))


def plain():
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
    return {"calls": calls, "counted": counted, "models": models, "refused": refused}


def session(script):
    messages, calls, results = [], [], []
    tool = {"name": script["tool"]["name"], "description": script["tool"]["description"]}
    asked = {"system": script["system"], "tools": [{**tool, "input_schema": script["tool"]["parameters"]}]}
    for line in script["lines"]:
        messages.append({"role": "user", "content": line["ask"] or results})
        more = {"max_tokens": line["limit"], "thinking": {"type": "adaptive"}}
        if line["stop"]:
            more["stop_sequences"] = [line["stop"]]
        more["extra_body"] = {"temperature": 0}  # the SDK's types have it no more
        reply = create(script["stream"], messages=messages, **asked, **more)
        calls.append(told(reply))
        messages.append({"role": "assistant", "content": reply.content})
        results = [
            {"type": "tool_result", "tool_use_id": name, "content": f"sun in {json.loads(arguments)['city']}"}
            for name, _, arguments in calls[-1]["calls"]
        ]
    return {"calls": calls}


print(json.dumps(session(json.loads(sys.argv[1])) if sys.argv[1:] else plain()))
