"""`--help` teaches: every command of ours shows how it is typed, and says of each option what it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import addons.cli
import replay.cli
import trainer.cli

APPS = {"tap": addons.cli.app, "replay": replay.cli.app, "trainer": trainer.cli.app}


def commands(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below `group`, with the words that name it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


EVERY = [found for name, app in APPS.items() for found in commands(typer.main.get_command(app), (name,))]


@pytest.mark.parametrize(("words", "command"), EVERY, ids=[" ".join(words) for words, _ in EVERY])
def test_a_command_shows_examples_and_explains_its_options(words: tuple[str, ...], command: Any) -> None:
    shown = CliRunner().invoke(APPS[words[0]], [*words[1:], "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    _, usage = shown.output.split("Usage:")
    _, text = usage.split("\n", 1)
    assert re.search(rf"^ *(eval .*)?{' '.join(words)}\b", text, re.MULTILINE), "no example"
    assert [option.name for option in command.params if option.param_type_name == "option" and not option.help] == []


@pytest.mark.parametrize("name", APPS)
def test_the_first_page_shows_the_way(name: str) -> None:
    shown = CliRunner().invoke(APPS[name], ["--help"], env={"COLUMNS": "200"}).output
    assert len(re.findall(rf"^ *{name} \w+", shown, re.MULTILINE)) >= 2
    assert all(words[1] in shown for words, _ in EVERY if words[0] == name)
