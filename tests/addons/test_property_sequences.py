"""Random sessions over published tokenizers and chat templates: one sequence each (T2), nothing forged (T4).

What the model samples is spelt one character at a time, as no tokenizer would do it: were any of it tokenised again, it
would show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addons.conversation import Conversation, Message
from addons.habits import TemplateError
from addons.model import ModelFiles
from addons.prompts import Prompts
from tests.addons.kit import BASH
from tests.addons.real_models import real_model, templates_of, tokenizer_names
from tests.addons.talks import Step, Talk, sessions


@pytest.mark.parametrize("name", tokenizer_names())
def test_an_appending_session_is_one_sequence(name: str, tmp_path: Path) -> None:
    for template, source in templates_of(name).items():
        model = real_model(tmp_path / template, name, source)
        play_at_random(model, Prompts(model))


def play_at_random(model: ModelFiles, prompts: Prompts) -> None:
    habits = prompts.probe().habits

    @settings(max_examples=15, deadline=None)
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
