"""A session of a real harness, scored again by a real vLLM, and branched: stored up to a turn, live from there."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from certs import harnesses
from replay.reader import Reader
from replay.store import Store
from tests.conftest import TINY
from tests.e2e.test_mini import run_mini
from tests.proxy import mitmdump
from trainer.tasks import load_tasks

pytestmark = [pytest.mark.vllm, pytest.mark.harness, pytest.mark.network]

TASKS = TINY.parents[1] / "tasksets" / "demo"


async def replay(*arguments: str, store: str, **env: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("replay")), *arguments, env={**os.environ, "HARNESSTAP_STORE": store, **env},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 600)
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_verify_and_fork(tiny_vllm: str, mini: Path, tmp_path: Path) -> None:
    task = load_tasks(TASKS)[0]
    async with mitmdump(tmp_path, tiny_vllm, tap_sampling="full", tap_max_tokens="64") as proxy:
        code, out = await run_mini(mini, proxy, task, "recorded", tmp_path / "first")
        assert code == 0, out
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        recorded = reader.turns(reader.session("recorded"), tokens=True)
        at = min(2, len(recorded) - 1)
        assert at >= 1, "the tiny model ended in one turn"

    code, out = await replay("verify", "recorded", "--against", tiny_vllm, "--tolerance", "0.001", "--json",
                             store=proxy.store)  # fmt: skip
    assert code == 0, out
    scored = json.loads(out)
    assert [turn["skipped"] for turn in scored["turns"]] == [None] * len(recorded)
    assert scored["worst"] < 1e-3

    spec = harnesses.get("mini-swe-agent")
    workspace, home = tmp_path / "workspace", tmp_path / "home2"
    workspace.mkdir()
    home.mkdir()
    task.prepare(workspace)
    code, out = await replay(
        "fork", "recorded", "--at", str(at), "-n", "4", "--temperature", "1", "--engine", tiny_vllm,
        "--workspace", str(workspace), "--jobs", "2", "--out", str(tmp_path / "forks"), "--home", str(proxy.home),
        "--ignore", f"{tmp_path}[^ ]*", "--", *spec.argv(task.prompt, mini),
        store=proxy.store, **{**spec.env, "HOME": str(home)},
    )  # fmt: skip
    assert code == 0, out
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        sessions = reader.sessions(group=f"recorded.at{at}")
        assert sorted(session.name for session in sessions) == [f"recorded.at{at}.{k}" for k in range(1, 5)], out
        for session in sessions:
            turns = reader.turns(session, tokens=True)
            assert [turn.replays for turn in turns[:at]] == [turn.id for turn in recorded[:at]], out
            live = turns[at:]
            assert live, out
            assert {turn.replays for turn in live} == {None}
            assert live[0].parent_id == turns[at - 1].id
            prefix = reader.prompt_ids(recorded[at - 1]) + (recorded[at - 1].sampled or [])
            assert reader.prompt_ids(live[0])[: len(prefix)] == prefix
            assert [turn.untrainable for turn in live] == [None] * len(live)
        branches = reader.branches(reader.session("recorded"))
        assert list(branches) == [recorded[at - 1].id]
        assert sorted(branches[recorded[at - 1].id]) == sorted(session.name for session in sessions)
