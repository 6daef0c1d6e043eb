"""Sessions, turns, blobs; batches and their rows."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_JSON = sa.JSON(none_as_null=True)


def _need(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def _may(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=True)


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "session",
        _need("id", _INT),
        _need("name", sa.Text()),
        _may("key_hash", sa.Text()),
        _may("harness", sa.Text()),
        _may("harness_version", sa.Text()),
        _may("task", sa.Text()),
        _may("group_name", sa.Text()),
        _need("status", sa.Text()),
        _may("reward", sa.Double()),
        _may("reward_parts", _JSON),
        _may("metadata", _JSON),
        _need("created_at", sa.Double()),
        _may("scored_at", sa.Double()),
        sa.CheckConstraint("status IN ('open', 'done', 'failed')", name=op.f("ck_session_status")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session")),
        sa.UniqueConstraint("name", name=op.f("uq_session_name")),
    )
    is_open = sa.text("status = 'open'")
    op.create_index("ix_session_open", "session", ["id"], sqlite_where=is_open, postgresql_where=is_open)
    op.create_index(op.f("ix_session_harness"), "session", ["harness"])
    op.create_index(op.f("ix_session_scored_at"), "session", ["scored_at"])
    op.create_index(op.f("ix_session_task"), "session", ["task"])
    op.create_index(op.f("ix_session_group_name"), "session", ["group_name"])
    op.create_table(
        "blob",
        _need("sha256", sa.LargeBinary()),
        _need("size", _INT),
        _need("data", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_blob")),
    )
    op.create_table(
        "turn",
        _need("id", _INT),
        _need("session_id", _INT),
        _may("parent_id", _INT),
        _may("retry_of", _INT),
        _may("replays", _INT),
        _need("purpose", sa.Text()),
        _need("dialect", sa.Text()),
        _need("route", sa.Text()),
        _need("model", sa.Text()),
        _need("status", sa.Text()),
        _may("owner", sa.Text()),
        _need("prompt_suffix", sa.LargeBinary()),
        _need("prompt_length", _INT),
        _need("suffix_length", _INT),
        _may("images", _JSON),
        _may("sampled", sa.LargeBinary()),
        _may("logprobs", sa.LargeBinary()),
        _need("n_sampled", _INT),
        _may("finish", sa.Text()),
        _may("stop_sequence", sa.Text()),
        _may("usage", _JSON),
        _need("sampling_asked", _JSON),
        _need("sampling_sent", _JSON),
        _need("ignored_fields", _JSON),
        _may("drift_reason", sa.Text()),
        _may("drift_detail", sa.Text()),
        _may("rendering", _JSON),
        _may("untrainable", sa.Text()),
        _may("error", _JSON),
        _may("template_hash", sa.Text()),
        _may("weight_version", sa.Text()),
        _may("weight_version_end", sa.Text()),
        _need("body_digest", sa.LargeBinary()),
        _may("reply_id", sa.Text()),
        _may("thread", sa.Text()),
        _may("opening", sa.LargeBinary()),
        _may("after_digest", sa.LargeBinary()),
        _need("skeleton", sa.LargeBinary()),
        _need("request_items", _JSON),
        _may("tools", sa.LargeBinary()),
        _need("messages", _JSON),
        _may("reply", sa.LargeBinary()),
        _need("received_at", sa.Double()),
        _may("first_token_at", sa.Double()),
        _may("done_at", sa.Double()),
        _may("delivered_at", sa.Double()),
        sa.CheckConstraint("status IN ('open', 'complete', 'aborted', 'failed')", name=op.f("ck_turn_status")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_turn")),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_turn_session_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["parent_id"], ["turn.id"], name=op.f("fk_turn_parent_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["retry_of"], ["turn.id"], name=op.f("fk_turn_retry_of"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["replays"], ["turn.id"], name=op.f("fk_turn_replays"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["skeleton"], ["blob.sha256"], name=op.f("fk_turn_skeleton")),
        sa.ForeignKeyConstraint(["tools"], ["blob.sha256"], name=op.f("fk_turn_tools")),
        sa.ForeignKeyConstraint(["reply"], ["blob.sha256"], name=op.f("fk_turn_reply")),
    )
    op.create_index(op.f("ix_turn_session_id_body_digest"), "turn", ["session_id", "body_digest"])
    op.create_index(op.f("ix_turn_after_digest_session_id"), "turn", ["after_digest", "session_id"])
    op.create_index(op.f("ix_turn_session_id_opening"), "turn", ["session_id", "opening"])
    op.create_index(
        op.f("ix_turn_session_id_purpose_weight_version"), "turn", ["session_id", "purpose", "weight_version"]
    )
    op.create_index("ix_turn_open", "turn", ["owner"], sqlite_where=is_open, postgresql_where=is_open)
    op.create_index(op.f("ix_turn_reply_id"), "turn", ["reply_id"])
    op.create_index(op.f("ix_turn_parent_id"), "turn", ["parent_id"])
    op.create_index(op.f("ix_turn_retry_of"), "turn", ["retry_of"])
    op.create_index(op.f("ix_turn_replays"), "turn", ["replays"])
    op.create_table(
        "batch",
        _need("id", _INT),
        _need("created_at", sa.Double()),
        _need("query", _JSON),
        _need("seed", _INT),
        _need("weight_version", sa.Text()),
        _may("checkpoint", sa.Text()),
        _may("stats", _JSON),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batch")),
    )
    op.create_table(
        "batch_row",
        _need("batch_id", _INT),
        _need("position", _INT),
        _need("turn_id", _INT),
        _need("advantage", sa.Double()),
        _may("info", _JSON),
        sa.PrimaryKeyConstraint("batch_id", "position", name=op.f("pk_batch_row")),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.id"], name=op.f("fk_batch_row_batch_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["turn_id"], ["turn.id"], name=op.f("fk_batch_row_turn_id"), ondelete="CASCADE"),
    )
    op.create_index(op.f("ix_batch_row_turn_id"), "batch_row", ["turn_id"])


def downgrade() -> None:
    """To nothing."""
    for table in ("batch_row", "batch", "turn", "blob", "session"):
        op.drop_table(table)
