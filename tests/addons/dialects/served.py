"""A gateway over a scripted engine, in a thread of its own, for tests that are not async (hypothesis, sync SDKs).

The model has a byte-level vocabulary, so a text can be cut anywhere: `Served.spell` gives the ids of a text cut at
given bytes.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from addons.decode import Vocabulary
from addons.model import ModelFiles
from replay.reader import Reader
from replay.schema import Turn
from replay.store import Store
from tests.addons.kit import chatml
from tests.conftest import Rig, rigged
from tests.scripted_engine import Script, ScriptedEngine

END = "<|im_end|>"
TOKEN = "t"
"""What the interceptor and the gateway share: who sends it may name a provider's host."""
_session = itertools.count()


@dataclass(frozen=True)
class Answered:
    """What came of one call. `prompt` is the text of its prompt, `sent` what the engine was sent, {} if nothing."""

    response: httpx.Response
    session: str
    turns: list[Turn]
    prompt: str
    sent: dict[str, Any]

    @property
    def turn(self) -> Turn:
        """The one turn it made."""
        assert self.response.status_code == 200, self.response.text
        return self.turns[-1]

    @property
    def said(self) -> Any:
        """The body of the reply."""
        return self.response.json()

    def refused(self, status: int = 400) -> str:
        """The message of the error that it must be."""
        assert self.response.status_code == status, self.response.text
        message: str = self.said["error"]["message"]
        return message


@dataclass
class Served:
    """A running gateway."""

    model: ModelFiles
    rig: Rig
    reader: Reader
    http: httpx.Client
    _byte_ids: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        vocabulary = Vocabulary(self.model)
        for number in range(self.model.tokenizer.backend_tokenizer.get_vocab_size(with_added_tokens=False)):
            if len(spelling := vocabulary.spelling(number)) == 1:
                self._byte_ids[spelling[0]] = number
        assert len(self._byte_ids) == 256

    @property
    def engine(self) -> ScriptedEngine:
        """The engine behind it."""
        return self.rig.engine

    def spell(self, text: str, cuts: Sequence[int] | None = None) -> list[int]:
        """The ids of a text: the tokenizer's own, or those of the pieces between `cuts` (byte offsets).

        A piece that is no whole characters is spelt byte by byte.
        """
        if cuts is None:
            return self.engine.encode(text)
        raw = text.encode()
        ids: list[int] = []
        for start, end in pairwise([0, *sorted({cut for cut in cuts if 0 < cut < len(raw)}), len(raw)]):
            try:
                ids += self.engine.encode(raw[start:end].decode())
            except UnicodeDecodeError:
                ids += [self._byte_ids[byte] for byte in raw[start:end]]
        return ids

    def bytewise(self, text: str) -> list[int]:
        """The ids of a text with each byte a token, markup too."""
        return [self._byte_ids[byte] for byte in text.encode()]

    def say(self, ids: Sequence[int], *, size: int = 1, end: bool = True, **more: Any) -> list[int]:
        """Queue a completion of these ids, in chunks of `size`; with the end of the turn or without."""
        sampled = [*ids, *(self.engine.encode(END) if end else [])]
        pieces = [sampled[i : i + size] for i in range(0, len(sampled), size)] or [[]]
        self.engine.scripts.append(Script(pieces, **more))
        return sampled

    def post(self, path: str, body: Any, session: str, **headers: str) -> httpx.Response:
        """One request."""
        return self.http.post(path, json=body, headers={"session-id": session, **headers})

    def call(
        self, path: str, body: Any, says: str = "ok", *, session: str | None = None, host: str | None = None,
        **script: Any,
    ) -> Answered:  # fmt: skip
        """One model call, at `host` or at the one that the path tells; the model says `says`."""
        session = session or f"call{next(_session)}"
        self.say(self.spell(says), **script)
        before = len(self.engine.requests)
        headers = {} if host is None else {"x-harnesstap-token": TOKEN, "x-harnesstap-host": host}
        response = self.post(path, body, session, **headers)
        turns = self.turns(session)
        sent = self.engine.requests[before] if len(self.engine.requests) > before else {}
        if not sent:
            self.engine.scripts.pop()
        prompt = self.model.tokenizer.decode(sent["prompt"]) if sent else ""
        return Answered(response, session, turns, str(prompt), sent)

    def get(self, path: str, host: str) -> httpx.Response:
        """One request of a provider's host that is no model call."""
        return self.http.get(path, headers={"x-harnesstap-token": TOKEN, "x-harnesstap-host": host})

    def turns(self, session: str) -> list[Turn]:
        """The turns of a session, by the name its caller gave it, in order."""
        found = self.reader.sessions(prefix=f"session-id.{session}.")
        return self.reader.turns(found[0]) if found else []


@contextmanager
def serving(folder: Path, **config: Any) -> Iterator[Served]:
    """Run a gateway until the context ends; `config` are GatewayConfig's."""
    model = chatml(folder / "model")
    up: list[Rig] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        async with rigged(model, folder, ScriptedEngine(model), token=TOKEN, **config) as rig:
            up.append(rig)
            ready.set()
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(main())
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=run, name="gateway")
    thread.start()
    ready.wait(60)
    assert up, "the gateway did not start"
    store = Store.open(f"sqlite:///{folder / 'record.db'}")
    try:
        with httpx.Client(base_url=up[0].url, timeout=30, trust_env=False) as http:
            yield Served(model, up[0], Reader(store), http)
    finally:
        store.close()
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
