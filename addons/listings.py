"""Lists of models, in each provider's shape: harnesses ask before they begin, and some refuse unknown names."""

from __future__ import annotations

from typing import Any

from addons.engine import EngineFacts
from addons.providers import Route

_CREATED = 1_700_000_000
"""A fixed date, seconds since the epoch: the model's real one is nobody's business, and a moving one breaks caches."""


def listing(route: Route, facts: EngineFacts) -> dict[str, Any]:
    """The model that is served, under its own name; or any one by the name it was asked for."""
    name = route.model or facts.model
    single = route.model is not None
    if route.provider == "chatgpt":
        # Empty on purpose: Codex then keeps what it is built with, its own prompts above all. A model of ours listed
        # here would replace them, and the harness would not be the one that people run.
        return {"models": []}
    match route.dialect:
        case "messages":
            card = {
                "type": "model", "id": name, "display_name": name, "created_at": "2023-11-14T22:13:20Z",
                "max_input_tokens": facts.window, "max_tokens": facts.window,
            }  # fmt: skip
            return card if single else {"data": [card], "has_more": False, "first_id": name, "last_id": name}
        case "gemini":
            card = {
                "name": f"models/{name}", "version": "001", "displayName": name,
                "inputTokenLimit": facts.window, "outputTokenLimit": facts.window,
                "supportedGenerationMethods": ["generateContent", "countTokens"],
            }  # fmt: skip
            return card if single else {"models": [card]}
        case _:
            card = {"id": name, "object": "model", "created": _CREATED, "owned_by": "system"}
            return card if single else {"object": "list", "data": [card]}
