"""Messages to the text of a chat template, whatever the template's habits.

Templates differ in what they accept: some know no system message, or only one, or only at the beginning;
some want users and assistants to alternate; some want a call's arguments as a mapping and some as JSON text.
`ChatTemplate` finds out by rendering a handful of small conversations when it is made (`Habits`), and folds
what the template would refuse:

- a `developer` message is a `system` message, unless the template names developers;
- several leading system messages become one, joined by a blank line;
- a system message later on, where the template refuses, drops or hoists it, becomes a `user` message at its
  place;
- a leading system message goes in front of the first user message, where the template knows none;
- neighbouring user messages become one, joined by a blank line, where the template refuses them;
- reasoning goes in front of the text, where the template refuses both beside tool calls (gpt-oss).

Text is never dropped, reordered or repeated by a fold.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template

from addons.body import mended
from addons.conversation import Message, Tool
from addons.habits import Habits, Rendered, TemplateError, find_habits, rendered_call
from addons.media import joined, with_images
from addons.model import ModelError, ModelFiles
from addons.placeholders import find_placeholder, sentinel

# What a template can raise: jinja's own errors, and Python's where the data has not the type the template
# expects.
_RAISED = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
_RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversations",
        "documents",
        "messages",
        "return_assistant_tokens_mask",
        "tools",
    }
)


_XML_TOOLS = "xml_tools"


class ChatTemplate:
    """A model's chat template and its habits. Raises ModelError where it cannot render a user message."""

    def __init__(self, model: ModelFiles) -> None:
        self._source = model.template
        self._special_tokens: dict[str, Any] = dict(model.tokenizer.special_tokens_map)
        self.habits = Habits()
        self._in_parts = False
        try:
            self.render([{"role": "user", "content": "U"}])
        except TemplateError as error:
            raise ModelError(f"{model.name}: its chat template cannot render a user message: {error}") from error
        self._in_parts = self._needs_parts()
        self.habits = find_habits(self.render, model.template)
        self.image = find_placeholder(self.render)
        """What it writes for an image; None where it shows none."""

    def render(
        self,
        messages: Sequence[Rendered],
        tools: Sequence[Rendered] | None = None,
        *,
        generation: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The template's text, with the generation prompt or without. Raises TemplateError."""
        if variables and not _RESERVED.isdisjoint(variables):
            raise TemplateError(f"chat template variables may not be named {sorted(_RESERVED & set(variables))}")
        shown = [_in_parts(message) for message in messages] if self._in_parts else list(messages)
        try:
            texts, _ = render_jinja_template(
                [shown],
                tools=list(tools) if tools else None,
                chat_template=self._source,
                add_generation_prompt=generation,
                **{**self._special_tokens, **self._tools_apart(tools), **(variables or {})},
            )
        except _RAISED as error:
            raise TemplateError(str(error) or type(error).__name__) from error
        return str(texts[0])

    def open_turn(
        self,
        messages: Sequence[Rendered],
        tools: Sequence[Rendered] | None = None,
        *,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The template's text up to the end of the last message's words: its turn stays open, to be continued.

        As transformers does it for `continue_final_message`. Raises TemplateError.
        """
        tag = f"qt{secrets.token_hex(6)}q"
        last = {**messages[-1], "content": (messages[-1]["content"] or "") + tag}
        text = self.render([*messages[:-1], last], tools, generation=False, variables=variables)
        if text.count(tag) != 1:
            raise TemplateError("the template does not write the final message once, so it cannot be continued")
        return text[: text.index(tag)]

    def _tools_apart(self, tools: Sequence[Rendered] | None) -> dict[str, Any]:
        """SmolLM3's template takes the tools under a name of its own."""
        return {_XML_TOOLS: list(tools)} if tools and _XML_TOOLS in self._source else {}

    def messages(self, messages: Sequence[Message], *, opening: bool = True) -> list[Rendered]:
        """Messages as the template wants them, folded where it needs that.

        `opening` says that they begin the conversation; else they follow an assistant turn.
        """
        names: dict[str, str] = {}
        rendered = []
        for message in self._fold(messages, opening=opening):
            names.update({call.id: call.name for call in message.tool_calls})
            rendered.append(self._message(message, names))
        return rendered

    def tools(self, tools: Sequence[Tool]) -> list[Rendered]:
        """Tools in the OpenAI form that templates expect."""
        nothing = {"type": "object", "properties": {}}
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": nothing if tool.parameters is None else tool.parameters,
                },
            }
            for tool in tools
        ]

    def _needs_parts(self) -> bool:
        """Whether it shows a message's text only as a part of it (Idefics', SmolVLM's), and drops plain text."""
        plain: Rendered = {"role": "user", "content": "probe-u1"}
        try:
            return "probe-u1" not in self.render([plain]) and "probe-u1" in self.render([_in_parts(plain)])
        except TemplateError:
            return False

    def _message(self, message: Message, names: Mapping[str, str]) -> Rendered:
        rendered: Rendered = {"role": message.role, "content": with_images(message, sentinel)}
        if message.reasoning and self.habits.reasoning:
            if message.content and message.tool_calls and not self.habits.all_at_once:
                rendered["content"] = f"{message.reasoning}\n\n{rendered['content']}"
            else:
                rendered[self.habits.reasoning] = message.reasoning
        if message.tool_calls:
            if not message.content and self.habits.null_content:
                rendered["content"] = None
            rendered["tool_calls"] = [
                rendered_call(call.id, call.name, self.arguments(call.arguments)) for call in message.tool_calls
            ]
        if message.role == "tool":
            # OpenAI's clients send only the id of the call; several templates print its name.
            rendered["name"] = message.name or names.get(message.tool_call_id or "", "unknown")
            rendered["tool_call_id"] = message.tool_call_id or ""
        elif message.name:
            rendered["name"] = message.name
        return rendered

    def arguments(self, text: str) -> Any:
        """A call's arguments in the form that the template wants; text that is no JSON object stays text."""
        if self.habits.arguments == "json":
            return text
        try:
            parsed = mended(json.loads(text))  # half a character may stand escaped in it
        except (ValueError, RecursionError):
            return text
        return parsed if isinstance(parsed, dict) else text

    def _fold(self, messages: Sequence[Message], *, opening: bool) -> list[Message]:
        habits = self.habits
        folded: list[Message] = []
        leading = opening
        for message in messages:
            if message.role == "developer" and not habits.developer:
                message = replace(message, role="system")
            instructs = message.role in ("system", "developer")
            leading = leading and instructs
            if leading:
                if folded and not habits.many_systems:
                    folded[-1] = _joined(folded[-1], message)
                    continue
            elif instructs and not habits.late_system:
                message = replace(message, role="user")
            folded.append(message)
        if opening and not habits.system and folded and folded[0].role in ("system", "developer"):
            folded[0] = replace(folded[0], role="user")
            if len(folded) > 1 and folded[1].role == "user":
                folded[:2] = [_joined(folded[0], folded[1])]
        if not habits.two_users:
            apart: list[Message] = []
            for message in folded:
                if apart and message.role == apart[-1].role == "user":
                    apart[-1] = _joined(apart[-1], message)
                else:
                    apart.append(message)
            folded = apart
        return folded


def _in_parts(message: Rendered) -> Rendered:
    content = message.get("content")
    return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message


def _joined(first: Message, second: Message) -> Message:
    return joined(first, second, "\n\n")
