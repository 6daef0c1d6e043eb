"""A real harness through real mitmdump, over an engine that says what the test tells it to."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from addons.model import ModelFiles
from certs import harnesses
from replay.reader import Reader
from replay.schema import Turn
from replay.store import Store
from tests.proxy import ROOT, mitmdump
from tests.scripted_engine import ScriptedEngine

SESSION = "harnessed"
_OURS = ("PATH", "HOME", "LANG")
"""What a test's environment has beside the proxy's variables."""


@dataclass
class Run:
    """A harness that has ended. `bodies` are its model calls as it sent them, `turns` how they were recorded."""

    code: int
    out: str
    workspace: Path
    turns: list[Turn]
    bodies: list[dict[str, Any]]
    tokens: list[tuple[list[int], list[int]]]
    """By turn: the prompt's ids, and the sampled ids."""
    connected: set[str]
    """Hosts that the proxy opened connections to."""

    def is_one_chain(self) -> None:
        """Fails unless each turn continues the one before, to the token."""
        assert [turn.parent_id for turn in self.turns] == [None, *(turn.id for turn in self.turns[:-1])]
        for (prompt, sampled), (longer, _) in itertools.pairwise(self.tokens):
            assert longer[: len(prompt) + len(sampled)] == prompt + sampled


def call(name: str, **arguments: Any) -> str:
    """A tool call in the tiny model's markup."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


async def run(
    name: str, task: str, said: Sequence[str], model: ModelFiles, folder: Path, *more: str,
    env: dict[str, str] | None = None, **options: str,
) -> Run:  # fmt: skip
    """Run the harness `name` on `task` with `more` arguments. The engine's replies are those of `said`, in order."""
    engine = ScriptedEngine(model, window=1_000_000)  # the tiny tokenizer cuts their long prompts small
    for text in said:
        engine.say(text, size=3)
    harness = harnesses.get(name)
    program = harnesses.install(harness, ROOT / ".harness")
    home, workspace = folder / "home", folder / "workspace"
    home.mkdir()
    workspace.mkdir()
    async for running in engine.run():
        async with mitmdump(folder, running.url, **options) as proxy:
            variables = {key: value for key, value in proxy.environment(SESSION).items() if key not in _OURS}
            environment = harnesses.environment(harness, program=program, home=home, proxy=variables) | (env or {})
            argv = harness.argv(task, program)
            process = await asyncio.create_subprocess_exec(
                *argv[:-1], *more, argv[-1], cwd=workspace, env=environment, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            try:
                out, _ = await asyncio.wait_for(process.communicate(), 120)
            finally:
                if process.returncode is None:
                    process.kill()
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        turns = reader.turns(reader.session(SESSION))
        assert process.returncode is not None
        return Run(
            process.returncode, f"{out.decode()}\n{proxy.log.read_text()}", workspace, turns,
            [reader.request(turn) for turn in turns],
            [(reader.prompt_ids(turn), reader.sampled(turn)[0]) for turn in turns],
            set(re.findall(r"server connect (\S+):\d+", proxy.log.read_text())),
        )  # fmt: skip
