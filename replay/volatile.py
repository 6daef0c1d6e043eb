"""What is no difference between two runs of a harness: the parts of its texts that no two runs have alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

DEFAULT = (
    r"[Ww]all time:? [\d.]+ seconds",  # Codex, of every command
    r'\\?"wall_time_seconds\\?":\s*[\d.]+',
    r'\\?"chunk_id\\?":\s*\\?"[0-9a-f]+\\?"',
    r"Chunk ID: [0-9a-f]+",
)
"""What real harnesses were seen to put into tool results."""


class Volatile:
    """Texts without what matches one of some regular expressions. Raises ValueError for one that is none."""

    def __init__(self, patterns: Sequence[str] = DEFAULT) -> None:
        self.patterns = tuple(patterns)
        try:
            self._found = re.compile("|".join(f"(?:{pattern})" for pattern in patterns)) if patterns else None
        except re.error as error:
            raise ValueError(f"what is to be ignored is no regular expression: {error}") from error

    def without(self, text: str) -> str:
        """The text without them."""
        return text if self._found is None else self._found.sub("", text)

    def message(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """A neutral message without them; itself where it has none. What the model said is left as it is."""
        content = message.get("content")
        if message.get("role") == "assistant" or not isinstance(content, str):
            return message
        plain = self.without(content)
        return message if plain == content else {**message, "content": plain}

    def place(self, text: str, byte: int) -> int:
        """The byte of `text` that is at `byte` in the text without them."""
        for found in self._found.finditer(text) if self._found is not None else ():
            if len(text[: found.start()].encode("utf-8", "surrogatepass")) > byte:
                break
            byte += len(found[0].encode("utf-8", "surrogatepass"))
        return byte
