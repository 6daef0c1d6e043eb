"""Every field that the official SDK can send is honoured, refused, or reported: none is lost."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NotRequired, Required, Union

import openai.types.responses as sdk
import pytest
import typing_extensions
from openai.types.responses import response_create_params as create
from openai.types.responses import tool_param as tools
from openai.types.responses.input_token_count_params import InputTokenCountParams
from openai.types.responses.response_input_content_param import ResponseInputContentParam
from openai.types.responses.responses_client_event_param import ResponseCreate
from openai.types.shared_params.reasoning import Reasoning

from addons.dialects.responses import read, read_count
from addons.errors import CallError

HONOURED: dict[str, set[str]] = {
    "request": {
        "include", "input", "instructions", "max_output_tokens", "metadata", "model", "parallel_tool_calls",
        "previous_response_id", "reasoning", "store", "stream", "stream_options", "temperature", "text", "tool_choice",
        "tools", "top_p", "type", "generate",
    },
    "Reasoning": {"summary", "generate_summary"},
    "ResponseTextConfigParam": {"format"},
    "ResponseFormatText": {"type"},
    "ResponseFormatJSONObject": {"type"},
    "ResponseFormatTextJSONSchemaConfigParam": {"type", "name", "schema", "strict"},
    # items: their id and status say nothing that the item itself does not
    "EasyInputMessageParam": {"type", "role", "content"},
    "Message": {"type", "role", "content", "status"},
    "ResponseOutputMessageParam": {"type", "role", "content", "id", "status"},
    "ResponseFunctionToolCallParam": {"type", "id", "status", "call_id", "name", "namespace", "arguments"},
    "FunctionCallOutput": {"type", "id", "status", "call_id", "name", "namespace", "output"},
    "ResponseCustomToolCallParam": {"type", "id", "call_id", "name", "namespace", "input"},
    "ResponseCustomToolCallOutputParam": {"type", "id", "call_id", "output"},
    "LocalShellCall": {"type", "id", "status", "call_id", "action"},
    "LocalShellCallOutput": {"type", "id", "status", "output"},
    "ToolSearchCall": {"type", "id", "status", "call_id", "arguments", "execution"},
    "ResponseToolSearchOutputItemParamParam": {"type", "id", "status", "call_id", "tools", "execution"},
    "AdditionalTools": {"type", "id", "role", "tools"},
    "ResponseReasoningItemParam": {"type", "id", "status", "summary", "content"},
    "ItemReference": {"type", "id"},
    "CompactionTrigger": {"type", "id"},
    # parts
    "ResponseInputTextParam": {"type", "text"},
    "ResponseInputImageParam": {"type"},
    "ResponseInputFileParam": {"type", "filename"},
    "ResponseInputAudioParam": {"type"},
    # tools
    "FunctionToolParam": {"type", "name", "description", "parameters", "strict"},
    "CustomToolParam": {"type", "name", "description", "format"},
    "NamespaceToolParam": {"type", "name", "description", "tools"},
    "ToolSearchToolParam": {"type", "description", "parameters", "execution"},
    "LocalShell": {"type"},
    # tool_choice
    "ToolChoiceAllowedParam": {"type", "mode", "tools"},
    "ToolChoiceFunctionParam": {"type", "name"},
    "ToolChoiceCustomParam": {"type", "name"},
}  # fmt: skip
"""By type: fields that `read` heeds. Whatever else comes must be refused or be in `ignored_fields`."""


def hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def sample(hint: Any, *, every: bool = False) -> Any:
    """One plausible value; of a TypedDict its required fields, or all of them."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Required, NotRequired, typing_extensions.Required, typing.Annotated):
        return sample(arguments[0], every=every)
    if origin in (Union, types.UnionType):
        return sample(next(a for a in arguments if a is not type(None)), every=every)
    if origin in (Literal, typing_extensions.Literal):
        return arguments[0]
    if typing_extensions.is_typeddict(hint):
        required = {name: h for name, h in hints(hint).items() if every or typing.get_origin(h) is Required}
        return {name: sample(h) for name, h in required.items()}
    if origin in (dict, Mapping):
        return {"k": sample(arguments[1])}
    if origin in (list, Iterable, Sequence) or "SequenceNotStr" in str(origin or hint):
        return [sample(arguments[0])]
    simple: dict[Any, Any] = {str: "x", int: 1, float: 0.5, bool: True, object: {}, Any: {}}
    return simple[hint]


def members(hint: Any) -> Iterator[type]:
    """The TypedDicts of a union."""
    for argument in typing.get_args(hint) or (hint,):
        if typing_extensions.is_typeddict(argument):
            yield argument


def body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hi", **more}


CALL = {"type": "function_call", "call_id": "x", "name": "f", "arguments": "{}"}
TOOL = {"type": "function", "name": "x"}


def places() -> Iterator[tuple[type, Any]]:
    """Each type that can be in a request, and how to make a request with a value of it."""
    for item in members(sdk.ResponseInputItemParam):
        yield item, lambda value: body(input=[CALL, CALL | {"call_id": value.get("id", "x")}, value])
    for tool in members(tools.ToolParam):
        yield tool, lambda value: body(tools=[value])
    for choice in members(create.ToolChoice):
        yield choice, lambda value: body(tools=[TOOL, {"type": "custom", "name": "y"}], tool_choice=value)
    for part in members(ResponseInputContentParam):
        yield part, lambda value: body(input=[{"role": "user", "content": [value]}])
    yield Reasoning, lambda value: body(reasoning=value)
    yield sdk.ResponseTextConfigParam, lambda value: body(text=value)
    for form in members(sdk.ResponseFormatTextConfigParam):
        yield form, lambda value: body(text={"format": value})


def lost(kind: str, field: str, ignored: Sequence[str], value: Any) -> bool:
    """Whether a field is neither heeded nor reported, by name or with the whole thing it is in."""
    if field in HONOURED.get(kind, set()):
        return False
    whole = f"[type={value.get('type')}]" if isinstance(value, dict) else ""
    return not any(
        re.split(r"[.\[]", path)[-1] == field or f".{field}." in f".{path}." or (whole and whole in path)
        for path in ignored
    )


NEEDED: dict[str, dict[str, Any]] = {
    "FunctionCallOutput": {"call_id": "x"},
    "ToolSearchCall": {"call_id": "x", "execution": "client"},
    "ResponseToolSearchOutputItemParamParam": {"call_id": "x", "execution": "client"},
    "ToolSearchToolParam": {"execution": "client"},
    "ToolChoiceAllowedParam": {"tools": [TOOL]},
    "ResponseInputImageParam": {"image_url": "https://example.org"},
    "ResponseInputFileParam": {"file_data": "MTIz"},
}
"""What a value needs to be accepted beyond the fields that the SDK requires."""
REFUSED = {
    "ItemReference", "ToolChoiceTypesParam", "ToolChoiceMcpParam", "ToolChoiceSpecificProgrammaticToolCallingParam",
    "ToolChoiceApplyPatchParam", "ToolChoiceShellParam",
}  # fmt: skip
"""Types that are refused whole: what they name is the provider's own."""


CASES = [(kind, field, make) for kind, make in places() for field in hints(kind)]


@pytest.mark.parametrize(("kind", "field", "make"), CASES, ids=[f"{k.__name__}.{f}" for k, f, _ in CASES])
def test_no_field_of_a_part_is_lost(kind: type, field: str, make: Any) -> None:
    value = {**sample(kind), field: sample(hints(kind)[field]), **NEEDED.get(kind.__name__, {})}
    if kind.__name__ in REFUSED:
        with pytest.raises(CallError, match=r"not found|not served"):
            read(make(value))
        return
    ignored = read(make(value)).ignored_fields
    assert not lost(kind.__name__, field, ignored, value), f"{kind.__name__}.{field}: {ignored}"


REQUESTS = [
    (kind, field)
    for kind in (create.ResponseCreateParamsNonStreaming, create.ResponseCreateParamsStreaming, ResponseCreate)
    for field in hints(kind)
]


@pytest.mark.parametrize(("kind", "field"), REQUESTS, ids=[f"{k.__name__}.{f}" for k, f in REQUESTS])
def test_no_field_of_a_request_is_lost(kind: type, field: str) -> None:
    asked = body(**{field: sample(hints(kind)[field])})
    if field in ("background", "conversation", "prompt"):
        with pytest.raises(CallError, match=r"not found|not served") as caught:
            read(asked)
        assert caught.value.param == field
        return
    over_a_socket = kind is ResponseCreate
    call = read({"type": "response.create", **asked} if over_a_socket else asked, lambda _: [], socket=over_a_socket)
    assert not lost("request", field, call.ignored_fields, None)


@pytest.mark.parametrize("field", sorted(set(hints(InputTokenCountParams)) - {"conversation"}))
def test_no_field_of_a_count_is_lost(field: str) -> None:
    asked = body(**{field: sample(hints(InputTokenCountParams)[field])})
    assert not lost("request", field, read_count(asked, lambda _: []).ignored_fields, None)


def test_the_census_sees_a_loss() -> None:
    assert lost("FunctionToolParam", "strictness", read(body(tools=[TOOL])).ignored_fields, TOOL)
    assert not lost("FunctionToolParam", "x", read(body(tools=[{**TOOL, "x": 1}])).ignored_fields, TOOL)
    assert len(CASES) > 200
