"""The invariants of a dialect, checked for one call: the one place where they are written down.

    I1  What the official SDK makes of the stream is what it makes of the whole reply: blocks, stop reason, usage.
    I2  Exactly one terminal event, last and in the right shape.
    I3  Start before delta before stop, indices contiguous, ids with the provider's prefixes, no empty block, no delta
        of one kind in a block of another.
    I4  The stored ids are exactly those sampled, with as many logprobs, and usage counts them (T1).
    I5  The next call of a harness that only appends continues this turn's very tokens (T2).
    I6  However the sampled tokens are cut into chunks, the result is the same.
    I7  What was asked and is not known is named in the turn's `ignored_fields`.
    I8  One model call is one turn.

I2 and I3 are the table of legal transitions of each dialect (`speakers`), walked over the events on the wire.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replay.schema import Turn
from tests.addons.dialects.cases import Case
from tests.addons.dialects.served import Served
from tests.addons.dialects.speakers import Block, Speaker
from tests.addons.dialects.speakers.base import masked

_NEW_IN_EVERY_REPLY = ("id", "call_id", "created", "created_at", "completed_at", "responseId", "thoughtSignature")
_UNKNOWN = "fieldOfNextYear"
_LOGPROB = -0.25
_session = itertools.count()


@dataclass(frozen=True)
class Told:
    """A reply as the SDK has it, and the turn it left behind."""

    dump: dict[str, Any]
    turn: Turn
    sampled: list[int]
    session: str

    @property
    def comparable(self) -> Any:
        """What must be equal in every reply that says the same."""
        return masked(self.dump, *_NEW_IN_EVERY_REPLY)


def told(
    served: Served, speaker: Speaker, case: Case, *, stream: bool, ids: Sequence[int] | None = None, size: int = 1
) -> Told:
    """Make the call, with `ids` sampled in chunks of `size`, and check all that can be told from one call alone."""
    session = f"s{next(_session)}"
    sampled = served.say(
        served.spell(case.text) if ids is None else ids, size=size, end=case.end,
        finish="length" if case.finish == "length" else "stop",
    )  # fmt: skip
    body = {**speaker.body(case.ask, stream=stream), _UNKNOWN: True}
    response = served.post(speaker.path(stream=stream), body, session)
    assert response.status_code == 200, response.text
    if stream:
        speaker.wire(response.content)  # I2, I3
    dump = speaker.streamed(response.content) if stream else speaker.whole(response.content)
    [turn] = served.turns(session)  # I8
    assert turn.ignored_fields == [_UNKNOWN]  # I7
    _check_reply(speaker, case, dump)
    _check_record(served, speaker, case, dump, turn, sampled)
    return Told(dump, turn, sampled, session)


def _check_reply(speaker: Speaker, case: Case, dump: dict[str, Any]) -> None:
    want = list(case.want) if speaker.ordered else _by_kind(case.want)
    assert speaker.blocks(dump) == want
    assert speaker.finish(dump) == speaker.finishes(case.finish)
    ids = speaker.call_ids(dump)
    assert len(set(ids)) == len(ids) == sum(block[0] == "call" for block in case.want)
    assert all(name.startswith(speaker.prefix) for name in ids)


def _check_record(
    served: Served, speaker: Speaker, case: Case, dump: dict[str, Any], turn: Turn, sampled: list[int]
) -> None:
    """I4. A stop string ends the sampling early: what came until then is kept, its own ids included."""
    kept, logprobs = served.reader.sampled(turn)
    assert (turn.status, turn.finish, turn.reply_id) == ("complete", case.finish, speaker.reply_id(dump))
    assert kept == sampled[: len(kept)]
    assert len(kept) == len(sampled) or case.finish == "stop_sequence"
    assert logprobs == [_LOGPROB] * len(kept)
    assert turn.untrainable is None
    prompt, completion, reasoning = speaker.usage(dump)
    assert (prompt, completion) == (turn.prompt_length, len(kept))
    assert (reasoning > 0) == any(block[0] == "reasoning" for block in case.want)
    assert served.engine.requests[-1]["prompt"] == served.reader.prompt_ids(turn)


def check_streamed_is_whole(whole: Told, streamed: Told) -> None:
    """I1, for the same ids."""
    assert streamed.comparable == whole.comparable
    assert streamed.turn.prompt_length == whole.turn.prompt_length


def check_split(speaker: Speaker, whole: Told, streamed: Told) -> None:
    """I6: the same, but for the number of tokens, where the text was spelt with other ones."""
    counted = ("usage", "usageMetadata")
    assert masked(streamed.comparable, *counted) == masked(whole.comparable, *counted)


def check_continued(served: Served, speaker: Speaker, case: Case, first: Told) -> None:
    """I5: the harness sends the reply back with something new."""
    served.say(served.spell("done"))
    body = {**speaker.next_body(case.ask, first.dump), _UNKNOWN: True}
    response = served.post(speaker.path(stream=False), body, first.session)
    assert response.status_code == 200, response.text
    before, after = served.turns(first.session)
    kept = served.reader.prompt_ids(before) + served.reader.sampled(before)[0]
    assert (after.parent_id, after.drift_reason) == (before.id, None)
    assert served.reader.prompt_ids(after)[: len(kept)] == kept


def _by_kind(blocks: Sequence[Block]) -> list[Block]:
    """As a dialect without an order has them: reasoning, text, calls; texts joined."""
    out: list[Block] = []
    for kind in ("reasoning", "text"):
        if joined := "".join(block[1] for block in blocks if block[0] == kind):
            out.append((kind, joined))
    return out + [block for block in blocks if block[0] == "call"]
