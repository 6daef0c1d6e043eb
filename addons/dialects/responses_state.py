"""What a Responses request continues or refers to of earlier ones: looked up by id.

The state after a response is the list of all its items: those it continued, its input, and its output.
"""

from __future__ import annotations

from typing import Any

from addons.dialects.continuing import LookUp
from addons.dialects.responses_errors import previous_response_not_found
from addons.dialects.responses_items import input_items
from addons.dialects.responses_reply import response_of


def previous(body: Any) -> str | None:
    """The id of the response that a body continues."""
    named = body.get("previous_response_id") if isinstance(body, dict) else None
    return named if isinstance(named, str) and named else None


def before(body: Any, stored: LookUp) -> list[Any]:
    """The items of the response that a body continues; none where it continues nothing.

    Raises:
        BadRequest: there is no such response, in the provider's words.
    """
    named = previous(body)
    if named is None:
        return []
    items: list[Any] | None = stored(named)
    if items is None:
        raise previous_response_not_found(named)
    return items


def references(body: Any, stored: LookUp) -> dict[str, Any]:
    """The stored items that a body's input refers to, by id: as many of them as there are."""
    found: dict[str, Any] = {}
    for name in _referred(body):
        items = stored(response_of(name)) or ()
        found.update((name, item) for item in items if isinstance(item, dict) and item.get("id") == name)
    return found


def _referred(body: Any) -> list[str]:
    items = [item for item in input_items(body) if isinstance(item, dict)]
    referring = [i for i in items if i.get("type") == "item_reference" or (i.get("type") is None and "role" not in i)]
    return [item["id"] for item in referring if isinstance(item.get("id"), str)]
