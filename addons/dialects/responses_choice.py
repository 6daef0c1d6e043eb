"""Which tools a Responses call lets the model call, or makes it call."""

from __future__ import annotations

from collections.abc import Collection

from addons.conversation import ToolChoice
from addons.dialects.fields import Fields, refuse
from addons.dialects.responses_tools import flat


def read_choice(f: Fields, offers: Collection[str]) -> ToolChoice:
    """Take `tool_choice`; `offers` are the names that the model calls its tools by.

    Raises:
        BadRequest: no such choice, or none of these tools.
    """
    asked = f.raw("tool_choice")
    if asked in (None, "auto"):
        return ToolChoice()
    if asked == "none":
        return ToolChoice("none")
    if isinstance(asked, dict):
        choice = _named_choice(Fields(asked, "tool_choice", f.ignored))
    elif asked == "required":
        choice = ToolChoice("required")
    else:
        refuse("tool_choice", f"Invalid value: {asked!r}. Supported values are: 'none', 'auto', and 'required'.")
    if choice.mode == "required" and not offers:
        refuse("tool_choice", "Tool choice 'required' must be specified with 'tools' parameter.")
    if unknown := sorted(set(choice.names) - set(offers)):
        refuse("tool_choice", f"Tool choice '{unknown[0]}' not found in 'tools' parameter.")
    return choice


def _named_choice(f: Fields) -> ToolChoice:
    """One tool by name, or several by `allowed_tools`."""
    kind = f.need("type", f.text("type"))
    if kind != "allowed_tools":
        name = _chosen(f, kind)
        if name is None:
            refuse(f.path, f"Invalid value for 'tool_choice': tools of type '{kind}' are not served.")
        return ToolChoice("required", (name,))
    mode = f.need("mode", f.text("mode"))
    if mode not in ("auto", "required"):
        refuse(f.at("mode"), f"Invalid value: '{mode}'. Supported values are: 'auto' and 'required'.")
    names = []
    for item in f.objects("tools"):
        kind = item.need("type", item.text("type"))
        name = _chosen(item, kind)
        if name is None:
            item.ignored.add(f"tool_choice.tools[type={kind}]")
        else:
            names.append(name)
    f.close()
    if not names and mode == "required":
        refuse(f.at("tools"), "Invalid value for 'tool_choice.tools': none of these tools is served.")
    return ToolChoice(mode, tuple(names)) if names else ToolChoice("none")


def _chosen(f: Fields, kind: str) -> str | None:
    """The flat name of a chosen tool; None for one that only the provider can run."""
    if kind in ("function", "custom"):
        name = flat(f.need("name", f.text("name")), f.text("namespace"))
        f.close()
        return name
    return kind if kind in ("local_shell", "tool_search") else None
