from __future__ import annotations

from typing import Any

import pytest

from addons.dialects.fields import Fields
from addons.errors import BadRequest


def test_what_nobody_takes_is_reported_without_indices() -> None:
    f = Fields({"a": 1, "list": [{"x": "1", "extra": 2}, {"x": "2", "extra": 3}], "left": {}})
    assert f.integer("a") == 1
    for item in f.objects("list"):
        assert item.text("x")
        item.close()
    f.close()
    assert f.ignored == {"left", "list[].extra"}


def test_null_is_absence() -> None:
    f = Fields({"n": None, "tools": None})
    assert f.integer("n", 1) is None
    assert f.objects("tools") == []
    f.close()
    assert f.ignored == set()


@pytest.mark.parametrize(
    ("method", "value", "words"),
    [
        ("text", 3, "expected a string, but got an integer"),
        ("flag", "true", "expected a boolean, but got a string"),
        ("flag", 1, "expected a boolean, but got an integer"),
        ("number", "0.7", "expected a number, but got a string"),
        ("number", True, "expected a number, but got a boolean"),
        ("integer", 1.5, "expected an integer, but got a number"),
        ("object", [], "expected an object, but got an array"),
        ("objects", {}, "expected an array, but got an object"),
        ("strings", [1], "expected a string or an array of strings"),
    ],
)
def test_a_wrong_type_names_the_field(method: str, value: Any, words: str) -> None:
    f = Fields({"deep": {"field": value}}).object("deep")
    assert f is not None
    with pytest.raises(BadRequest, match=words) as caught:
        getattr(f, method)("field")
    assert caught.value.param == "deep.field"


def test_items_of_a_list_are_named_by_index() -> None:
    with pytest.raises(BadRequest, match=r"'messages\[1\]': expected an object, but got a string"):
        Fields({"messages": [{}, "x"]}).objects("messages")


def test_bounds() -> None:
    with pytest.raises(BadRequest, match="3 must be between 0 and 2"):
        Fields({"temperature": 3}).number("temperature", 0, 2)


def test_a_body_that_is_no_object() -> None:
    with pytest.raises(BadRequest, match="'body': expected an object, but got an array"):
        Fields([])
