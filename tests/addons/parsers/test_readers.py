from __future__ import annotations

import json
import warnings

import pytest

from addons.parsers.events import Called
from addons.parsers.readers import bare_json_calls, gemma_call, json_call_list, python_calls


def arguments(calls: list[Called] | None) -> list[tuple[str, object]]:
    assert calls is not None
    return [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("[f()]", {}),
        ("[ f ( a = 1 , ) ]", {"a": 1}),
        ("[f(a='x, y', b=\"it's\", c='''t''')]", {"a": "x, y", "b": "it's", "c": "t"}),
        ("[f(a='(]}', b=[1, (2, -3.5), {'k': None}])]", {"a": "(]}", "b": [1, [2, -3.5], {"k": None}]}),
        ('[f(a=True, b=false, c=null, d={"x": true})]', {"a": True, "b": False, "c": None, "d": {"x": True}}),
        ("[f(from='a', -n=3, a.b='c', 오='한')]", {"from": "a", "-n": 3, "a.b": "c", "오": "한"}),
        ("[f(a='one\ntwo\r\n')]", {"a": "one\ntwo\r\n"}),  # line breaks as they are
        (r"[f(a='one\ntwo', b='\d+\.\'\\')]", {"a": "one\ntwo", "b": r"\d+\.'" + "\\"}),
        ("[f(a='x=1, g(y=2)', b='#')]", {"a": "x=1, g(y=2)", "b": "#"}),
    ],
)
def test_python_calls(text: str, read: dict[str, object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert arguments(python_calls("", text)) == [("f", read)]


def test_several_python_calls_of_any_name() -> None:
    assert arguments(python_calls("", "[mcp-x.get(a=1), g()]")) == [("mcp-x.get", {"a": 1}), ("g", {})]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "f()", "[f]", "[f(]", "[f()", "f(a=1)]", "[f(a=1)] and", "[f(1)]", "[f(*a)]", "[f(**{'a': 1})]"),
        *("[f(a=1, a=2)]", "[f(a=g())]", "[f(a=b)]", "[f(a=1+1)]", "[f(a=b'x')]", r"[f(a=r'\d')]", "[f(a=f'{x}')]"),
        *("[f(a=...)]", "[f(a=1j)]", "[f(a=1e999)]", "[f(a={1: 2})]", "[f(a={'x'})]", "[f(a=007)]", "[f(a='x)]"),
        "[f(a='echo 'hi'')]",  # quotes in quotes: what was meant cannot be known
        "[f(a='echo ''x')]",  # and Python would make one string of these
        "[f(a='x' 'y')]",
        "[f(a=['x' 'y'])]",
        "[f(a=1) # [g(b=2)]\n]",
        "[f(a=1), 2]",
        "[f(a=1).g(b=2)]",
        "[f(a)]",
        "[f(a==1)]",
        "[f(a=(1 for x in y))]",
        "[f(a=" + "[" * 5000 + "]" * 5000 + ")]",
        "[f(a=" + "1" * 5000 + ")]",
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_python_call(text: str) -> None:
    assert python_calls("", text) is None


def test_json_call_lists() -> None:
    text = '[{"name": "f", "arguments": {"a": 1}, "id": "x"}, {"arguments": {}, "name": "g"}]'
    assert arguments(json_call_list("", text)) == [("f", {"a": 1}), ("g", {})]
    for broken in ("[]", "{}", '["f"]', '[{"name": "f"}]', text[:-1], '[{"name": "f", "arguments": [1]}]'):
        assert json_call_list("", broken) is None
    assert json_call_list("", text.replace("{}", "null")) is None  # one that is broken, and none is read


def test_bare_json() -> None:
    one, two = '{"name": "f", "parameters": {"a": "}; {"}}', '{"name": "g", "arguments": {}}'
    read = [("f", {"a": "}; {"}), ("g", {}), ("f", {"a": "}; {"})]
    assert arguments(bare_json_calls("", f"{one}; {two}\n{one}")) == read
    for broken in ("", one[:-1], one + " and", f"{one} {{", '{"name": "f"}', '{"name": "f", "parameters": 3}'):
        assert bare_json_calls("", broken) is None


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("{}", {}),
        ('{a:<|"|>x{y:1},"q" None<|"|>,n:-1.5}', {"a": 'x{y:1},"q" None', "n": -1.5}),
        ('{-n:3,a.b:[true,null,{c:<|"|><|"|>}]}', {"-n": 3, "a.b": [True, None, {"c": ""}]}),
        ("{한:False,a:None}", {"한": False, "a": None}),
        ('{ "a" : "x:y" , b : 1 }', {"a": "x:y", "b": 1}),
        ('{a:<|"|>line\nbreak<|"|>}', {"a": "line\nbreak"}),
    ],
)
def test_gemma(text: str, read: dict[str, object]) -> None:
    assert arguments(gemma_call("f", text)) == [("f", read)]


@pytest.mark.parametrize(
    "text", ["", "{", '{a:<|"|>x}', "{a:oops}", "{a}", "{a:1}}", "[1]", "{a:1,}", "{a:<b>}", '{a:"x}', "{a:NaN}"]
)
def test_what_is_no_gemma_call(text: str) -> None:
    assert gemma_call("f", text) is None
