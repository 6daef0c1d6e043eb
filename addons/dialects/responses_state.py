"""What a Responses request continues or refers to of earlier ones: looked up by id.

The state after a response is the list of all its items: those it continued, its input, and its output.
"""

from __future__ import annotations

from typing import Any

from addons.dialects.continuing import LookUp
from addons.dialects.responses_errors import previous_response_not_found
from addons.dialects.responses_items import input_items, is_reference
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


def given(body: Any, stored: LookUp) -> list[Any]:
    """The items of a body's own input; those that refer to a stored item are that item, where there is one."""
    return [_referred(item, stored) or item for item in input_items(body)]


def _referred(item: Any, stored: LookUp) -> dict[str, Any] | None:
    """The stored item that `item` refers to; None for any that is not a reference, or to nothing."""
    if not isinstance(item, dict) or not is_reference(item):
        return None
    name = item.get("id")
    items = stored(response_of(name)) if isinstance(name, str) else None
    return next((found for found in items or () if isinstance(found, dict) and found.get("id") == name), None)
