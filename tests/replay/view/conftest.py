"""A record that has everything the pages show, said by somebody who wants scripts to run in them."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from replay.records import NewBatch, NewBatchRow
from replay.store import Store
from replay.view.server import application

TOKEN = "a-token-of-the-tests"
EVIL = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>\"'>\x1b[2J\ud83d"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>window.pwned = 1</script></svg>"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 6, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress((b"\0" + b"\xc0\x40\x20" * 8) * 6))
    + _chunk(b"IEND", b"")
)
"""Eight pixels wide, six high."""


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Byte-level: one id a byte."""
    vocabulary = {char: index for index, char in enumerate(sorted(ByteLevel.alphabet()))}
    made = Tokenizer(BPE(vocabulary, []))
    made.pre_tokenizer = ByteLevel(add_prefix_space=False)
    made.decoder = ByteLevelDecoder()
    return made


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def record(make: Any, tokenizer: Tokenizer) -> dict[str, int]:
    """Ids of sessions by a short name: `evil`, `branch`, and the group `a/<b>` of `g0`, `g1`, `g2`, and a batch."""
    evil = make.session(f"evil/..?#%2F{EVIL[:-1]}", harness="<b>h</b>", harness_version="&1", task=EVIL[:-1],
                        group="a/<b>&c", metadata={"<i>": EVIL[:-1]})  # fmt: skip
    hostile = {"role": "user", "content": EVIL}
    calls = [{"id": EVIL, "name": "</td><script>", "arguments": '{"x": "' + EVIL[:20] + '"}'}]
    reply = {"role": "assistant", "content": EVIL, "reasoning": EVIL, "tool_calls": calls, "malformed": True}
    text = tokenizer.encode("<script>").ids
    first = make.turn(
        evil,
        make.end(text, logprobs=[-0.01, -0.2, -1.5, -3.0, -7.0, -0.01, -0.01, -0.01], reply=reply, finish="tool_calls"),
        messages=[hostile], prompt_suffix=text, prompt_length=8, thread=EVIL[:20],
        tools=[{"name": "<script>", "description": EVIL, "parameters": {"<b>": 1}}],
        request={"model": EVIL[:8], "messages": [hostile], "long": "y" * 9000}, route="/v1/<script>",
    )  # fmt: skip
    shown = [
        {"sha256": digest(PNG), "media_type": "image/png", "offset": 16, "length": 1},
        {"sha256": digest(SVG), "media_type": "image/svg+xml", "offset": 17, "length": 1},
    ]
    media = [
        {"start": 7, "end": 14, "kind": "image", "media_type": "image/png", "sha256": digest(PNG)},
        {"start": 15, "end": 22, "kind": "image", "media_type": "image/svg+xml", "sha256": digest(SVG)},
    ]
    second = make.turn(
        evil, parent_id=first, prompt_suffix=[65, 66, 67], prompt_length=19, images=shown,
        files={digest(PNG): PNG, digest(SVG): SVG}, drift_detail=EVIL[:-1],
        messages=[{"role": "tool", "tool_call_id": EVIL, "content": "Look: [image] [image] done", "media": media}],
    )  # fmt: skip
    make.turn(evil, parent_id=first, prompt_suffix=[65], prompt_length=17, retry_of=second)
    make.turn(evil, purpose="subagent", drift_reason="subagent", drift_detail="<script>x</script>")
    make.turn(evil, drift_reason="compaction", drift_detail="a summary")
    failed = make.end((), status="failed", finish=None, reply=None, error={"message": EVIL[:-1], "kind": "<x>"})
    make.turn(evil, failed, drift_reason="harness_rewrote")
    make.turn(evil, make.end([1], untrainable=f"because {EVIL[:-1]}", reply=None), drift_reason="template")
    branch = make.session("branch")
    make.turn(branch, make.end(text, untrainable="re-served from turn 1"), replays=first, prompt_suffix=text,
              prompt_length=8)  # fmt: skip
    found = {"evil": evil, "branch": branch}
    rows = []
    for number, reward in enumerate((1.0, 0.0, -0.5)):
        name = f"g{number}"
        found[name] = make.session(name, group="a/<b>&c", task="sum")
        rows.append(NewBatchRow(turn_id=make.turn(found[name]), advantage=reward - 0.2, info={"trained": 2}))
        make.recorder.score(name, reward, parts={"<b>tests": reward}).result()
    rows.append(NewBatchRow(turn_id=second, advantage=0.0, info={"skipped": "<script>no"}))
    for step in range(3):
        make.recorder.record_batch(
            NewBatch(
                created_at=1e9 + step, query={"method": "grpo", "groups": ["a/<b>&c"], "why": "<script>"}, seed=1,
                weight_version=str(step), rows=rows, checkpoint="/<b>",
                stats={"entropy": 0.5 - step / 10, "loss": -0.1, "odd": "<script>", "nothing": None},
            )
        ).result()  # fmt: skip
    return found


@pytest.fixture
async def stranger(store: Store, tokenizer: Tokenizer) -> AsyncIterator[TestClient[Any, Any]]:
    """A client that has not shown the token yet."""
    async with TestClient(TestServer(application(store, TOKEN, tokenizer))) as client:
        yield client


@pytest.fixture
async def client(stranger: TestClient[Any, Any]) -> TestClient[Any, Any]:
    """A client whose cookie is set."""
    answer = await stranger.get("/sessions", params={"token": TOKEN})
    assert answer.status == 200
    return stranger
