"""Chat Completions by the official SDK; see tests/e2e/test_sdk.py."""

import json
import sys

from openai import BadRequestError, LengthFinishReasonError, OpenAI

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


def complete(stream, **asked):
    asked = {"model": "gpt-5.2", **asked}
    if not stream:
        return client.chat.completions.create(**asked)
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
        try:
            return events.get_final_completion()
        except LengthFinishReasonError as error:  # the SDK parses no reply that was cut
            return error.completion


def told(reply):
    [choice] = reply.choices
    return {
        "text": choice.message.content,
        "reasoning": getattr(choice.message, "reasoning_content", ""),  # the field that open models are known by
        "calls": [[call.id, call.function.name, call.function.arguments] for call in choice.message.tool_calls or []],
        "finish": [choice.finish_reason],
        "prompt": reply.usage.prompt_tokens,
        "completion": reply.usage.completion_tokens,
    }


def ask(stream=False, **more):
    return told(complete(stream, messages=MESSAGES, **more))


def plain():
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
    return {"calls": calls, "counted": None, "models": models, "refused": refused}


def session(script):
    messages, calls = [{"role": "system", "content": script["system"]}], []
    tools = [{"type": "function", "function": script["tool"]}]
    for line in script["lines"]:
        if line["ask"]:
            messages.append({"role": "user", "content": line["ask"]})
        asked = {"max_completion_tokens": line["limit"], "stop": line["stop"], "temperature": 0}
        reply = complete(script["stream"], messages=messages, tools=tools, **asked)
        calls.append(told(reply))
        messages.append(reply.choices[0].message)
        for name, _, arguments in calls[-1]["calls"]:
            result = f"sun in {json.loads(arguments)['city']}"
            messages.append({"role": "tool", "tool_call_id": name, "content": result})
    return {"calls": calls}


print(json.dumps(session(json.loads(sys.argv[1])) if sys.argv[1:] else plain()))
