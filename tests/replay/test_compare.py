from __future__ import annotations

from typing import Any

import pytest

from replay.compare import first_difference


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def calling(name: str, arguments: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": name, "arguments": arguments}]}


@pytest.mark.parametrize(
    ("stored", "now", "says"),
    [
        ([user("a"), user("one")], [user("a"), user("onę")], "2 (user), content, byte 2: stored 'one', now 'onę'"),
        ([user("éa")], [user("éb")], "content, byte 2:"),
        ([user("a b  c")], [user("a  b d")], "content, byte 5:"),  # not at the white space
        ([user("a b")], [user("a  b")], "content, byte 2:"),  # unless there is nothing else
        ([user("a")], [user("a"), user("more")], "message 2 (user), message, byte 0: stored nothing, now 'more'"),
        ([user("a"), user("b")], [user("a")], "message 2 (user), message, byte 0: stored 'b', now nothing"),
        ([user("x")], [{"role": "tool", "content": "x"}], "message 1 (tool), role, byte 0: stored 'user', now 'tool'"),
        ([calling("bash", '{"a": 1}')], [calling("bash", '{"a": 2}')], "tool_calls[0].arguments, byte 6:"),
        ([calling("bash", "{}")], [calling("edit", "{}")], "tool_calls[0].name, byte 0: stored 'bash', now 'edit'"),
        ([calling("bash", "{}")], [{"role": "assistant", "content": ""}], "[0], byte 0: stored 'bash {}', now n"),
        ([user("x" * 500 + "a")], [user("x" * 500 + "b")], "byte 500: stored '…" + "x" * 24 + "a', now"),
        ([user("\ud800")], [user("\ud801")], "content, byte 0"),
    ],
)  # fmt: skip
def test_the_first_difference(stored: list[dict[str, Any]], now: list[dict[str, Any]], says: str) -> None:
    assert says in str(first_difference(stored, now))
    assert first_difference(now, now) is None
