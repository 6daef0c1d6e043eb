"""Responses by the official SDK; see tests/e2e/test_sdk.py. A session's history is sent whole each time."""

import json
import sys

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


def respond(stream, **asked):
    asked = {"model": "gpt-5.2", **asked}
    if not stream:
        return client.responses.create(**asked)
    with client.responses.stream(**asked) as events:
        # `get_final_response` knows complete ones only.
        [reply] = [e.response for e in events if e.type in ("response.completed", "response.incomplete")]
        return reply


def told(reply):
    thoughts = [item for item in reply.output if item.type == "reasoning"]
    calls = [item for item in reply.output if item.type == "function_call"]
    return {
        "text": reply.output_text,
        "reasoning": "".join(part.text for item in thoughts for part in item.content),
        "calls": [[item.call_id, item.name, item.arguments] for item in calls],
        "finish": [reply.status, *([reply.incomplete_details.reason] if reply.incomplete_details else [])],
        "prompt": reply.usage.input_tokens,
        "completion": reply.usage.output_tokens,
    }


def ask(stream=False, **more):
    return told(respond(stream, input="List the files", **more))


def plain():
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
    return {"calls": calls, "counted": counted, "models": models, "refused": refused}


def session(script):
    history, calls = [], []
    asked = {
        "instructions": script["system"],
        "tools": [{"type": "function", "strict": False, **script["tool"]}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    for line in script["lines"]:
        if line["ask"]:
            history.append({"role": "user", "content": line["ask"]})
        more = {"max_output_tokens": line["limit"], "temperature": 0}
        reply = respond(script["stream"], input=history, **asked, **more)
        calls.append(told(reply))
        history += reply.output
        for name, _, arguments in calls[-1]["calls"]:
            result = f"sun in {json.loads(arguments)['city']}"
            history.append({"type": "function_call_output", "call_id": name, "output": result})
    return {"calls": calls}


print(json.dumps(session(json.loads(sys.argv[1])) if sys.argv[1:] else plain()))
