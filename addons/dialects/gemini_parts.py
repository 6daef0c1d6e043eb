"""One part of a Gemini content as text: what a text model can be shown of it."""

from __future__ import annotations

import json
from typing import Any

from addons.conversation import ToolCall
from addons.dialects.gemini_fields import GoogleFields, invalid, violation
from addons.dialects.gemini_signature import says_nothing
from addons.media import as_text, from_base64, mark

_TEXTUAL = ("text/", "application/json", "application/xml", "application/yaml", "application/x-yaml")
_KINDS = {"image": "image", "audio": "audio", "video": "video"}


def visible_text(part: GoogleFields) -> str | None:
    """Everything of `part` that stands in the text: text, documents, placeholders; None when there is nothing.

    Media are a placeholder and an entry in `ignored_fields`, since a text model cannot see them; so are the calls
    of the provider's own tools.
    """
    text = part.text("text")
    said = [] if text is None else [text]
    said += [media for key in ("inlineData", "fileData") if (media := _media(part, key)) is not None]
    if (code := part.object("executableCode")) is not None:
        language = (code.text("language") or "").lower()
        said.append(f"\n```{language}\n{code.text('code') or ''}\n```\n")
        code.raw("id")  # it only ties the code to its result, which follows it
        code.close()
    if (result := part.object("codeExecutionResult")) is not None:
        outcome = result.text("outcome") or "OUTCOME_OK"
        failed = "" if outcome == "OUTCOME_OK" else f"{outcome}\n"
        said.append(f"\n```\n{failed}{result.text('output') or ''}\n```\n")
        result.raw("id")
        result.close()
    for key in ("toolCall", "toolResponse", "audioTranscription"):
        if key in part:
            said.append(f"[{key}: {_json(part.raw(key))}]")
            part.report(key)
    return "".join(said) if said else None


def signature(part: GoogleFields) -> bool:
    """Take a thought signature; returns whether there was one. One that is not ours is reported."""
    given = part.text("thoughtSignature")
    if given is not None and not says_nothing(given):
        part.report("thoughtSignature")
    return given is not None


def function_call(call: GoogleFields, call_id: str) -> ToolCall:
    """A `functionCall` of the model, known by `call_id`."""
    name = call.need("name", call.text("name"))
    arguments = ToolCall(call_id, name, _json(call.mapping("args") or {}))
    call.close()
    return arguments


def function_result(response: GoogleFields) -> str:
    """What a `functionResponse` says to the model.

    A response with nothing but `output` is that output, which is what the key is documented for; any other is
    JSON. Parts (images, say) follow it.
    """
    if "response" not in response and "parts" not in response:
        violation(response.at("response"), "response is not specified")
    value = response.mapping("response")
    texts = [] if value is None else [_result(value)]
    for part in response.messages("parts"):
        texts.append(visible_text(part) or "")
        part.close()
    response.close()
    return "\n".join(texts)


def _result(value: dict[str, Any]) -> str:
    if value.keys() != {"output"}:
        return _json(value)
    output = value["output"]
    return output if isinstance(output, str) else _json(output)


def _media(part: GoogleFields, key: str) -> str | None:
    media = part.object(key)
    if media is None:
        return None
    mime = media.text("mimeType") or "application/octet-stream"
    name = media.text("displayName")
    kind = _KINDS.get(mime.split("/")[0], "document")
    data = None
    if key == "fileData":
        says = media.need("fileUri", media.text("fileUri"))
    else:
        data = _bytes(media)
        if mime.startswith(_TEXTUAL):
            media.close()
            return as_text(kind, name, data)
        says = f"{len(data)} bytes"
    media.close()
    return mark(
        f"[{kind}: {', '.join(filter(None, (name, mime, says)))}]", kind, param=part.at(key), ignored=part.report(key),
        refusal=f"{kind.capitalize()} input modality is not enabled for models/{{model}}", media_type=mime, data=data,
    )  # fmt: skip


def _bytes(media: GoogleFields) -> bytes:
    data = media.need("data", media.text("data"))
    try:
        return from_base64(data)
    except ValueError:
        invalid(media.at("data"), "TYPE_BYTES", data)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
