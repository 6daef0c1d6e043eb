"""The official SDKs, Python and npm, through the proxy by environment alone, on real vLLM.

Each client asks the same things of the tiny model: text, tools, each streamed and not; a forced call; a structured
answer; a length limit; a token count; a list of models; a bad request. Then it plays a session with a model that knows
it by heart (:mod:`tests.e2e.memorised`): reasoning, two calls of a tool at once, a limit, a stop string, and all of it
sent back. It prints what its SDK made of the replies, and that is held against the record.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from addons.model import ModelFiles
from replay.reader import Reader
from replay.schema import Turn
from replay.store import Store
from tests.e2e import memorised
from tests.e2e.memorised import LINES, SYSTEM, WEATHER
from tests.e2e.wiretap import Wiretap
from tests.proxy import Proxy, mitmdump

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module")]

CLIENTS = Path(__file__).parent / "clients"
SDKS = ["openai_chat", "openai_responses", "anthropic", "google"]
FINISH = {
    "openai_chat": ["tool_calls", "stop", "tool_calls", "stop", "length", "stop", "stop"],
    "openai_responses": [*["completed"] * 4, *["incomplete max_output_tokens"] * 2, "completed"],
    "anthropic": ["tool_use", "end_turn", "tool_use", "end_turn", "max_tokens", "stop_sequence END", "end_turn"],
    "google": [*["STOP"] * 4, "MAX_TOKENS", "STOP", "STOP"],
}
"""How each dialect says that the reply has ended. Responses has no stop strings: a limit ends that reply instead."""


def said(sdk: str) -> list[tuple[str, str, list[str]]]:
    """What the model says to each of LINES: reasoning, text, and the cities it asks for."""
    end = "END" if sdk == "openai_responses" else ""
    return [
        ("I will look.", "", ["Bern"]),
        ("Good.", "It is sunny in Bern.", []),
        ("I will look.", "", ["Rome", "Oslo"]),
        ("Both.", "Rome is hot. Oslo is cold.", []),
        ("A long story", "", []),
        ("Go.", f"Once there was a fox {end}", []),
        ("Done.", "Bye.", []),
    ]


@dataclass
class Recorded:
    """A session of the record: its turns, what each sampled, and what was read out of that."""

    turns: list[Turn]
    prompts: list[list[int]]
    sampled: list[tuple[list[int], list[float]]]
    replies: list[dict[str, Any]]


def recorded(proxy: Proxy, session: str) -> Recorded:
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        turns = list(reader.turns(reader.session(session)))
        return Recorded(
            turns,
            [reader.prompt_ids(turn) for turn in turns],
            [reader.sampled(turn) for turn in turns],
            [reader.reply(turn) or {} for turn in turns],
        )


def check_calls(got: dict[str, Any], record: Recorded, wiretap: Wiretap) -> None:
    """What the SDK made of the replies is what is stored, and that is what vLLM sampled."""
    assert len(wiretap.completions) == len(got["calls"]) == len(record.turns) == 7
    for seen, turn, prompt, (ids, logprobs) in zip(
        wiretap.completions, record.turns, record.prompts, record.sampled, strict=True
    ):
        assert turn.status == "complete"
        assert seen.prompt == seen.prompt_as_seen == prompt
        # After a stop string the gateway hangs up, and the witness may have heard more than it.
        heard = len(ids) if turn.finish == "stop_sequence" else None
        assert seen.ids[:heard] == ids
        assert seen.logprobs[:heard] == pytest.approx(logprobs, abs=1e-6)
    for call, turn, reply, (ids, _) in zip(got["calls"], record.turns, record.replies, record.sampled, strict=True):
        assert call["completion"] == len(ids)
        assert call["prompt"] == turn.prompt_length
        assert (call["text"] or "") == reply["content"]
        assert call["reasoning"] == reply.get("reasoning", "")
        assert [(name, json.loads(arguments)) for _, name, arguments in call["calls"]] == [
            (c["name"], json.loads(c["arguments"])) for c in reply.get("tool_calls", ())
        ]


def check_plain(proxy: Proxy, wiretap: Wiretap, session: str, got: dict[str, Any]) -> None:
    record = recorded(proxy, session)
    check_calls(got, record, wiretap)
    forced, structured, cut = got["calls"][4:]
    assert list(json.loads(forced["calls"][0][2])) == ["command"]
    assert set(json.loads(structured["text"])) == {"answer"}
    assert cut["completion"] == 2
    assert [turn.untrainable for turn in record.turns] == [None] * 4 + ["constrained decoding"] * 2 + [None]
    assert got["counted"] in (None, got["calls"][0]["prompt"])
    assert got["models"]
    assert got["refused"] == 400


def check_session(known: Known, sdk: str, session: str, got: dict[str, Any]) -> None:
    record = recorded(known.proxy, session)
    check_calls(got, record, known.wiretap)
    assert record.prompts[-1] + record.sampled[-1][0] == memorised.lesson(known.model)[0]
    assert [turn.parent_id for turn in record.turns] == [None, *(turn.id for turn in record.turns[:-1])]
    assert [turn.ignored_fields for turn in record.turns] == [[]] * 7
    assert [" ".join(call["finish"]) for call in got["calls"]] == FINISH[sdk]
    for call, (reasoning, text, cities) in zip(got["calls"], said(sdk), strict=True):
        assert (call["reasoning"], call["text"] or "") == (reasoning, text)
        assert [(name, json.loads(args)) for _, name, args in call["calls"]] == [
            ("weather", {"city": c}) for c in cities
        ]
    ids = {id_ for call in got["calls"] for id_, _, _ in call["calls"]}
    assert len(ids) == 3
    assert all(ids)


async def run(proxy: Proxy, session: str, *command: str) -> dict[str, Any]:
    """What the client printed, in its last line."""
    code, out = await proxy.run(*command, session=session)
    assert code == 0, f"{out}\n{proxy.log.read_text()[-3000:]}"
    printed: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return printed


@dataclass
class Known:
    """A proxy before a tapped vLLM, whose model knows a session by heart."""

    model: ModelFiles
    wiretap: Wiretap
    proxy: Proxy

    def script(self, sdk: str, *, stream: bool) -> str:
        """The session, for a client to play."""
        lines: list[dict[str, Any]] = [{"ask": line.ask, "limit": line.cut or 100, "stop": line.stop} for line in LINES]
        if sdk == "openai_responses":
            for line, asked in zip(LINES, lines, strict=True):
                if line.stop:
                    asked["limit"] = len(memorised.sampled(self.model, line))
        tool = {"name": WEATHER.name, "description": WEATHER.description, "parameters": WEATHER.parameters}
        return json.dumps({"system": SYSTEM.content, "tool": tool, "lines": lines, "stream": stream})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def known(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Known]:
    folder = tmp_path_factory.mktemp("known")
    model = memorised.make(folder / "model")
    with memorised.served(model, folder) as url:
        async for wiretap in Wiretap(url).run():
            async with mitmdump(folder, wiretap.url) as proxy:
                yield Known(model, wiretap, proxy)


@pytest.mark.parametrize("sdk", SDKS)
async def test_python(proxy: Proxy, wiretap: Wiretap, sdk: str) -> None:
    del wiretap.completions[:]
    got = await run(proxy, f"python-{sdk}", sys.executable, str(CLIENTS / f"{sdk}.py"))
    check_plain(proxy, wiretap, f"python-{sdk}", got)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("sdk", SDKS)
async def test_python_session(known: Known, sdk: str, stream: bool) -> None:
    del known.wiretap.completions[:]
    session = f"python-{sdk}-{stream}"
    script = known.script(sdk, stream=stream)
    got = await run(known.proxy, session, sys.executable, str(CLIENTS / f"{sdk}.py"), script)
    check_session(known, sdk, session, got)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Node that honours HTTPS_PROXY (24 or newer), with the SDKs beside the scripts."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("npm")
    packages = ["node@26", "openai", "@anthropic-ai/sdk", "@google/genai"]
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--silent", *packages], cwd=folder, check=True, timeout=300
    )
    for script in CLIENTS.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder


@pytest.mark.network
@pytest.mark.parametrize("sdk", SDKS)
async def test_npm(proxy: Proxy, wiretap: Wiretap, node: Path, sdk: str) -> None:
    del wiretap.completions[:]
    program = str(node / "node_modules" / ".bin" / "node")
    got = await run(proxy, f"npm-{sdk}", program, str(node / f"{sdk}.mjs"))
    check_plain(proxy, wiretap, f"npm-{sdk}", got)


@pytest.mark.network
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("sdk", SDKS)
async def test_npm_session(known: Known, node: Path, sdk: str, stream: bool) -> None:
    del known.wiretap.completions[:]
    session, program = f"npm-{sdk}-{stream}", str(node / "node_modules" / ".bin" / "node")
    script = known.script(sdk, stream=stream)
    got = await run(known.proxy, session, program, str(node / f"{sdk}.mjs"), script)
    check_session(known, sdk, session, got)
