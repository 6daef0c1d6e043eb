"""The `input` of a Responses call as messages.

A reply comes back as a run of items (reasoning, message, calls), which are one assistant message again, so that
it can be told to be the reply that was sent. Instructions stay in their place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from addons.conversation import Message, Role, ToolCall
from addons.dialects.fields import Fields, refuse, wrong_type
from addons.dialects.responses_compaction import TRIGGER
from addons.dialects.responses_parts import text_of, unheeded, unseal
from addons.dialects.responses_tools import Offer, call_of, read_tools
from addons.errors import NotFound
from addons.media import lifted

_ROLES: dict[str, Role] = {
    "user": "user", "system": "system", "developer": "developer", "assistant": "assistant",
}  # fmt: skip
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
REFERENCE = "item_reference"
_SEARCH = ("tool_search_call", "tool_search_output")
_COMPACTIONS = ("compaction", "compaction_summary", "context_compaction")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output")


def input_items(body: Any) -> list[Any]:
    """The `input` of a request body as a list of items; empty where it has none.

    Raises:
        BadRequest: it is neither a string nor an array.
    """
    value = body.get("input") if isinstance(body, dict) else None
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list):
        wrong_type("input", "a string or an array", value)
    return value


def is_reference(item: Mapping[str, Any]) -> bool:
    """Whether an item stands for a stored one, which has its id."""
    kind = item.get("type")
    return kind == REFERENCE or (kind is None and item.get("role") is None)


class Reader:
    """Reads items one by one into `messages`; `found` are tools that a tool search found, callable but not shown.

    Args:
        offers: where tools found among the items are added.
    """

    def __init__(self, offers: dict[str, Offer]) -> None:
        self.messages: list[Message] = []
        self.found: dict[str, Offer] = {}
        self.triggered = False
        """The items end with a wish that they be compacted."""
        self._offers = offers
        self._called: set[str] = set()
        self._reasoning: list[str] = []
        self._text: list[str] = []
        self._calls: list[ToolCall] = []
        self._replying = False

    def read(self, items: Sequence[Any], ignored: set[str]) -> None:
        """Read more items; what is not honoured goes to `ignored`.

        Raises:
            BadRequest: naming the item and the field.
            NotFound: a reference; those to stored items are replaced before.
        """
        for index, raw in enumerate(items):
            self._item(Fields(raw, f"input[{index}]", ignored))

    def close(self) -> tuple[Message, ...]:
        """All messages; the reply that was being put together is complete."""
        if self._replying:
            reasoning = ""
            for text in self._reasoning:
                reasoning += ("\n\n" if reasoning and not text.startswith("\n") else "") + text
            text = "".join(self._text)
            self.messages.append(lifted(Message("assistant", text, reasoning, tuple(self._calls))))
            self._reasoning, self._text, self._calls, self._replying = [], [], [], False
        return tuple(self.messages)

    def _item(self, item: Fields) -> None:
        kind = item.text("type") or ("message" if "role" in item else REFERENCE)
        self.triggered = kind == TRIGGER
        if kind == REFERENCE:
            _not_stored(item.need("id", item.text("id")))
        item.raw("status")  # whether it was complete shows in the item itself
        if kind != "local_shell_call_output":
            item.raw("id")
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._replying = True
            self._reasoning.append(_reasoning(item))
        elif kind in _SEARCH and "call_id" not in item:
            item.ignored.add(f"input[type={kind}]")  # the provider searched
            return
        elif kind in _CALLS:
            self._replying = True
            self._calls.append(call := call_of(item, kind))
            self._called.add(call.id)
        elif kind in _OUTPUTS:
            self._output(item, kind)
        elif kind == "additional_tools":
            item.raw("role")
            read_tools(item.objects("tools"), self._offers)
        elif kind == TRIGGER:
            pass
        elif kind in _COMPACTIONS and (text := unseal(item.raw("encrypted_content"))) is not None:
            self._say("user", text)
        else:
            # What a provider ran itself, or a kind newer than this: nothing that a chat template can show.
            item.ignored.add(f"input[type={kind}]")
            return
        item.close()

    def _message(self, item: Fields) -> None:
        role = item.need("role", item.text("role"))
        if role not in _ROLES:
            allowed = "'assistant', 'system', 'developer', and 'user'"
            refuse(item.at("role"), f"Invalid value: '{role}'. Supported values are: {allowed}.")
        if role == "assistant":
            item.ignore("phase")
            self._replying = True
            self._text.append(text_of(item, "content"))
        else:
            self._say(_ROLES[role], text_of(item, "content"))

    def _output(self, item: Fields, kind: str) -> None:
        call_id = item.text("call_id")
        if kind == "local_shell_call_output":
            call_id = call_id or item.text("id")
        item.need("call_id", call_id)
        if call_id not in self._called:
            # The provider's words; "custom tool call output" and so on for the other kinds.
            what = kind.replace("_", " ")
            refuse("input", f"No tool call found for {what} with call_id {call_id}.")
        if kind == "tool_search_output":
            item.raw("execution")
            # Shown where they were found, so that the prompt before stays as it is.
            found: dict[str, Offer] = {}
            read_tools(item.objects("tools"), found)
            self.found.update(found)
            text = "\n".join(_described(offer) for offer in found.values()) or "No tools found."
        else:
            item.raw("name")  # as the call had it
            item.raw("namespace")
            text = text_of(item, "output", between="\n")
        self._say("tool", text, str(call_id))

    def _say(self, role: Role, content: str, tool_call_id: str | None = None) -> None:
        self.close()
        self.messages.append(lifted(Message(role, content, tool_call_id=tool_call_id)))


def _not_stored(name: str) -> NoReturn:
    """Raise the 404 for a reference that nothing was put in the place of."""
    raise NotFound(
        f"Item with id '{name}' not found. Items are not persisted when `store` is set to false. Try again with "
        "`store` set to true, or remove this item from your input.",
        param="input",
    )


def _reasoning(item: Fields) -> str:
    """The reasoning of an item: what we sealed into it, or what it shows."""
    sealed = item.text("encrypted_content")
    said = text_of(item, "content") if "content" in item else ""
    summary = text_of(item, "summary", between="\n\n") if "summary" in item else ""
    text = unseal(sealed)
    if sealed is not None and text is None:
        unheeded(item, "encrypted_content")  # another provider's, which only that one can read
    return text if text is not None else said or summary


def _described(offer: Offer) -> str:
    tool = offer.tool
    described = {"name": tool.name, "description": tool.description, "parameters": tool.parameters or {}}
    return json.dumps(described, ensure_ascii=False)
