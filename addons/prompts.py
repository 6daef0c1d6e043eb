"""Conversations to token ids: the whole prompt of a first call, and the bridge from one turn to the next.

Reasoning that was sampled stays where it was sampled, by default, also where the template would leave it out once a
user has spoken again: what the model sees is then off the template by that reasoning, and the session is one sequence.
With the policy `template` such a call is refused a bridge: it is rendered anew, as the template has it, and forks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from addons.bridge import Bridge, BridgeRefused, Tail
from addons.conversation import Conversation, Message, Tool, ToolCall
from addons.encode import Encoder, Escape
from addons.habits import Habits, Rendered, TemplateError
from addons.harmony import Harmony
from addons.model import ModelFiles
from addons.render import ChatTemplate

__all__ = ["BridgeRefused", "Extension", "ProbeReport", "Prompts", "ReasoningPolicy", "TemplateError", "Way"]

logger = logging.getLogger(__name__)

Way = Literal["stand-in", "history", "harmony", "never"]
"""How a template is extended: behind a stand-in of constant size; behind the real history, for a template
that keeps state over the conversation; by Harmony's own encoder; or not at all, when every turn is rendered anew."""

ReasoningPolicy = Literal["keep", "template"]
"""Whether sampled reasoning stays in the context of later turns, or goes where the template leaves it out."""


@dataclass(frozen=True, slots=True)
class Extension:
    """What follows the parent's prompt ids and its sampled ids in the next prompt."""

    suffix: list[int]
    """Context ids, none of them sampled. Begins with the end of turn where `added_close`."""
    added_close: bool
    """The turn was cut off (or ended otherwise than the template ends it), so its end had to be added."""
    closed_reasoning: bool = False
    """It was cut off inside its reasoning, whose end was added as well."""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What the start-up probe found out about the template."""

    way: Way
    habits: Habits
    repeats_tools: bool
    """Writes the tool definitions again later in the conversation (some Mistral templates)."""
    needs_tools: bool
    """What it writes after a turn depends on the tool definitions in some other way."""
    differences: tuple[str, ...]
    """Canned conversations whose bridged tail is not the tail of the full rendering, with the reason."""


class Prompts:
    """Token ids for one model. Cheap to call; made once, at start-up, when it probes the template.

    Raises ModelError where the template cannot render a plain user message.
    """

    def __init__(self, model: ModelFiles, reasoning: ReasoningPolicy = "keep") -> None:
        self.template = ChatTemplate(model)
        self.reasoning = reasoning
        self._encoder = Encoder(model, self.template.image)
        self._stop_ids = model.stop_ids
        self._bridge = Bridge(model, self.template, self._encoder)
        self._harmony = Harmony.of(model)
        self._report = self._probe()
        logger.info(
            "%s: turns are continued by way of %s; reasoning in earlier turns: %s%s",
            model.name, self._report.way, reasoning, "".join(f"; {text}" for text in self._report.differences),
        )  # fmt: skip

    def probe(self) -> ProbeReport:
        """What the template does; found once, when this was made."""
        return self._report

    def first(self, conversation: Conversation) -> list[int]:
        """The whole prompt, with the generation prompt, or with the final message's turn left open to be continued.
        Special tokens in the conversation are plain text.

        Raises TemplateError when the template refuses the conversation.
        """
        escape = self._encoder.escape()
        messages = _escaped(escape, self.template.messages(conversation.messages))
        render = self.template.open_turn if conversation.continue_final_message else self.template.render
        tools, variables = self._tools(conversation, escape), _escaped(escape, conversation.template_kwargs)
        return self._encoder.encode(render(messages, tools, variables=variables), escape)

    def extend(
        self,
        conversation: Conversation,
        parent_prompt: Sequence[int],
        sampled: Sequence[int],
        assistant: Message,
        new: Sequence[Message],
    ) -> Extension:
        """The ids that follow `parent_prompt` + `sampled`: the rest of the turn, the new messages, the
        generation prompt.

        `conversation` is the call's own: its tools, its template variables, whether it begins with a system
        message, and, for a template with state, its messages before the reply. `assistant` is the reply as
        it was parsed here; it may be malformed. `new` are the messages after it.

        Only the new messages are rendered and encoded. Raises BridgeRefused where appending cannot be proven
        right.
        """
        if self._report.way == "never":
            raise BridgeRefused("the template cannot be extended: " + "; ".join(self._report.differences))
        if not parent_prompt:
            raise BridgeRefused("there is no parent prompt to extend")
        if conversation.continue_final_message and not new:
            if sampled and sampled[-1] in self._stop_ids:
                raise BridgeRefused("the reply that is to be continued has ended its turn")
            return Extension([], added_close=False)
        if not new:
            raise BridgeRefused("there are no new messages")
        if any(message.role == "assistant" for message in new[: -1 if conversation.continue_final_message else None]):
            raise BridgeRefused("an assistant message that was not sampled here is among the new messages")
        if self.reasoning == "template":
            self._check_reasoning(parent_prompt, sampled, assistant, new)
        if self._harmony is not None and not conversation.continue_final_message:
            return self._in_harmony(self._harmony, sampled, assistant, new)
        escape = self._encoder.escape()
        try:
            variables = _escaped(escape, conversation.template_kwargs)
            opened: Rendered | None = None
            following = list(new)
            if conversation.continue_final_message:
                opened = _escaped(escape, self.template.messages([following.pop()], opening=False)[0])
            tools = self._tools(conversation, escape) if self._report.needs_tools else None
            if self._report.way == "history":
                before = conversation.messages[: len(conversation.messages) - len(new) - 1]
                head = _escaped(escape, self.template.messages(before))
            else:
                head = self._head(conversation.messages)
        except TemplateError as error:
            raise BridgeRefused(str(error)) from error
        tail = self._bridge.tail(head, assistant, following, escape, tools, variables, opened)
        if self._bridge.ends_turn(tail, sampled[-1] if sampled else None, tools, variables):
            # Encoded together with the token before, as in a full rendering; that token is there already.
            ids = self._encoder.encode(tail.close + tail.text, escape)
            return Extension(ids[1:] if tail.close else ids, added_close=False)
        open_end = self._bridge.open_end(parent_prompt, sampled)
        ids = self._encoder.encode(open_end + tail.close + tail.text, escape)
        return Extension(ids, added_close=True, closed_reasoning=bool(open_end))

    def described(self, extension: Extension | None) -> dict[str, Any]:
        """For the record: the way a turn was continued (`whole` for a prompt that was rendered whole), the policy for
        reasoning, and what was added to end the turn before: nothing, `turn`, or `reasoning` and `turn`."""
        if extension is None:
            return {"way": "whole", "reasoning": self.reasoning}
        ended = [*(["reasoning"] if extension.closed_reasoning else []), *(["turn"] if extension.added_close else [])]
        return {"way": self._report.way, "reasoning": self.reasoning, **({"ended": ended} if ended else {})}

    def _check_reasoning(
        self, prompt: Sequence[int], sampled: Sequence[int], assistant: Message, new: Sequence[Message]
    ) -> None:
        """Raise BridgeRefused where the template would now leave out reasoning that the parent's tokens hold."""
        marks = self._bridge.reasoning
        if marks is None:
            reasoned = bool(assistant.reasoning)
        else:
            reasoned = marks.closes in sampled or marks.opens in sampled or marks.closes in prompt
        kept = self.template.habits.kept_reasoning
        if reasoned and any(message["role"] not in kept for message in self.template.messages(new, opening=False)):
            raise BridgeRefused("the template leaves out the reasoning of earlier turns, and that is the policy")

    def _in_harmony(
        self, harmony: Harmony, sampled: Sequence[int], assistant: Message, new: Sequence[Message]
    ) -> Extension:
        ids = harmony.after_turn(self._bridge.following(assistant, new))
        if ids is None:
            raise BridgeRefused("Harmony has no form for the new messages")
        closed = harmony.ends_turn(sampled[-1] if sampled else None)
        return Extension(ids if closed else [harmony.end, *ids], added_close=not closed)

    def _tools(self, conversation: Conversation, escape: Escape) -> list[Rendered] | None:
        return _escaped(escape, self.template.tools(conversation.tools)) or None

    def _head(self, messages: Sequence[Message]) -> list[Rendered]:
        opening = [Message("system", "S")] if messages and messages[0].role in ("system", "developer") else []
        return self.template.messages([*opening, Message("user", "U")])

    def _probe(self) -> ProbeReport:
        """Bridge small conversations both ways and compare with the full rendering."""
        repeats_tools, needs_tools = self._use_of_tools()
        differences: dict[str, list[str]] = {"stand-in": [], "history": []}
        for name, conversation, new in _canned(self.template.habits):
            escape = self._encoder.escape()
            history = self.template.messages(conversation[:-1])
            assistant = conversation[-1]
            try:
                full = self.template.render([*history, *self.template.messages((assistant, *new), opening=False)])
            except TemplateError:
                continue  # the template cannot have this conversation at all
            for way, head in (("stand-in", self._head(conversation)), ("history", history)):
                try:
                    tail = self._bridge.tail(head, assistant, new, escape, None, {})
                except BridgeRefused as refused:
                    differences[way].append(f"{name}: {refused.reason}")
                    continue
                if not _follows(full, tail):
                    differences[way].append(f"{name}: not what the template writes after the whole conversation")
        ways: tuple[Way, ...] = ("stand-in", "history")
        chosen: Way = next((way for way in ways if not differences[way]), "never")
        if chosen == "never":
            # Each call is proven by itself, so a conversation that cannot be bridged costs the others
            # nothing.
            wrong = {w: [text for text in differences[w] if "not what" in text] for w in ways}
            chosen = next((way for way in ways if not wrong[way]), "never")
        found = differences["history" if chosen == "never" else chosen]
        if self._harmony is not None:
            chosen, found = "harmony", []
        return ProbeReport(chosen, self.template.habits, repeats_tools, needs_tools, tuple(found))

    def _use_of_tools(self) -> tuple[bool, bool]:
        """Whether tool definitions come again after a turn, and whether what comes there depends on them otherwise."""
        tool = self.template.tools([Tool("probe_tool", "d")])
        repeats = needs = False
        for _, conversation, new in _canned(self.template.habits):
            with_tools, without = (self._canned_tail(conversation, new, tools) for tools in (tool, None))
            repeats = repeats or "probe_tool" in with_tools
            needs = needs or with_tools != without
        return repeats, needs and not repeats

    def _canned_tail(
        self, conversation: Sequence[Message], new: Sequence[Message], tools: Sequence[Rendered] | None
    ) -> str:
        try:
            head, escape = self._head(conversation), self._encoder.escape()
            return self._bridge.tail(head, conversation[-1], new, escape, tools, {}).text
        except BridgeRefused:
            return ""


def _escaped(escape: Escape, value: Any) -> Any:
    try:
        return escape.tree(value)
    except RecursionError as error:
        raise TemplateError("arguments or schemas are nested too deeply") from error


def _follows(full: str, tail: Tail) -> bool:
    """Whether the full rendering ends with the tail, right after an end of turn."""
    before = full.removesuffix(tail.text)
    return before != full and before.endswith(tail.close)


def _two_calls(number: int) -> list[Message]:
    ids = [f"call0000{number}", f"call0000{number + 1}"]
    calls = tuple(ToolCall(name, "ls", '{"path": "/"}') for name in ids)
    return [Message("assistant", tool_calls=calls), *(Message("tool", "a", tool_call_id=name) for name in ids)]


def _canned(habits: Habits) -> list[tuple[str, list[Message], list[Message]]]:
    """Name, conversation up to and including a reply, the messages that follow."""
    system, user = Message("system", "Be brief."), Message("user", "List the files.")
    said, more = Message("assistant", "There are two."), Message("user", "Which?")
    cases = [
        ("a second question", [system, user, said], [more]),
        (
            "a third question",
            [system, user, said, more, Message("assistant", "a and b")],
            [Message("user", "Thanks.")],
        ),
        ("an instruction in between", [user, said], [Message("system", "Be polite."), more]),
    ]
    if habits.reasoning:
        cases.append(("a question after reasoning", [user, Message("assistant", "Two.", reasoning="Hm.")], [more]))
    if habits.tool_calls and habits.tool_results:
        called = Message("assistant", tool_calls=(ToolCall("call00001", "ls", '{"path": "/"}'),))
        result = Message("tool", "a\nb", tool_call_id="call00001")
        again = Message("assistant", tool_calls=(ToolCall("call00002", "cat", '{"path": "/a"}'),))
        cases += [
            ("a tool result", [system, user, called], [result]),
            (
                "a second tool result",
                [user, called, result, again],
                [Message("tool", "x", tool_call_id="call00002")],
            ),
            ("a question after tools", [user, called, result, said], [more]),
            ("two tool results, twice", [user, *_two_calls(1), _two_calls(3)[0]], _two_calls(3)[1:]),
        ]
        if habits.reasoning:
            thought = Message("assistant", reasoning="Look.", tool_calls=called.tool_calls)
            cases.append(("a tool result after reasoning", [user, thought], [result]))
    return cases
