"""The bridge to the next turn: only the new messages are rendered, and what was sampled stays as it was
sampled.

    next prompt = parent's prompt ids + sampled ids [+ the end of turn, where it was cut off] + ids of the
    tail

Theory of operation. What a template writes after an assistant turn does not depend on what the assistant
said. So a stand-in conversation of constant size is rendered: a user, an assistant whose text (or call
arguments) is a sentinel, then the real new messages. The tail is everything after the token that ends the
assistant's turn, the first stop token after the sentinel. The assistant's real words are never rendered, so
it does not matter whether they parsed.

Where the template ends that turn with no token at all (DeepSeek R1's after one call), the tail is what follows the
text that it writes for the stand-in alone, if there is a token on one side of that place.

A turn that was cut off gets the end that the template gives it. One that was cut off inside its reasoning gets the end
of the reasoning first, as the template writes it: an open `<think>` would put all that follows inside it.

Proof, per call: the same stand-in is rendered once more with a mark in place of each new message's text.
Every mark must come exactly once, in order, after the end of the turn, and the text before that must be the
same in both renderings. Otherwise the template drops, hoists, repeats or reorders a message, and the bridge
refuses rather than guess.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addons.conversation import Message, ToolCall
from addons.encode import Encoder, Escape
from addons.habits import Rendered, TemplateError, rendered_call
from addons.model import ModelError, ModelFiles
from addons.render import ChatTemplate


class BridgeRefused(Exception):
    """Appending cannot be proven right. `reason` says why; the caller renders anew and forks (`template`)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Tail:
    """What the template writes after an assistant turn."""

    close: str
    """The text of the token that ends the turn; not part of `text`. Empty where the template leaves the turn open."""
    text: str
    """Still escaped."""
    stand_in: tuple[Rendered, ...]
    """The conversation it was found with, up to and including the assistant."""
    sentinel: str


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """How a turn's reasoning begins and ends, where one token each does it."""

    opens: int
    closes: int
    end: str
    """All that the template writes between the reasoning and the text."""


class Bridge:
    """Finds tails. One for a template; holds no state between calls.

    Raises ModelError where no stop token ends the turns of the template.
    """

    def __init__(self, model: ModelFiles, template: ChatTemplate, encoder: Encoder) -> None:
        self._template = template
        self._encoder = encoder
        self._stop_ids = model.stop_ids
        self._stops = frozenset(model.token_text(number) for number in model.stop_ids)
        self._check_stops(model)
        self._usual_end = self._find_usual_end()
        self.reasoning = self._find_reasoning()

    def tail(
        self,
        head: Sequence[Rendered],
        assistant: Message,
        new: Sequence[Message],
        escape: Escape,
        tools: Sequence[Rendered] | None,
        variables: Mapping[str, Any],
        opened: Rendered | None = None,
    ) -> Tail:
        """The tail for `new` messages after `assistant`, in a conversation that begins with `head`.

        With `opened` the tail ends inside that message of the assistant's, and not with the generation prompt.
        `head`, `tools`, `variables` and `opened` are escaped already. Raises BridgeRefused.
        """
        real = [escape.tree(message) for message in self.following(assistant, new)]
        nonce = secrets.token_hex(6)
        marks = [f"qm{nonce}x{number}q" for number in range(len(real))]
        marked = [{**message, "content": mark} for message, mark in zip(real, marks, strict=True)]
        sentinel = f"qs{nonce}q"
        refusals: list[str] = []
        for stand_in in self._stand_ins(assistant, escape, sentinel):
            base = (*head, stand_in)
            try:
                if opened is None:
                    text = self._template.render([*base, *real], tools, variables=variables)
                else:
                    text = self._template.open_turn([*base, *real, opened], tools, variables=variables)
                proof = self._template.render([*base, *marked], tools, variables=variables)
            except TemplateError as error:
                refusals.append(f"the template raises: {error}")
                continue
            if sentinel not in text or sentinel not in proof:
                refusals.append("the template drops the assistant's turn")
                continue
            ends = self._usual_end if "tool_calls" in stand_in else self._encoder.special
            close, at = self._turn_end(proof, sentinel, marks, ends)
            if not close:
                at = self._left_open(base, proof, tools, variables)
            _check(proof, marks, at)
            if text[:at] != proof[:at]:
                raise BridgeRefused("what the template writes before the new messages depends on their text")
            return Tail(close, text[at:], base, sentinel)
        raise BridgeRefused("; ".join(dict.fromkeys(refusals)))

    def ends_turn(
        self, tail: Tail, last: int | None, tools: Sequence[Rendered] | None, variables: Mapping[str, Any]
    ) -> bool:
        """Whether the sampled id `last` already ends the turn that `tail` follows.

        True for the closing token itself, and for one that the template writes only at the end of the last
        turn (gpt-oss: `<|return|>` where a turn in the middle ends with `<|end|>`).
        """
        if not tail.close:
            return True
        if last is None:
            return False
        if last == self._encoder.structural[tail.close]:
            return True
        if last not in self._stop_ids:
            return False
        try:
            text = self._template.render(tail.stand_in, tools, generation=False, variables=variables)
        except TemplateError:
            return False
        found = self._encoder.pattern.search(text, text.rfind(tail.sentinel) + len(tail.sentinel))
        return found is not None and self._encoder.structural[found[0]] == last

    def open_end(self, prompt: Sequence[int], sampled: Sequence[int]) -> str:
        """What the template would end the reasoning with, if a turn stopped inside it; else nothing.

        The generation prompt may have begun it.
        """
        if self.reasoning is None:
            return ""
        marks = {self.reasoning.opens: self.reasoning.end, self.reasoning.closes: ""}
        for number in reversed(sampled):
            if number in marks:
                return marks[number]
        for number in reversed(prompt):
            if number in marks:
                return marks[number]
            if number in self._encoder.special_ids:
                break
        return ""

    def following(self, assistant: Message, new: Sequence[Message]) -> list[Rendered]:
        """The new messages, tool results with the names of the calls they answer, by id or else by order."""
        rendered = self._template.messages((assistant, *new) if assistant.tool_calls else new, opening=False)
        if assistant.tool_calls:
            rendered = rendered[1:]
        unanswered = iter(assistant.tool_calls)
        for message in rendered:
            if message["role"] == "tool":
                call = next(unanswered, None)
                if message["name"] == "unknown" and call is not None:
                    message["name"] = call.name
        return rendered

    def _stand_ins(self, assistant: Message, escape: Escape, sentinel: str) -> Iterator[Rendered]:
        empty = None if self._template.habits.null_content else ""
        calls = [(escape.text(call.id), escape.text(call.name)) for call in assistant.tool_calls]
        if calls:
            forms: list[Any] = [{"a": sentinel}, json.dumps({"a": sentinel})]
            if self._template.habits.arguments == "json":
                forms.reverse()
            for form in forms:
                yield _speaking(empty, [rendered_call(*call, form) for call in calls])
            # Templates for one call a turn.
            yield _speaking(empty, [rendered_call(*calls[-1], forms[0])])
        yield _speaking(sentinel, [])

    def _turn_end(self, text: str, sentinel: str, marks: Sequence[str], ends: frozenset[str]) -> tuple[str, int]:
        """The token that ends the turn of the (last) sentinel, and where the text after it begins.

        It need not be a stop token: GLM ends a turn with whatever begins the next. Then it is one of `ends`, for
        a turn with calls only what also ends a turn without (DeepSeek R1's template leaves some of those open). Empty
        where there is none.
        """
        start = text.rfind(sentinel) + len(sentinel)
        limit = min((place for mark in marks if (place := text.find(mark, start)) >= 0), default=len(text))
        found = [(match.start(), match[0]) for match in self._encoder.pattern.finditer(text, start, limit)]
        for kind in (self._stops, ends):
            for place, token in found:
                if token in kind:
                    return token, place + len(token)
        return "", limit

    def _left_open(
        self,
        base: Sequence[Rendered],
        proof: str,
        tools: Sequence[Rendered] | None,
        variables: Mapping[str, Any],
    ) -> int:
        """Where a turn ends that the template ends with no token: where it would end, were it the last.

        A token must be on one side of that place, or the two sides could merge into other ids. Raises BridgeRefused.
        """
        try:
            alone = self._template.render(base, tools, generation=False, variables=variables)
        except TemplateError:
            alone = ""
        apart = alone.endswith(tuple(self._encoder.structural)) or self._encoder.pattern.match(proof, len(alone))
        if alone and proof.startswith(alone) and apart:
            return len(alone)
        raise BridgeRefused("the template ends this turn of the assistant's with no special token")

    def _check_stops(self, model: ModelFiles) -> None:
        """Raise ModelError where the template ends a turn with tokens none of which would stop the sampling."""
        try:
            text = self._template.render([{"role": "user", "content": "U"}, _speaking("qaq", [])], generation=False)
        except TemplateError:
            return
        ends = [
            token for token in self._encoder.pattern.findall(text, text.rfind("qaq")) if token in self._encoder.special
        ]
        if ends and self._stops.isdisjoint(ends):
            wanted = {token: self._encoder.structural[token] for token in ends}
            raise ModelError(
                f"{model.name}: its chat template ends a turn with {' '.join(ends)}, where sampling would not stop; it "
                f"stops at {' '.join(sorted(self._stops))}. Add one of {wanted} to eos_token_id in "
                "generation_config.json"
            )

    def _find_reasoning(self) -> ReasoningMarks | None:
        """The tokens around a turn's reasoning; None where it has none of its own (Harmony's begin any message)."""
        key = self._template.habits.reasoning
        if key is None:
            return None
        calling = Message("assistant", tool_calls=(ToolCall("call00001", "f", ""),))
        for turn in reversed(list(self._stand_ins(calling, self._encoder.escape(), "qaq"))):
            try:
                text = self._template.render([{"role": "user", "content": "U"}, {**turn, key: "qrq"}], generation=False)
            except TemplateError:
                continue
            before, _, after = text.partition("qrq")
            opening, closing = self._encoder.pattern.findall(before), self._encoder.pattern.search(after)
            if not opening or closing is None or "qaq" not in after[closing.end() :]:
                continue
            opens, closes, rest = opening[-1], closing[0], after[closing.end() :]
            if opens in (closes, *self._encoder.pattern.findall(rest)) or closes in self._stops:
                return None
            end = after[: closing.end()] + rest[: len(rest) - len(rest.lstrip())]
            return ReasoningMarks(self._encoder.structural[opens], self._encoder.structural[closes], end)
        return None

    def _find_usual_end(self) -> frozenset[str]:
        """The special token that ends a turn of plain text in mid-conversation."""
        talk = [_speaking("qaq", []), {"role": "user", "content": "quq"}]
        try:
            text = self._template.render([{"role": "user", "content": "U"}, *talk])
        except TemplateError:
            return frozenset()
        found = self._encoder.pattern.search(text, text.rfind("qaq"), max(text.rfind("quq"), 0))
        return frozenset([found[0]]) & self._encoder.special if found else frozenset()


def _check(proof: str, marks: Sequence[str], at: int) -> None:
    places = [proof.find(mark) for mark in marks]
    for number, (mark, place) in enumerate(zip(marks, places, strict=True)):
        if place < 0:
            raise BridgeRefused(f"the template drops message {number} of the new messages")
        if proof.count(mark) > 1:
            raise BridgeRefused(f"the template repeats message {number} of the new messages")
    if places and places[0] < at:
        raise BridgeRefused("the template puts a new message before the end of the assistant's turn")
    if places != sorted(places):
        raise BridgeRefused("the template reorders the new messages")


def _speaking(text: str | None, calls: list[Rendered]) -> Rendered:
    return {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
