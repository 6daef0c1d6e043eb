"""The main job on real parts: an unmodified mini-swe-agent, real mitmdump, real vLLM; then every token is checked."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from certs import harnesses
from replay.reader import Reader
from replay.store import Store
from tests.conftest import TINY
from tests.e2e.wiretap import Wiretap
from tests.proxy import Proxy
from trainer.tasks import Task, load_tasks

pytestmark = [pytest.mark.vllm, pytest.mark.harness, pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

TASKS = TINY.parents[1] / "tasksets" / "demo"


async def run_mini(program: Path, proxy: Proxy, task: Task, session: str, folder: Path) -> tuple[int, str]:
    spec = harnesses.get("mini-swe-agent")
    workspace, home = folder / "workspace", folder / "home"
    home.mkdir(parents=True)
    workspace.mkdir()
    task.prepare(workspace)
    env = harnesses.environment(spec, program=program, home=home, proxy=proxy.environment(session))
    process = await asyncio.create_subprocess_exec(
        *spec.argv(task.prompt, program), cwd=workspace, env=env, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_every_token_of_a_harness_session_is_exact(
    proxy: Proxy, wiretap: Wiretap, mini: Path, tmp_path: Path
) -> None:
    task = load_tasks(TASKS)[0]
    del wiretap.completions[:]
    code, out = await run_mini(mini, proxy, task, "mini-1", tmp_path)
    assert code == 0, f"{out}\n{proxy.log.read_text()[-3000:]}"

    with Store.open(proxy.store) as store:
        reader = Reader(store)
        session = reader.session("mini-1")
        turns = reader.turns(session)
        assert turns
        stored = [(reader.prompt_ids(t), *reader.sampled(t)) for t in turns]
    # What is stored is what vLLM was sent, what it saw, and what it sampled (T1).
    assert [(c.prompt, c.ids, c.logprobs) for c in wiretap.completions] == [
        (prompt, ids, pytest.approx(logprobs, abs=1e-6)) for prompt, ids, logprobs in stored
    ]
    assert all(c.prompt_as_seen == c.prompt for c in wiretap.completions)
    assert [t.usage and t.usage["completion"] for t in turns] == [len(ids) for _, ids, _ in stored]
    # One conversation, one sequence (T2).
    assert [t.parent_id for t in turns] == [None, *(t.id for t in turns[:-1])]
    assert [t.status for t in turns] == ["complete"] * len(turns)
    assert {t.untrainable for t in turns} == {None}
    assert {t.purpose for t in turns} == {"main"}
    for (prompt, ids, _), (longer, _, _) in itertools.pairwise(stored):
        assert longer[: len(prompt) + len(ids)] == prompt + ids
    # The logprobs are the model's own (T5), computed again by other code on the stored sequence.
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    whole = stored[-1][0] + stored[-1][1]
    with torch.no_grad():
        logits = model(torch.tensor([whole])).logits[0].log_softmax(-1)
    for prompt, ids, logprobs in stored:
        again = [float(logits[len(prompt) + i - 1, token]) for i, token in enumerate(ids)]
        assert again == pytest.approx(logprobs, abs=1e-3)


async def test_a_group_in_parallel_keeps_its_sessions_apart(proxy: Proxy, mini: Path, tmp_path: Path) -> None:
    """Four runs of one task send the same first request at once; each is its own session and its own samples."""
    task = load_tasks(TASKS)[0]
    names = [f"group-{k}" for k in range(4)]
    runs = await asyncio.gather(*(run_mini(mini, proxy, task, name, tmp_path / name) for name in names))
    assert [code for code, _ in runs] == [0] * 4, runs
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        sessions = [reader.session(name) for name in names]
        chains = [reader.turns(session) for session in sessions]
        assert all(turn.parent_id is None for chain in chains for turn in chain[:1])
        assert all(turn.parent_id is not None for chain in chains for turn in chain[1:])
        assert len({tuple(reader.prompt_ids(chain[0])) for chain in chains}) == 1
