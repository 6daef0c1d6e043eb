"""A census of an SDK's request types: no field that it can send is dropped silently (I7).

For every field of every type that a request can hold, a request with the field is read, and one without it. The field
counts when it is refused, when it or what holds it is named in `ignored_fields`, or when leaving it out changes what
was read. What is left must be forgiven, with a reason.
"""

from __future__ import annotations

import copy
import enum
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typing_extensions

from addons.conversation import Call
from addons.errors import CallError

Steps = tuple[str | int, ...]
_WRAPPERS = (
    typing.Required, typing.NotRequired, typing_extensions.Required, typing_extensions.NotRequired, typing.Annotated,
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """A plausible value, and where in it the fields of typed objects are."""

    value: Any
    fields: tuple[Steps, ...] = ()

    def below(self, step: str | int) -> tuple[Steps, ...]:
        """The same fields, seen from what holds the value at `step`."""
        return tuple((step, *steps) for steps in self.fields)


def samples(hint: Any, key: str, above: tuple[str, ...] = ()) -> list[Sample]:
    """One sample for every alternative of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in _WRAPPERS:
        return samples(arguments[0], key, above)
    if typing.is_typeddict(hint) or typing_extensions.is_typeddict(hint):
        return objects(hint, above) if hint.__name__ not in above else []
    if origin in (typing.Union, types.UnionType):
        found = [sample for part in arguments for sample in samples(part, key, above)]
        if any(isinstance(sample.value, str) for sample in found):  # one string is enough: no files, no paths
            texts = [sample for sample in found if isinstance(sample.value, str)]
            found = [sample for sample in found if not isinstance(sample.value, str)] + texts[:1]
        return found
    if origin in (Literal, typing_extensions.Literal):
        return [Sample(arguments[0])]
    if origin is not None and issubclass(origin, Mapping):
        return [Sample({"k": f"of {key}"})]
    if origin is not None:  # a list of something
        return [Sample([item.value], item.below(0)) for item in samples(arguments[0], key, above)]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [Sample(list(hint)[-1].value)]
    plain = {str: f"text of {key}", int: 2048, bool: True, float: 0.5, object: {"k": 1}, Any: {"k": 1}}
    return [Sample(plain[hint])] if hint in plain else []


@cache
def objects(hint: Any, above: tuple[str, ...] = ()) -> list[Sample]:
    """Objects of a type: one with all its fields, and one for each further alternative of each field."""
    alternatives = {
        key: found
        for key, of in get_type_hints(hint, include_extras=True).items()
        if (found := samples(of, key, (*above[-1:], hint.__name__)))
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


@dataclass
class Census:
    """One request type, as one dialect reads it.

    `mend` makes a sampled body consistent where the types cannot say it, in place. `forgiven` are ends of a field's
    path by kinds, each with the reason why it may be dropped.
    """

    hint: Any
    reader: Callable[[Any], Call]
    mend: Callable[[dict[str, Any]], None]
    forgiven: Mapping[str, str]
    checked: set[tuple[str, ...]]
    dropped: set[str]

    def __init__(
        self, hint: Any, reader: Callable[[Any], Call], mend: Callable[[dict[str, Any]], None],
        forgiven: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.hint, self.reader, self.mend, self.forgiven = hint, reader, mend, forgiven
        self.checked, self.dropped = set(), set()

    def run(self) -> None:
        """Read every sample with and without each of its fields; fill `checked` and `dropped`."""
        for sample in objects(self.hint):
            value = copy.deepcopy(sample.value)
            self.mend(value)
            call = self._read(value)
            assert isinstance(call, Call), f"{call}: {value}"
            for steps in sample.fields:
                if exists(value, steps):
                    self._check(value, steps, call)

    def _check(self, value: Any, steps: Steps, call: Call) -> None:
        signature = tuple(kinds(value, steps))
        if signature in self.checked:
            return
        self.checked.add(signature)
        said = " ".join(signature)
        if named(value, steps, call.ignored_fields) or said.endswith(tuple(self.forgiven)):
            return
        if self._read(without(value, steps)) == call:
            self.dropped.add(said)

    def _read(self, value: Any) -> Call | CallError:
        try:
            return self.reader(copy.deepcopy(value))
        except CallError as refused:
            return refused


def exists(value: Any, steps: Steps) -> bool:
    """Whether there is something at `steps`."""
    for step in steps:
        there = step < len(value) if isinstance(value, list) and isinstance(step, int) else False
        if not there and not (isinstance(value, dict) and step in value):
            return False
        value = value[step]
    return True


def without(value: Any, steps: Steps) -> Any:
    """A copy without what is at `steps`."""
    value = copy.deepcopy(value)
    holder = value
    for step in steps[:-1]:
        holder = holder[step]
    del holder[steps[-1]]
    return value


def named(value: Any, steps: Steps, ignored: tuple[str, ...]) -> bool:
    """Whether the field, or something that holds it, is in `ignored_fields`."""
    path, found = "", [""]
    for step in steps:
        value = value[step]
        if isinstance(step, int):
            kind = value.get("type") if isinstance(value, dict) else None
            found.append(f"{path}[type={kind}]")
            path += "[]"
        else:
            path += f".{step}" if path else str(step)
        found.append(path)
    return not set(found).isdisjoint(ignored)


def kinds(value: Any, steps: Steps) -> Iterator[str]:
    """The path to a field by what the objects on the way are, so that each place is checked once."""
    for step in steps:
        value = value[step]
        kind = (value.get("type") or value.get("role") or "") if isinstance(value, dict) else ""
        yield f"{'' if isinstance(step, int) else step}({kind})" if kind else str(step)
