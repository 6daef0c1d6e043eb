"""A session with a seed: each of its calls has one of its own, the same whenever the session runs again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from addons.caller import SESSION_HEADER, TOKEN_HEADER
from addons.model import ModelFiles
from replay.records import NewSession
from replay.seeds import derived
from replay.writer import Recorder
from tests.conftest import Rig, rigged


@pytest.fixture
async def rig(tiny: ModelFiles, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(tiny, tmp_path, token="token") as running:
        yield running


def seeded(rig: Rig, name: str, seed: int | None) -> None:
    with Recorder(rig.store) as recorder:
        recorder.open_session(NewSession(name=name, metadata={"seed": seed})).result()


async def ask(rig: Rig, session: str, *, seed: int | None = None) -> int | None:
    """The seed that vLLM was sent for one more call of `session`, which asks for `seed` itself."""
    rig.engine.say("yes")
    headers = {SESSION_HEADER: session, TOKEN_HEADER: "token"}
    async with AsyncOpenAI(base_url=f"{rig.url}/v1", api_key="k", default_headers=headers) as client:
        extra = {} if seed is None else {"extra_body": {"seed": seed}}
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "go"}], **extra)  # type: ignore[call-overload]
    sent = rig.engine.requests[-1].get("seed")
    (turn,) = rig.reader.turns(rig.reader.session(session))[-1:]
    assert (turn.sampling_sent or {}).get("seed") == sent, "and the record has it"
    return None if sent is None else int(sent)


async def test_every_call_has_its_own_and_the_same_session_has_the_same(rig: Rig) -> None:
    for name in ("one", "other"):
        seeded(rig, name, 17)
    seeded(rig, "third", 18)
    one = [await ask(rig, "one") for _ in range(3)]
    assert one == [derived(17, at) for at in range(3)]
    assert [await ask(rig, "other") for _ in range(3)] == one, "though the prompts are the same three times"
    assert not {await ask(rig, "third") for _ in range(3)} & set(one)


async def test_what_the_harness_asks_for_goes_first(rig: Rig) -> None:
    seeded(rig, "s", 17)
    assert await ask(rig, "s", seed=5) == 5
    assert await ask(rig, "s") == derived(17, 1)


async def test_without_a_seed_none_is_sent(rig: Rig) -> None:
    seeded(rig, "s", None)
    assert await ask(rig, "s") is None
    assert await ask(rig, "unopened") is None


async def test_calls_go_on_being_counted_after_a_restart(rig: Rig) -> None:
    seeded(rig, "s", 17)
    assert await ask(rig, "s") == derived(17, 0)
    rig.service.forget()
    assert await ask(rig, "s") == derived(17, 1)
