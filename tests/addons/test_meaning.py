"""Which changes of the instructions tell of the moment, and which instruct otherwise."""

from __future__ import annotations

import time

import pytest

from addons.meaning import arguments, instructed, without_blocks

SYSTEM = """\
x-acme-billing-header: v=1; cch=0a1b2;
You are an agent. Never push.

Today is Tuesday, March 3rd, 2026, 9:05 AM.

# Environment
- Working directory: /home/a

Platform: linux

# Rules
Keep lines under 100 characters.

Git status at the start:
M a.py
?? b.py

<env>
  cwd: /home/a
</env>
Recent commit: deadbeef12 (4 files)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cch=0a1b2", "cch=ffff0"),
        ("x-acme-billing-header: v=1; cch=0a1b2;\n", ""),
        ("Tuesday, March 3rd, 2026, 9:05 AM", "Wednesday, April 14th, 2027, 11:59 PM"),
        ("Working directory: /home/a", "Working directory: /srv/b"),
        ("Platform: linux", "Platform: darwin"),
        ("M a.py\n?? b.py\n", "D zzz.py\n"),
        ("<env>\n  cwd: /home/a\n</env>", "<env>\n  cwd: /tmp\n  user: x\n</env>"),
        ("deadbeef12 (4 files)", "0123456abc (17 files)"),
        ("Never push.", "Never  push."),
    ],
)
def test_of_the_moment(old: str, new: str) -> None:
    assert SYSTEM.count(old) == 1
    assert instructed(SYSTEM.replace(old, new)) == instructed(SYSTEM)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Never push.", "Push at once."),
        ("You are an agent.", "You are an agent in plan mode."),
        ("# Rules", "# Suggestions"),
        ("Keep lines", "Keep all lines"),
        ("You are an agent. Never push.\n", ""),
    ],
)
def test_instructions(old: str, new: str) -> None:
    assert SYSTEM.count(old) == 1
    assert instructed(SYSTEM.replace(old, new)) != instructed(SYSTEM)


def test_blocks_go_and_what_only_looks_like_one_stays() -> None:
    assert without_blocks("a<system-reminder>x</system-reminder>b") == "ab"
    assert without_blocks('a<git_status of="x">y</git_status>b<environment_details>z</environment_details>') == "ab"
    assert without_blocks("<session_context>\nfiles: a.py\n</session_context>Write it.") == "Write it."
    assert without_blocks("<html>a</html> <environ>b</environ>") == "<html>a</html> <environ>b</environ>"
    assert without_blocks("a <env> b") == "a <env> b"


def test_no_text_takes_long() -> None:
    began = time.perf_counter()
    without_blocks("<env>" * 200_000 + "<git>" * 200_000)
    instructed(("git " * 2000 + "\n") * 200)
    assert time.perf_counter() - began < 10


def test_arguments_that_are_no_json_are_their_text() -> None:
    assert arguments('{"a": ') == arguments('{"a":')
    assert arguments('{"a": 1') != arguments('{"a": 2')
