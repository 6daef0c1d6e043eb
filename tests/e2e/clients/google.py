"""generateContent by the official SDK; see tests/e2e/test_sdk.py."""

import json
import sys

sys.path.pop(0)  # this file has the SDK's name

from google import genai
from google.genai import errors, types

client = genai.Client(
    api_key="nobody", http_options=types.HttpOptions(retry_options=types.HttpRetryOptions(attempts=1))
)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string", "maxLength": 20}}, "required": ["command"]}
ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "boolean"}},
    "required": ["answer"],
    "additionalProperties": False,
}
BASH = types.FunctionDeclaration(name="bash", description="Execute a bash command", parameters_json_schema=SCHEMA)
TOOLS = {"tools": [types.Tool(function_declarations=[BASH])]}
MANUAL = {"automatic_function_calling": types.AutomaticFunctionCallingConfig(disable=True)}


def generate(stream, contents, config):
    asked = {"model": "gemini-3-pro", "contents": contents, "config": config}
    if stream:
        return list(client.models.generate_content_stream(**asked))
    return [client.models.generate_content(**asked)]


def said(chunks):
    return [p for c in chunks if c.candidates[0].content for p in c.candidates[0].content.parts or []]


def told(chunks):
    parts, usage = said(chunks), chunks[-1].usage_metadata
    calls = [part.function_call for part in parts if part.function_call]
    return {
        "text": "".join(part.text or "" for part in parts if not part.thought),
        "reasoning": "".join(part.text for part in parts if part.thought),
        "calls": [[call.id, call.name, json.dumps(call.args)] for call in calls],
        "finish": [chunks[-1].candidates[0].finish_reason.value],
        "prompt": usage.prompt_token_count,
        "completion": (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
    }


def ask(stream=False, **more):
    config = types.GenerateContentConfig(**more, **(MANUAL if "tools" in more else {}))
    return told(generate(stream, "List the files", config))


def plain():
    calls = [ask(stream, **more) for stream in (False, True) for more in ({}, TOOLS)]
    force = types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode="ANY"))
    calls.append(ask(**TOOLS, tool_config=force))
    calls.append(ask(response_mime_type="application/json", response_json_schema=ANSWER))
    calls.append(ask(max_output_tokens=2))
    counted = client.models.count_tokens(model="gemini-3-pro", contents="List the files").total_tokens
    try:
        client.models.generate_content(model="m", contents=[])
        refused = None
    except errors.ClientError as error:
        refused = error.code
    except ValueError:  # the SDK itself refuses an empty list
        try:
            client.models.generate_content(model="m", contents="x", config=types.GenerateContentConfig(temperature=9))
            refused = None
        except errors.ClientError as error:
            refused = error.code
    models = [model.name for model in client.models.list()]
    return {"calls": calls, "counted": counted, "models": models, "refused": refused}


def session(script):
    contents, calls, results = [], [], []
    tool = {"name": script["tool"]["name"], "description": script["tool"]["description"]}
    declared = types.FunctionDeclaration(**tool, parameters_json_schema=script["tool"]["parameters"])
    for line in script["lines"]:
        config = types.GenerateContentConfig(
            system_instruction=script["system"],
            tools=[types.Tool(function_declarations=[declared])],
            thinking_config=types.ThinkingConfig(include_thoughts=True),
            temperature=0,
            max_output_tokens=line["limit"],
            stop_sequences=[line["stop"]] if line["stop"] else None,
            **MANUAL,
        )
        asked = [types.Part(text=line["ask"])] if line["ask"] else results
        contents.append(types.Content(role="user", parts=asked))
        chunks = generate(script["stream"], contents, config)
        calls.append(told(chunks))
        contents.append(types.Content(role="model", parts=said(chunks)))
        results = [
            types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"output": sun}))
            for call in (part.function_call for part in said(chunks) if part.function_call)
            for sun in [f"sun in {call.args['city']}"]
        ]
    return {"calls": calls}


print(json.dumps(session(json.loads(sys.argv[1])) if sys.argv[1:] else plain()))
