"""Gemini's `contents` to neutral messages.

A user's content may mix text and function responses: they become messages in the order of the parts. Model
contents in a row are one message, since a chat of Google's SDK replays each chunk of a stream as a content of its
own. Function responses find their call by id; without one by the name, then by the order, within the model's last
turn.
"""

from __future__ import annotations

from addons.conversation import Message, ToolCall
from addons.dialects.gemini_fields import GoogleFields, violation
from addons.dialects.gemini_parts import function_call, function_result, signature, visible_text
from addons.media import lifted

_ROLES = {"user", "model", "function"}


def read_contents(f: GoogleFields) -> tuple[Message, ...]:
    """All of `contents`, which must be there.

    Raises:
        BadRequest: in Google's words.
    """
    items = f.messages("contents")
    if not items:
        violation("contents", "contents is not specified")
    reader = _Reader()
    for item in items:
        reader.read(item)
    reader.end_model_turn()
    return tuple(map(lifted, reader.messages))


def read_instruction(f: GoogleFields) -> tuple[Message, ...]:
    """`systemInstruction` as a system message, or nothing."""
    content = f.object("systemInstruction")
    if content is None:
        return ()
    content.raw("role")  # whatever it says, this is the system's
    texts = []
    for part in content.messages("parts"):
        texts.append(visible_text(part) or "")
        signature(part)
        part.close()
    content.close()
    text = "".join(texts)
    return (lifted(Message("system", text)),) if text else ()


class _Reader:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._model: _ModelTurn | None = None
        self._ids: dict[str, str] = {}
        """What the harness calls a call -> its id here."""
        self._taken: set[str] = set()
        """Ids of the conversation, each of one call."""
        self._waiting: list[tuple[str | None, ToolCall]] = []
        """Calls of the model's last turn without a response, under the id that the harness gave them."""

    def read(self, item: GoogleFields) -> None:
        role = item.text("role") or "user"
        if role not in _ROLES:
            violation(item.at("role"), "Please use a valid role: user, model.")
        parts = item.messages("parts")
        if not parts and role != "model":
            violation(item.at("parts"), "contents.parts must not be empty.")
        if role == "model":
            self._read_model(parts)
        else:
            self.end_model_turn()
            self._read_user(parts)
        item.close()

    def end_model_turn(self) -> None:
        if self._model is not None:
            self.messages.append(self._model.message())
            self._model = None

    def _read_model(self, parts: list[GoogleFields]) -> None:
        turn = self._model
        if turn is None:
            turn = self._model = _ModelTurn()
            self._waiting = []
        for part in parts:
            signed = signature(part)
            thought = part.flag("thought") is True
            text = visible_text(part)
            call = part.object("functionCall")
            if text is not None:
                (turn.reasoning if thought else turn.texts).append(text)
            if call is not None:
                turn.calls.append(self._call(call))
            elif "functionResponse" in part:
                violation(part.at("functionResponse"), "function responses must not come from the role model.")
            elif text is None and not signed and not thought:
                _empty(part)
            part.close()

    def _call(self, item: GoogleFields) -> ToolCall:
        given = item.text("id") or None
        own = given if given is not None and given not in self._taken else self._fresh()
        call = function_call(item, own)
        self._taken.add(own)
        if given is not None:
            self._ids[given] = own
        self._waiting.append((given, call))
        return call

    def _fresh(self) -> str:
        number = len(self._taken)
        while (own := f"function-call-{number}") in self._taken:
            number += 1
        return own

    def _read_user(self, parts: list[GoogleFields]) -> None:
        texts: list[str] = []
        for part in parts:
            signed = signature(part)
            part.raw("thought")  # a user has none: it is text like any other
            if (text := visible_text(part)) is not None:
                texts.append(text)
            response = part.object("functionResponse")
            if response is not None:
                self._say(texts)
                texts = []
                self.messages.append(self._answer(response))
            elif "functionCall" in part:
                violation(part.at("functionCall"), "function calls must come from the role model.")
            elif text is None and not signed:
                _empty(part)
            part.close()
        self._say(texts)

    def _say(self, texts: list[str]) -> None:
        if texts:
            self.messages.append(Message("user", "".join(texts)))

    def _answer(self, response: GoogleFields) -> Message:
        name = response.need("name", response.text("name"))
        call_id = self._answered(response, response.text("id") or None, name)
        return Message("tool", function_result(response), tool_call_id=call_id, name=name)

    def _answered(self, response: GoogleFields, given: str | None, name: str) -> str:
        named = [entry for entry in self._waiting if given is not None and entry[0] == given]
        if not named and given is not None and given in self._ids:
            return self._ids[given]
        waiting = named or [entry for entry in self._waiting if entry[1].name == name] or self._waiting
        if not waiting:
            violation(
                response.path,
                "Please ensure that function response turn comes immediately after a function call turn.",
            )
        found = waiting[0]
        self._waiting.remove(found)
        return found[1].id


class _ModelTurn:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[ToolCall] = []

    def message(self) -> Message:
        return Message("assistant", "".join(self.texts), "".join(self.reasoning), tuple(self.calls))


def _empty(part: GoogleFields) -> None:
    violation(part.at("data"), "required oneof field 'data' must have one initialized field")
