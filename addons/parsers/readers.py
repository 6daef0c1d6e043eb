"""Texts of tool calls that are no plain JSON, read into calls.

A reader takes what stands between a call's delimiters and gives all the calls in it, or None when any part of it
cannot be read: a call that is guessed at would run something that the model did not say.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any

from addons.parsers.events import Called, called

Reader = Callable[[str, str], list[Called] | None]
"""Takes the name that the opening delimiter had ("" where it has none) and the text; never raises."""


def python_calls(_: str, text: str) -> list[Called] | None:
    """`[name(key=value, ...), ...]`, values as Python or JSON writes them.

    Names and keys may be any word (`mcp-docs.get`, `from`), and strings may hold raw line breaks, as the templates
    that write this form write them. Python's own grammar reads the rest.
    """
    rewritten = _rewritten(text.strip())
    if rewritten is None:
        return None
    source, words = rewritten
    try:
        tree = ast.parse(source, mode="eval").body
        if not isinstance(tree, ast.List) or not tree.elts:
            return None
        return [_python_call(node, words) for node in tree.elts]
    except (LookupError, MemoryError, RecursionError, SyntaxError, ValueError):
        return None


def json_call_list(_: str, text: str) -> list[Called] | None:
    """`[{"name": ..., "arguments": {...}}, ...]`; further keys (an id) mean nothing."""
    value = _json(text)
    if not isinstance(value, list) or not value:
        return None
    return _all([called(item) for item in value])


def bare_json_calls(_: str, text: str) -> list[Called] | None:
    """`{"name": ..., "parameters": {...}}`, several with a semicolon or a line break between them."""
    calls: list[Called | None] = []
    at, text = 0, text.strip()
    while at < len(text):
        try:
            value, at = json.JSONDecoder().raw_decode(text, at)
        except (RecursionError, ValueError):
            return None
        if isinstance(value, dict) and "parameters" in value:
            value = {"name": value.get("name"), "arguments": value["parameters"]}
        calls.append(called(value))
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
    return _all(calls)


def gemma_call(name: str, text: str) -> list[Called] | None:
    """`{key:value,...}`: JSON with bare keys, and strings between `<|"|>`."""
    pieces = text.split('<|"|>')
    if len(pieces) % 2 == 0:
        return None
    pieces[0::2] = [_GEMMA_WORD.sub(_gemma_word, piece) for piece in pieces[0::2]]
    pieces[1::2] = [json.dumps(piece) for piece in pieces[1::2]]
    return _all([called({"name": name, "arguments": _json("".join(pieces))})])


_BETWEEN = re.compile(r"\s*;?\s*")
_GEMMA_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|([^\s"{}\[\],:]+)(\s*:)?')
_CONSTANTS = {"None": None, "True": True, "False": False, "null": None, "true": True, "false": False}


def _gemma_word(match: re.Match[str]) -> str:
    """A bare key in quotes; a constant as JSON spells it."""
    word, colon = match[1], match[2]
    if word is None:
        return match[0]
    if colon is not None:
        return json.dumps(word) + colon
    return json.dumps(_CONSTANTS[word]) if word in _CONSTANTS else str(word)


def _all(calls: list[Called | None]) -> list[Called] | None:
    good = [call for call in calls if call is not None]
    return good if good and len(good) == len(calls) else None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return None


# Python calls. A first pass over the text finds names and keys, which Python might not take for names, and puts
# numbered ones in their place; and makes the strings such as Python can read.

_STRING = re.compile(
    r"'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL
)
_FUNCTION = re.compile(r"\s*([^\s()\[\]{},=:'\"]+)\s*(?=\()")
_KEY = re.compile(r"\s*([^\s()\[\]{},=:'\"]+)\s*(?==(?!=))")
_ESCAPE = re.compile(r"\\(.)|([\n\r\0])", re.DOTALL)
_ESCAPES = "\\'\"abfnrtv01234567xuUN\n"
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def _rewritten(text: str) -> tuple[str, list[str]] | None:
    """The text for Python's parser, and the words whose numbers stand in it; None where it is no such text."""
    out: list[str] = []
    words: list[str] = []
    open_brackets: list[str] = []
    at, after_string = 0, False
    while at < len(text):
        character = text[at]
        string = _STRING.match(text, at)
        if string is not None:
            if after_string or text[at - 1].isalnum():
                return None  # two strings, which Python would join: a quote that was not escaped; or r"" and the like
            out.append(_ESCAPE.sub(_escape, string[0]))
            at, after_string = string.end(), True
            continue
        if character == "#":
            return None  # Python would skip the rest of the line
        after_string = after_string and character.isspace()
        out.append(character)
        at += 1
        if character in _CLOSING:
            open_brackets.append(character)
        elif character in _CLOSING.values() and (not open_brackets or _CLOSING[open_brackets.pop()] != character):
            return None
        pattern = {"[": _FUNCTION, "[(": _KEY}.get("".join(open_brackets))
        if pattern is not None and character in "[(," and (word := pattern.match(text, at)) is not None:
            out.append(f" w{len(words)} ")
            words.append(word[1])
            at = word.end()
    return "".join(out), words


def _escape(match: re.Match[str]) -> str:
    if match[2] is not None:
        return {"\n": "\\n", "\r": "\\r", "\0": "\\0"}[match[2]]
    return match[0] if match[1] in _ESCAPES else "\\" + match[0]  # "\d" means itself, as Python has it


def _python_call(node: ast.expr, words: list[str]) -> Called:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        raise ValueError("no call by keywords")
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None or (key := words[int(keyword.arg[1:])]) in arguments:
            raise ValueError("an argument without a name, or twice")
        arguments[key] = _python_value(keyword.value)
    call = called({"name": words[int(node.func.id[1:])], "arguments": arguments})
    if call is None:
        raise ValueError("a value that JSON has not")
    return call


def _python_value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | int() | float() | None):
            return node.value
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_python_value(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            names = [None if key is None else _python_value(key) for key in keys]
            if all(isinstance(name, str) for name in names):
                return dict(zip(names, map(_python_value, values), strict=True))
    raise ValueError("no literal")
