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


def ask(stream=False, **more):
    config = types.GenerateContentConfig(**more, **(MANUAL if "tools" in more else {}))
    asked = {"model": "gemini-3-pro", "contents": "List the files", "config": config}
    chunks = (
        list(client.models.generate_content_stream(**asked)) if stream else [client.models.generate_content(**asked)]
    )
    parts = [p for c in chunks if c.candidates[0].content for p in c.candidates[0].content.parts or []]
    usage = chunks[-1].usage_metadata
    return {
        "text": "".join(part.text or "" for part in parts),
        "arguments": [json.dumps(part.function_call.args) for part in parts if part.function_call],
        "prompt": usage.prompt_token_count,
        "completion": usage.candidates_token_count,
    }


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
print(json.dumps({"calls": calls, "counted": counted, "models": models, "refused": refused}))
