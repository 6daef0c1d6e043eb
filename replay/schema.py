"""The tables. A session is a tree of turns; a turn is one model call; blobs hold what is said, each once.

Growth is linear in what is new: a turn stores the prompt ids that its parent's prompt and sampled ids do not
already give, the digests of messages that its parent's request does not already have, and nothing twice.
Every change here needs a revision in `replay/migrations/versions`; a test compares the two.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, CheckConstraint, Double, ForeignKey, Index, LargeBinary, MetaData, Text, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from replay.columns import BigId, Digest, Logprobs, TokenIds

_Json = JSON(none_as_null=True)


class Base(DeclarativeBase):
    """Declarative base; names every constraint, so that migrations can drop them again."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {int: BigId, float: Double, str: Text, dict[str, Any]: _Json, list[Any]: _Json}  # noqa: RUF012


class Session(Base):
    """One run of a harness on one task (a rollout)."""

    __tablename__ = "session"
    __table_args__ = (
        CheckConstraint("status IN ('open', 'done', 'failed')", name="status"),
        Index("ix_session_open", "id", sqlite_where=text("status = 'open'"), postgresql_where=text("status = 'open'")),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    key_hash: Mapped[str | None]
    harness: Mapped[str | None] = mapped_column(index=True)
    harness_version: Mapped[str | None]
    task: Mapped[str | None] = mapped_column(index=True)
    group: Mapped[str | None] = mapped_column("group_name", index=True)
    """Sessions whose rewards are compared. The column is `group_name`: GROUP is SQL's word."""
    status: Mapped[str] = mapped_column(default="open")
    """open | done | failed"""
    reward: Mapped[float | None]
    """NULL is not 0: nobody has judged it, so it is not trained on."""
    reward_parts: Mapped[dict[str, Any] | None]
    meta: Mapped[dict[str, Any] | None] = mapped_column("metadata")
    created_at: Mapped[float]
    scored_at: Mapped[float | None] = mapped_column(index=True)


class Blob(Base):
    """A JSON text, or the bytes of an image, stored once however often it is sent."""

    __tablename__ = "blob"

    sha256: Mapped[str] = mapped_column(Digest, primary_key=True)
    """Of the uncompressed JSON text or image."""
    size: Mapped[int]
    """Bytes uncompressed."""
    data: Mapped[bytes] = mapped_column(LargeBinary)
    """zstd."""


class Turn(Base):
    """One model call: what was asked, what was sampled, token by token."""

    __tablename__ = "turn"
    __table_args__ = (
        CheckConstraint("status IN ('open', 'complete', 'aborted', 'failed')", name="status"),
        Index(None, "session_id", "body_digest"),
        Index(None, "after_digest", "session_id"),
        Index(None, "session_id", "opening"),
        Index(None, "session_id", "purpose", "weight_version"),
        Index("ix_turn_open", "owner", sqlite_where=text("status = 'open'"), postgresql_where=text("status = 'open'")),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id", ondelete="CASCADE"))
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("turn.id", ondelete="CASCADE"), index=True)
    retry_of: Mapped[int | None] = mapped_column(ForeignKey("turn.id", ondelete="SET NULL"), index=True)
    replays: Mapped[int | None] = mapped_column(ForeignKey("turn.id", ondelete="SET NULL"), index=True)
    """The turn, of another session, that this one was answered from; its tokens were sampled there."""
    purpose: Mapped[str]
    dialect: Mapped[str]
    route: Mapped[str]
    model: Mapped[str]
    status: Mapped[str] = mapped_column(default="open")
    """open | complete | aborted | failed"""
    owner: Mapped[str | None]
    """The process that samples it; see `replay.owners`."""

    prompt_suffix: Mapped[list[int]] = mapped_column(TokenIds, deferred=True)
    """The prompt's ids after the parent's prompt and the parent's sampled ids; the whole prompt of a root."""
    prompt_length: Mapped[int]
    """Tokens of the whole prompt."""
    suffix_length: Mapped[int]
    images: Mapped[list[Any] | None]
    """Images among `prompt_suffix`: `sha256` of a blob with the file's bytes, `media_type`, and the `offset` in the
    whole prompt and `length` of the ids that stand for it. NULL where there are none."""
    sampled: Mapped[list[int] | None] = mapped_column(TokenIds, deferred=True)
    """Exactly the ids the engine sampled, end-of-turn token included."""
    logprobs: Mapped[list[float] | None] = mapped_column(Logprobs, deferred=True)
    """One for each sampled id, unless `untrainable` says why not."""
    n_sampled: Mapped[int] = mapped_column(default=0)

    finish: Mapped[str | None]
    stop_sequence: Mapped[str | None]
    usage: Mapped[dict[str, Any] | None]
    sampling_asked: Mapped[dict[str, Any]]
    sampling_sent: Mapped[dict[str, Any]]
    ignored_fields: Mapped[list[Any]]
    drift_reason: Mapped[str | None]
    """Why this turn is a root."""
    drift_detail: Mapped[str | None]
    """In words: what made it a root; of one that has a parent, what the harness changed of what the model had seen."""
    rendering: Mapped[dict[str, Any] | None]
    """How the suffix was made: `way` of the chat template, or `whole`; policy for earlier `reasoning`; what was added,
    as context, to end the turn before (`ended`)."""
    untrainable: Mapped[str | None]
    """Why this turn must not be trained on."""
    error: Mapped[dict[str, Any] | None]
    template_hash: Mapped[str | None]
    weight_version: Mapped[str | None]
    """Of the weights that sampled the first token; where the engine does not tell, of those when it was asked."""
    weight_version_end: Mapped[str | None]
    """Of those that sampled the last token; where the engine does not tell, of those after the reply."""
    weight_versions: Mapped[list[Any] | None]
    """Where a push came between: `version`, `start` and `end` of each span of `sampled`. NULL for one version
    throughout, and where the engine did not tell: then the two above differ. See `replay.versions`."""

    body_digest: Mapped[str] = mapped_column(Digest)
    """sha256 of the raw body: the same call sent again has the same."""
    reply_id: Mapped[str | None] = mapped_column(index=True)
    """The id the reply carries on the wire, by which a later call may name it (`previous_response_id`)."""
    thread: Mapped[str | None]
    """What the harness itself calls this conversation within its session (an agent's or a thread's id)."""
    opening: Mapped[str | None] = mapped_column(Digest)
    """Of a root: sha256 of how its conversation began."""
    after_digest: Mapped[str | None] = mapped_column(Digest)
    """sha256 of the conversation with the reply: a call with this prefix continues the turn."""
    skeleton: Mapped[str] = mapped_column(Digest, ForeignKey("blob.sha256"))
    """The request without its items; see `replay.bodies`."""
    request_items: Mapped[list[Any]] = mapped_column(deferred=True)
    """The request's items: digests, and runs `[start, count]` of the parent's; see `replay.bodies`."""
    tools: Mapped[str | None] = mapped_column(Digest, ForeignKey("blob.sha256"))
    """The tools offered, neutral: a list of name, description, parameters; NULL where none were."""
    messages: Mapped[list[Any]] = mapped_column(deferred=True)
    """Digests of the neutral messages that are new after the parent's reply."""
    reply: Mapped[str | None] = mapped_column(Digest, ForeignKey("blob.sha256"))
    """The sampled message, neutral."""

    received_at: Mapped[float]
    first_token_at: Mapped[float | None]
    done_at: Mapped[float | None]
    delivered_at: Mapped[float | None]
    """The harness took the terminal event."""


class Message(Base):
    """A message that can be searched for; its words are in `message_search`, see `replay.search`."""

    __tablename__ = "message"

    id: Mapped[int] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(Digest, unique=True)
    """Of its JSON text, as a blob's."""


class TurnMessage(Base):
    """A turn brought a message: as new in its request, or as its reply."""

    __tablename__ = "turn_message"

    turn_id: Mapped[int] = mapped_column(ForeignKey("turn.id", ondelete="CASCADE"), primary_key=True)
    message_id: Mapped[int] = mapped_column(ForeignKey("message.id", ondelete="CASCADE"), primary_key=True, index=True)


class Batch(Base):
    """One optimizer step's data: what was selected, how, under which weights."""

    __tablename__ = "batch"

    id: Mapped[int] = mapped_column(primary_key=True)
    created_at: Mapped[float]
    query: Mapped[dict[str, Any]]
    """The filters the sessions were selected by."""
    seed: Mapped[int]
    weight_version: Mapped[str]
    """The version trained from (the update makes the next one)."""
    checkpoint: Mapped[str | None]
    stats: Mapped[dict[str, Any] | None]


class BatchRow(Base):
    """One training row: the sequence that ends with `turn_id`. Its session's group counts as consumed."""

    __tablename__ = "batch_row"

    batch_id: Mapped[int] = mapped_column(ForeignKey("batch.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    turn_id: Mapped[int] = mapped_column(ForeignKey("turn.id", ondelete="CASCADE"), index=True)
    advantage: Mapped[float]
    info: Mapped[dict[str, Any] | None]
    """Anything about the row, e.g. `{"trained": 812}` or `{"skipped": "no variance"}`."""
