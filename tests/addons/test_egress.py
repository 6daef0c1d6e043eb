"""What may leave, by name."""

from __future__ import annotations

import pytest

from addons.access import parse_session_ports
from addons.egress import PRESETS, Egress
from addons.providers import is_provider


def test_nothing_leaves_by_default() -> None:
    assert not Egress.parse("refuse", "").lets_out("pypi.org")
    assert not Egress.parse("tunnel", "").records("pypi.org")
    assert Egress.parse("tunnel", "").lets_out("pypi.org")
    assert Egress.parse("record", "").records("pypi.org")


def test_words_and_hosts() -> None:
    egress = Egress.parse("refuse", "pypi, example.com *.example.org")
    out = ["pypi.org", "files.pythonhosted.org", "EXAMPLE.com", "a.example.org", "a.b.example.org."]
    assert [host for host in out if not (egress.lets_out(host) and egress.records(host))] == []
    assert [
        h for h in ("evilpypi.org", "a.example.com", "example.org", "github.com", "1.2.3.4") if egress.lets_out(h)
    ] == []


def test_no_word_opens_a_provider() -> None:
    assert [h for hosts in PRESETS.values() for h in hosts if is_provider(h.removeprefix("*."))] == []


@pytest.mark.parametrize("allow", ["pypy", "https://pypi.org", "a_b.c", "*.", "*"])
def test_what_is_not_understood_is_named(allow: str) -> None:
    with pytest.raises(ValueError, match="allow") as told:
        Egress.parse("refuse", allow)
    assert allow in str(told.value)
    assert "pypi, npm" in str(told.value)


def test_session_ports() -> None:
    assert parse_session_ports("a=8081, b.2=8082") == {8081: "a", 8082: "b.2"}
    for text, words in (("a", "write NAME=PORT"), ("a=x", "no port"), ("a=0", "no port"), ("a=1,b=1", "'a'")):
        with pytest.raises(ValueError, match=words):
            parse_session_ports(text)
