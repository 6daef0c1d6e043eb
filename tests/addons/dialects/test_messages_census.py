"""A census of the SDK's request types: no field that it can send is dropped silently (I7).

For every field of every type that a request can hold, a request with the field is read, and one without it. The
field counts when it is refused, when it or what holds it is named in `ignored_fields`, or when leaving it out
changes what was read. What is left must be in `FORGIVEN`, with the reason.
"""

from __future__ import annotations

import copy
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import typing_extensions
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_message_create_params

from addons.conversation import Call
from addons.dialects.continuing import LookUp
from addons.dialects.messages import read, read_count
from addons.errors import BadRequest

FORGIVEN = {
    "(thinking) signature": "any is taken, and none is needed; the thinking itself is read",
    "source(text) media_type": "it can only be text/plain",
    "tools (custom) type": "a tool without a type is a custom one",
    "thread(create)": "it asks that the conversation be kept, as every one is",
}
"""Fields that may be dropped, and why."""

CREATE = message_create_params.MessageCreateParamsStreaming
BETA = beta_message_create_params.MessageCreateParamsStreaming
COUNT = message_count_tokens_params.MessageCountTokensParams
_REFUSED_WHOLE = ("compaction",)

Steps = tuple[str | int, ...]


@dataclass(frozen=True)
class Sample:
    """A plausible value, and where in it the fields of typed objects are."""

    value: Any
    fields: tuple[Steps, ...] = ()

    def below(self, step: str | int) -> tuple[Steps, ...]:
        return tuple((step, *steps) for steps in self.fields)


def is_object(hint: Any) -> bool:
    return typing.is_typeddict(hint) or typing_extensions.is_typeddict(hint)


def samples(hint: Any, key: str, above: tuple[str, ...] = ()) -> list[Sample]:
    """One sample for every alternative of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (typing_extensions.Required, typing_extensions.NotRequired, typing.Annotated):
        return samples(arguments[0], key, above)
    if is_object(hint):
        return objects(hint) if hint.__name__ not in above else []
    if origin in (typing.Union, types.UnionType):
        found = [sample for part in arguments for sample in samples(part, key, above)]
        if any(isinstance(sample.value, str) for sample in found):  # one string is enough: no files, no paths
            texts = [sample for sample in found if isinstance(sample.value, str)]
            found = [sample for sample in found if not isinstance(sample.value, str)] + texts[:1]
        return found
    if origin is typing.Literal or origin is typing_extensions.Literal:
        return [Sample(arguments[0])]
    if origin is not None and issubclass(origin, dict):
        return [Sample({"k": f"of {key}"})]
    if origin is not None:  # a list of something
        return [Sample([item.value], item.below(0)) for item in samples(arguments[0], key, above)]
    plain = {str: [Sample(f"text of {key}")], int: [Sample(2048)], bool: [Sample(True)], float: [Sample(0.5)]}
    return plain.get(hint, [])


@cache
def objects(hint: Any) -> list[Sample]:
    """Objects of a type: one with all its fields, and one for each further alternative of each field."""
    alternatives = {
        key: found
        for key, of in get_type_hints(hint, include_extras=True).items()
        if (found := samples(of, key, (hint.__name__,)))
    }
    usual = {key: found[0] for key, found in alternatives.items()}
    choices = [usual]
    choices += [{**usual, key: other} for key, found in alternatives.items() for other in found[1:]]
    return [
        Sample(
            {key: sample.value for key, sample in choice.items()},
            tuple(steps for key, sample in choice.items() for steps in ((key,), *sample.below(key))),
        )
        for choice in choices
    ]


def bodies(hint: Any) -> Iterator[Sample]:
    """Requests that can be read: the sampled one, made consistent where the types cannot say it."""
    for sample in objects(hint):
        value = copy.deepcopy(sample.value)
        for key in _REFUSED_WHOLE:
            value.pop(key, None)
        value["messages"] = [*value["messages"], {"role": "user", "content": "last"}]
        choice = value.get("tool_choice", {})
        if choice.get("type") in ("any", "tool"):
            value["tools"] = [{"name": choice.get("name", "t"), "input_schema": {}}]
        fields = tuple(steps for steps in sample.fields if steps[0] not in _REFUSED_WHOLE and exists(value, steps))
        yield Sample(value, fields)


def exists(value: Any, steps: Steps) -> bool:
    for step in steps:
        if not (isinstance(value, list) and isinstance(step, int) and step < len(value)) and not (
            isinstance(value, dict) and step in value
        ):
            return False
        value = value[step]
    return True


def without(value: Any, steps: Steps) -> Any:
    value = copy.deepcopy(value)
    holder = value
    for step in steps[:-1]:
        holder = holder[step]
    del holder[steps[-1]]
    return value


def named(value: Any, steps: Steps, ignored: tuple[str, ...]) -> bool:
    """Whether the field, or something that holds it, is in `ignored_fields`."""
    path, kinds = "", [""]
    for step in steps:
        value = value[step]
        if isinstance(step, int):
            kind = value.get("type") if isinstance(value, dict) else None
            kinds.append(f"{path}[type={kind}]")
            path += "[]"
        else:
            path += f".{step}" if path else str(step)
        kinds.append(path)
    return not set(kinds).isdisjoint(ignored)


def earlier(value: dict[str, Any]) -> dict[str, Any]:
    """What a thread keeps that `value` can continue."""
    return {
        **{key: value[key] for key in ("system", "tools") if key in value},
        "messages": [{"role": "user", "content": "earlier"}],
    }


def read_as(reader: Any, value: Any) -> Call | BadRequest:
    try:
        call: Call = reader(value, stored=lambda _: earlier(value))
    except BadRequest as refused:
        return refused
    return call


@pytest.mark.parametrize(("hint", "reader"), [(CREATE, read), (BETA, read), (COUNT, read_count)])
def test_no_field_of_a_request_is_dropped_silently(hint: Any, reader: Any) -> None:
    checked: set[tuple[str, ...]] = set()
    dropped: set[str] = set()
    for sample in bodies(hint):
        call = read_as(reader, sample.value)
        assert isinstance(call, Call), f"{call}: {sample.value}"
        for steps in sample.fields:
            signature = tuple(kinds(sample.value, steps))
            if signature in checked:
                continue
            checked.add(signature)
            said = " ".join(signature)
            if named(sample.value, steps, call.ignored_fields) or said.endswith(tuple(FORGIVEN)):
                continue
            if read_as(reader, without(sample.value, steps)) == call:
                dropped.add(said)
    assert not dropped
    assert len(checked) > 1000


def kinds(value: Any, steps: Steps) -> Iterator[str]:
    """The path to a field by what the objects on the way are, so that each place is checked once."""
    for step in steps:
        value = value[step]
        kind = (value.get("type") or value.get("role") or "") if isinstance(value, dict) else ""
        yield f"{'' if isinstance(step, int) else step}({kind})" if kind else str(step)


@pytest.mark.parametrize("key", _REFUSED_WHOLE)
def test_what_would_change_the_reply_is_refused(key: str) -> None:
    assert key in get_type_hints(BETA)
    value = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}], key: {"type": "create"}}
    with pytest.raises(BadRequest, match=f"^{key}: Extra inputs are not permitted$"):
        read(value)


def test_the_census_notices_a_field_that_is_dropped() -> None:
    def forgetful(value: Any, stored: LookUp) -> Call:
        return read({key: item for key, item in value.items() if key != "metadata"}, stored=stored)

    with pytest.raises(AssertionError, match="metadata"):
        test_no_field_of_a_request_is_dropped_silently(CREATE, forgetful)
