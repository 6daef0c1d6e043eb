"""Random sessions over published tokenizers and chat templates: one sequence each (T2), nothing forged (T4).

What the model samples is spelt one character at a time, as no tokenizer would do it: were any of it tokenised again, it
would show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addons.caller import HOST_HEADER, SESSION_HEADER, TOKEN_HEADER
from addons.config import GatewayConfig
from addons.conversation import Conversation, Message
from addons.habits import TemplateError
from addons.model import ModelFiles
from addons.prompts import Prompts
from addons.service import Service, ServiceOptions
from replay.reader import Reader
from replay.store import Store
from tests.addons.kit import BASH
from tests.addons.real_models import real_model, templates_of, tokenizer_names
from tests.addons.talks import Step, Talk, content, sessions
from tests.scripted_engine import Script, ScriptedEngine


@pytest.mark.parametrize("name", tokenizer_names())
def test_an_appending_session_is_one_sequence(name: str, tmp_path: Path) -> None:
    for template, source in templates_of(name).items():
        model = real_model(tmp_path / template, name, source)
        play_at_random(model, Prompts(model))


def play_at_random(model: ModelFiles, prompts: Prompts) -> None:
    habits = prompts.probe().habits

    @settings(max_examples=10, deadline=None)
    @given(talk=sessions(tools=habits.tool_calls and habits.tool_results), number=st.integers(0, 9))
    def check(talk: Talk, number: int) -> None:
        Session(model, prompts, number).play(talk)

    check()


class Session:
    """A harness, a gateway and a model in one: plays a talk turn by turn, and looks at each prompt."""

    def __init__(self, model: ModelFiles, prompts: Prompts, number: int) -> None:
        self.model, self.prompts = model, prompts
        stops = sorted(model.stop_ids)
        self.stop = stops[number % len(stops)]
        self.tools = (BASH,)
        self.spans: list[tuple[int, list[int]]] = []

    def play(self, talk: Talk) -> None:
        messages = list(talk.opening)
        try:
            prompt = self.prompts.first(Conversation(tuple(messages), self.tools))
        except TemplateError:
            return
        for step in talk.turns:
            sampled = self.sample(step)
            self.spans.append((len(prompt), sampled))
            messages += [step.reply, *step.after]
            suffix = self.follow(messages, prompt, sampled, step)
            if suffix is None:
                return
            prompt = [*prompt, *sampled, *suffix]
        for start, ids in self.spans:
            assert prompt[start : start + len(ids)] == ids

    def follow(
        self, messages: Sequence[Message], prompt: list[int], sampled: list[int], step: Step
    ) -> list[int] | None:
        """The suffix of the next prompt; None where the template itself cannot have the conversation."""
        conversation = Conversation(tuple(messages), self.tools)
        try:
            whole = self.prompts.first(conversation)
        except TemplateError as error:
            assert "single tool-calls at once" in str(error)  # noqa: PT017 - Llama 3's; nothing is to be compared with
            return None
        extension = self.prompts.extend(conversation, prompt, sampled, step.reply, step.after)
        tail = extension.suffix
        if extension.closed_reasoning:
            marks = self.prompts._bridge.reasoning
            assert marks is not None
            assert marks.closes in tail
            tail = tail[next(i for i, n in enumerate(tail) if n in self.prompts._encoder.special_ids) :]
        if self.prompts.probe().way != "harmony" or all(message.role == "user" for message in step.after):
            assert whole[len(whole) - len(tail) :] == tail, "not the end of the template's own rendering"
        assert self.structure(extension.suffix) == self.structure(self.harmless(conversation, prompt, sampled, step))
        return extension.suffix

    def sample(self, step: Step) -> list[int]:
        """The reply's text and markup in the least usual spelling, ended as the step says."""
        reply, marks = step.reply, self.prompts._bridge.reasoning
        ids = self.spelt(f"{reply.content}{[(call.name, call.arguments) for call in reply.tool_calls] or ''}")
        if marks is not None and reply.reasoning:
            ids = [marks.opens, *self.spelt(reply.reasoning), marks.closes, *ids]
        if step.end == "length":
            return ids[: int(len(ids) * step.keep)]
        return [*ids, self.stop] if step.end == "stop" else ids

    def spelt(self, text: str) -> list[int]:
        return [n for character in text for n in self.model.tokenizer.encode(character, add_special_tokens=False)]

    def structure(self, ids: Sequence[int]) -> list[int]:
        return [number for number in ids if number in self.prompts._encoder.structural_ids]

    def harmless(self, conversation: Conversation, prompt: list[int], sampled: list[int], step: Step) -> list[int]:
        """The suffix were all new text plain words."""
        new = [replace(message, content="x" if message.content.strip() else "") for message in step.after]
        before = conversation.messages[: len(conversation.messages) - len(new)]
        plain = replace(conversation, messages=(*before, *new))
        return self.prompts.extend(plain, prompt, sampled, step.reply, new).suffix


# The same through the whole gateway: what the harness gets back is what it sends again, and sometimes it edits that.


@dataclass(frozen=True)
class Exchange:
    """The harness says something, the model replies. `edited`: a message of its history that it edits before that."""

    ask: str
    says: str
    ended: bool
    edited: int | None


exchanges = st.lists(
    st.builds(Exchange, content, content, st.booleans(), st.none() | st.integers(0, 5)), min_size=1, max_size=4
)


@pytest.mark.parametrize("name", tokenizer_names("qwen3", "gemma3", "llama3_1", "deepseek_v3"))
def test_through_the_gateway(name: str, tmp_path: Path) -> None:
    for template, source in list(templates_of(name).items())[-1:]:
        model = real_model(tmp_path / template, name, source)
        play_through_gateway(model, tmp_path)


def play_through_gateway(model: ModelFiles, folder: Path) -> None:
    with asyncio.Runner() as runner:
        gateway = Gateway(model, folder)
        runner.run(gateway.start())

        @settings(max_examples=6, deadline=None)
        @given(script=exchanges)
        def check(script: list[Exchange]) -> None:
            runner.run(gateway.play(script))

        try:
            check()
        finally:
            runner.run(gateway.stop())


class Gateway:
    """A gateway over a scripted vLLM, and a harness that speaks Messages to it; each script is a session."""

    def __init__(self, model: ModelFiles, folder: Path) -> None:
        self.model = model
        self._engine = ScriptedEngine(model)
        self._running = self._engine.run()
        self._url = f"sqlite:///{folder / 'record.db'}"
        self._number = 0

    async def start(self) -> None:
        await anext(self._running)
        # Whatever these templates show of tools: all that is said here is text.
        config = GatewayConfig(token="token")
        options = ServiceOptions(engine=self._engine.url, store=self._url, parser="text", config=config)
        self._service = Service(options)
        self._port = await self._service.start()
        self._store = Store.open(self._url)
        self._http = aiohttp.ClientSession()

    async def stop(self) -> None:
        await self._http.close()
        self._store.close()
        await self._service.stop()
        await anext(self._running, None)

    async def play(self, script: list[Exchange]) -> None:
        self._number += 1
        name = f"run-{self._number}"
        messages: list[dict[str, Any]] = []
        scripted: list[list[int]] = []
        roots = 0
        for exchange in script:
            if edits := exchange.edited is not None and messages:
                at = (exchange.edited or 0) % len(messages)
                messages[at] = {"role": messages[at]["role"], "content": f"edited before turn {len(scripted)}"}
            roots += bool(edits) or not scripted
            messages.append({"role": "user", "content": f"asked: {exchange.ask}"})
            scripted.append(self.script(exchange))
            messages.append({"role": "assistant", "content": await self.ask(name, messages)})
        reader = Reader(self._store)
        turns = reader.turns(reader.session(name))
        assert [reader.sampled(turn)[0] for turn in turns] == scripted
        prompts = {turn.id: reader.prompt_ids(turn) for turn in turns}
        kept = {turn.id: prompts[turn.id] + reader.sampled(turn)[0] for turn in turns}
        for turn in turns:
            if turn.parent_id is not None:
                assert prompts[turn.id][: len(kept[turn.parent_id])] == kept[turn.parent_id]
        assert turns[0].drift_reason == "first"
        assert sum(turn.parent_id is None for turn in turns) == roots
        assert "template" not in {turn.drift_reason for turn in turns}

    def script(self, exchange: Exchange) -> list[int]:
        """Queue a reply in the least usual spelling; its ids."""
        text = f"said: {exchange.says}"
        ids = [n for character in text for n in self.model.tokenizer.encode(character, add_special_tokens=False)]
        ids += [min(self.model.stop_ids)] * exchange.ended
        script = Script([[number] for number in ids], finish="stop" if exchange.ended else "length")
        self._engine.scripts.append(script)
        return ids

    async def ask(self, name: str, messages: list[dict[str, Any]]) -> Any:
        body = {"model": "m", "max_tokens": 1000, "messages": messages}
        headers = {TOKEN_HEADER: "token", SESSION_HEADER: name, HOST_HEADER: "api.anthropic.com"}
        url = f"http://127.0.0.1:{self._port}/v1/messages"
        async with self._http.post(url, json=body, headers=headers) as response:
            reply = await response.json()
            assert response.status == 200, reply
            return reply["content"]
