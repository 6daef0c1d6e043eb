from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay import bodies, codec, redact

texts = st.text(st.characters(exclude_categories=[]), max_size=20)
names = texts.filter(lambda name: redact.fields({name: "x"}) == {name: "x"})  # a credential's does not come back
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=10
)
keys = st.sampled_from([*bodies.ITEM_KEYS, "tools", "system", "stream"]) | names
large = st.sampled_from(["x" * 300, ["y" * 200, {"z": "z" * 200}], {"deep": ["w" * 400]}])
requests = st.dictionaries(keys, values | large | st.lists(values, max_size=5), max_size=6)
digests = st.lists(st.sampled_from("abcdefgh"), max_size=12)


def rebuild(request: dict[str, Any]) -> dict[str, Any]:
    split = bodies.split(request)

    def load(wanted: Sequence[str]) -> list[Any]:
        return [codec.loads(split.blobs[digest]) for digest in wanted]

    return bodies.join(load([split.skeleton])[0], split.items, load)


@given(requests)
def test_any_body_comes_back_value_for_value_in_its_order(request: dict[str, Any]) -> None:
    assert repr(rebuild(request)) == repr(request)


@given(digests, digests)
def test_items_come_back_through_runs_of_the_parent(items: list[str], parent: list[str]) -> None:
    assert bodies.decode_items(bodies.encode_items(items, parent), parent) == tuple(items)


def test_appending_costs_one_run_and_the_new_items() -> None:
    assert bodies.encode_items("abcde", "abc") == [[0, 3], "d", "e"]


def test_a_rewritten_first_item_costs_itself() -> None:
    assert bodies.encode_items("Xbcd", "abcd") == ["X", [1, 3]]


def test_repeated_items_extend_one_run() -> None:
    assert bodies.encode_items("ababab", "ababab") == [[0, 6]]


@pytest.mark.parametrize("run", [[0, 4], [3, 1], [-1, 2]])
def test_a_run_that_the_parent_lacks_is_refused(run: list[int]) -> None:
    with pytest.raises(ValueError, match="is not in a parent's 3 items"):
        bodies.decode_items([run], ["a", "b", "c"])


def test_large_fields_leave_the_skeleton_so_that_small_changes_stay_small() -> None:
    prompt = [{"type": "text", "text": "volatile 1"}, {"type": "text", "text": "s" * 20_000}]
    first = bodies.split({"system": prompt, "tools": [{"t": "t" * 999}], "messages": []})
    second = bodies.split({"system": [{"text": "volatile 2"}, prompt[1]], "tools": [{"t": "t" * 999}], "messages": []})
    fresh = [text for digest, text in second.blobs.items() if digest not in first.blobs]
    assert sum(map(len, fresh)) < 500


def test_only_the_first_list_of_items_is_the_conversation() -> None:
    split = bodies.split({"input": "plain text", "messages": [{"role": "user"}], "contents": [1]})
    assert [codec.loads(split.blobs[digest]) for digest in split.items] == [{"role": "user"}]


def test_credentials_in_fields_never_reach_a_blob() -> None:
    split = bodies.split({
        "api_key": "sk-1-secret",
        "tools": [{"type": "mcp", "headers": {"Authorization": "Bearer sk-2-secret"}, "pad": "p" * 999}],
        "messages": [{"role": "user", "content": "my password: hunter2"}],
    })  # fmt: skip
    stored = b"".join(split.blobs.values())
    assert b"secret" not in stored
    assert b"hunter2" in stored  # the conversation is what the model saw
