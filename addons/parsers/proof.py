"""What a model's own files say of its calls: how its chat template writes them, and who reads that back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from renderers import Renderer

from addons.conversation import Message, Tool, ToolCall
from addons.decode import Detokeniser, Vocabulary
from addons.encode import Encoder
from addons.habits import TemplateError
from addons.model import ModelFiles
from addons.parsers.events import Called, Parser, merged
from addons.render import ChatTemplate

Make = Callable[[Sequence[int], Sequence[Tool]], Parser]
"""Makes a parser for the prompt's ids and the tools offered."""


@dataclass(frozen=True, slots=True)
class Written:
    """An assistant's turn of one tool call, as a chat template writes it: prompt, turn, and the stop that ends it."""

    call: ToolCall
    before: str
    text: str
    stop: str


class Proof:
    """A model's chat template, asked to write calls."""

    def __init__(self, model: ModelFiles, template: ChatTemplate, encoder: Encoder, vocabulary: Vocabulary) -> None:
        self._template = template
        self._encoder = encoder
        self._vocabulary = vocabulary
        self._stops = [model.token_text(number) for number in model.stop_ids]
        self.plain = self._written(_PLAIN)
        """A call of one word for a name and one argument; None where the template writes no calls."""
        self.hard = self._written(_HARD)
        """One with what harnesses have as well: a name and a key that are no words, quotes and brackets, depth."""

    def told(self) -> str:
        """What the template tells the model where tools are offered."""
        try:
            user = self._template.messages([Message("user", "U")])
            return self._template.render(user, self._template.tools(_TOOLS))
        except TemplateError:
            return ""

    def reads_back(self, make: Make, written: Written) -> bool:
        """Whether the parsers made read the call that was written, and nothing else."""
        escape = self._encoder.escape()
        parser = make(self._encoder.encode(written.before, escape), _TOOLS)
        detokeniser, events = Detokeniser(self._vocabulary), []
        for number in self._encoder.encode(written.text, escape):
            events += parser.feed(number, detokeniser.feed(number))
        events += parser.finish(written.stop)
        said = [event for event in merged(events) if isinstance(event, Called) or event.text.strip()]
        call = said[0] if len(said) == 1 else None
        wanted = (written.call.name, json.loads(written.call.arguments))
        return isinstance(call, Called) and (call.name, json.loads(call.arguments)) == wanted

    def writes_the_same(self, renderer: Renderer, written: Written) -> bool:
        """Whether the family renders a call as the template does; its other habits (dates) may differ."""
        messages = self._template.messages([Message("user", "U"), _PLAIN])
        ids = renderer.render_ids(messages, tools=self._template.tools(_TOOLS))
        said = b"".join(map(self._vocabulary.spelling, ids)).decode("utf-8", "replace")
        return written.text in said

    def _written(self, calling: Message) -> Written | None:
        if not self._template.habits.tool_calls:
            return None
        user, tools = Message("user", "U"), self._template.tools(_TOOLS)
        try:
            before = self._template.render(self._template.messages([user]), tools)
            after = self._template.render(self._template.messages([user, calling]), tools, generation=False)
        except TemplateError:
            return None
        pairs = enumerate(zip(before, after, strict=False))
        shared = next((at for at, (one, other) in pairs if one != other), min(len(before), len(after)))
        # The generation prompt may go on otherwise (DeepSeek's opens reasoning); a token is not cut in two.
        for match in self._encoder.pattern.finditer(after):
            if match.start() < shared < match.end():
                shared = match.start()
        ends = [(at, stop) for stop in self._stops if (at := after.find(stop, shared)) >= 0]
        end, stop = min(ends, default=(len(after), ""))
        return Written(calling.tool_calls[0], after[:shared], after[shared:end], stop)


_TOOLS = (
    Tool("probe_tool", "d", {"type": "object", "properties": {"a": {"type": "string"}}}),
    Tool("probe-tool", "d", {"type": "object", "properties": {
        "-a": {"type": "string"}, "n": {"type": "integer"}, "d": {"type": "object"},
    }}),
)  # fmt: skip
_PLAIN = Message("assistant", tool_calls=(ToolCall("call00001", "probe_tool", '{"a": "b c"}'),))
_HARD = Message(
    "assistant",
    tool_calls=(ToolCall("call00001", "probe-tool", '{"-a": "b, \\"c\\" {d: e}", "n": 3, "d": {"x": [1, "y"]}}'),),
)
