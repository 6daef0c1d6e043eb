"""Examples for a given student: sampled ids where they are its own, replies rendered anew where they are not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from replay.fingerprint import template_hash
from replay.reader import Reader
from replay.schema import Session
from trainer.imitation import Demonstrations, Examples, exact_examples, template_hashes
from trainer.policy import Policy
from trainer.rerender import Student

Rerender = Literal["auto", "always", "never"]


def examples_for(
    policy: Policy, reader: Reader, sessions: Sequence[Session], choice: Demonstrations, rerender: Rerender = "auto"
) -> Examples:
    """Examples of `sessions` for `policy`. "auto" renders anew when any was sampled with other files than its own."""
    if rerender == "auto":
        own = fingerprint(policy)
        rerender = "always" if template_hashes(reader, sessions) - {own} else "never"
    if rerender == "never":
        return exact_examples(reader, sessions, choice)
    return Student(policy.tokenizer, stops(policy)).examples(reader, sessions, choice)


def check_own(policy: Policy, reader: Reader, sessions: Sequence[Session]) -> None:
    """Raise ValueError when some of `sessions` were sampled with other files than the policy's own."""
    if template_hashes(reader, sessions) - {fingerprint(policy)}:
        raise ValueError(
            f"some sessions were sampled with another tokenizer or chat template than that of {policy.source}: their "
            "token ids mean nothing to it"
        )


def fingerprint(policy: Policy) -> str:
    """`Turn.template_hash` as the proxy computes it for this policy's files."""
    tokenizer = policy.source / "tokenizer.json"
    if not tokenizer.is_file():
        raise ValueError(f"{policy.source} has no tokenizer.json")
    return template_hash(policy.tokenizer.chat_template or "", tokenizer.read_bytes())


def stops(policy: Policy) -> list[str]:
    """The text of the tokens that end a turn of this policy's."""
    ids = {policy.tokenizer.eos_token_id}
    generation = policy.source / "generation_config.json"
    if generation.is_file():
        named = json.loads(generation.read_text()).get("eos_token_id")
        ids |= set(named if isinstance(named, list) else [named])
    return [policy.tokenizer.convert_ids_to_tokens(number) for number in sorted(ids - {None})]
