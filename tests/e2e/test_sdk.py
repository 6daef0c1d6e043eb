"""The official SDKs, Python and npm, through the proxy by environment alone, on real vLLM.

Each client asks the same things: text, tools, each streamed and not; a forced call; a structured answer; a length
limit; a token count; a list of models; a bad request. It prints what it got, and that is held against the record.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from replay.reader import Reader
from replay.store import Store
from tests.e2e.wiretap import Wiretap
from tests.proxy import Proxy

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module")]

CLIENTS = Path(__file__).parent / "clients"


def check(proxy: Proxy, wiretap: Wiretap, session: str, printed: str) -> None:
    """`printed` ends with one JSON line: calls (what each reply said), then counted, models, refused."""
    got: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        turns = reader.turns(reader.session(session))
        stored = [reader.sampled(turn) for turn in turns]
        replied = [reader.reply(turn) or {} for turn in turns]
    assert [(c.ids, c.logprobs) for c in wiretap.completions] == [
        (ids, pytest.approx(logprobs, abs=1e-6)) for ids, logprobs in stored
    ]
    assert len(got["calls"]) == len(turns) == 7
    for call, turn, reply, (ids, _) in zip(got["calls"], turns, replied, stored, strict=True):
        assert turn.status == "complete"
        assert call["completion"] == len(ids)
        assert call["prompt"] == turn.prompt_length
        assert (call["text"] or "") == reply["content"]
        assert [json.loads(a) for a in call["arguments"]] == [
            json.loads(c["arguments"]) for c in reply.get("tool_calls", ())
        ]
    forced, structured, cut = got["calls"][4:]
    assert list(json.loads(forced["arguments"][0])) == ["command"]
    assert set(json.loads(structured["text"])) == {"answer"}
    assert cut["completion"] == 2
    assert [turn.untrainable for turn in turns] == [None] * 4 + ["constrained decoding"] * 2 + [None]
    assert got["counted"] in (None, got["calls"][0]["prompt"])
    assert got["models"]
    assert got["refused"] == 400


@pytest.mark.parametrize("sdk", ["openai_chat", "openai_responses", "anthropic", "google"])
async def test_python(proxy: Proxy, wiretap: Wiretap, sdk: str) -> None:
    del wiretap.completions[:]
    code, out = await proxy.run(sys.executable, str(CLIENTS / f"{sdk}.py"), session=f"python-{sdk}")
    assert code == 0, f"{out}\n{proxy.log.read_text()[-3000:]}"
    check(proxy, wiretap, f"python-{sdk}", out)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Node that honours HTTPS_PROXY (24 or newer), with the SDKs beside the scripts."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("npm")
    packages = ["node@26", "openai@6", "@anthropic-ai/sdk", "@google/genai"]
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--silent", *packages], cwd=folder, check=True, timeout=300
    )
    for script in CLIENTS.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder


@pytest.mark.network
@pytest.mark.parametrize("sdk", ["openai_chat", "openai_responses", "anthropic", "google"])
async def test_npm(proxy: Proxy, wiretap: Wiretap, node: Path, sdk: str) -> None:
    del wiretap.completions[:]
    program = str(node / "node_modules" / ".bin" / "node")
    code, out = await proxy.run(program, str(node / f"{sdk}.mjs"), session=f"npm-{sdk}")
    assert code == 0, f"{out}\n{proxy.log.read_text()[-3000:]}"
    check(proxy, wiretap, f"npm-{sdk}", out)
