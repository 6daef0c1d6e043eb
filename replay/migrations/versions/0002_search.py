"""Full-text search: messages, which turns brought them, and their words."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from replay import codec, search
from replay.schema import Blob, Turn

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """To this revision; what is recorded already is indexed."""
    op.create_table(
        "message",
        sa.Column("id", _INT, nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_message")),
        sa.UniqueConstraint("sha256", name=op.f("uq_message_sha256")),
    )
    op.create_table(
        "turn_message",
        sa.Column("turn_id", _INT, nullable=False),
        sa.Column("message_id", _INT, nullable=False),
        sa.PrimaryKeyConstraint("turn_id", "message_id", name=op.f("pk_turn_message")),
        sa.ForeignKeyConstraint(["turn_id"], ["turn.id"], name=op.f("fk_turn_message_turn_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["message_id"], ["message.id"], name=op.f("fk_turn_message_message_id"),
                                ondelete="CASCADE"),
    )  # fmt: skip
    op.create_index(op.f("ix_turn_message_message_id"), "turn_message", ["message_id"])
    connection = op.get_bind()
    for statement in search.CREATE[connection.dialect.name]:
        op.execute(statement)
    _index_what_is_there(connection)


def downgrade() -> None:
    """Back to 0001."""
    for table in (search.TABLE, "turn_message", "message"):
        op.drop_table(table)


def _index_what_is_there(connection: sa.Connection) -> None:
    for turn_id, messages, reply in connection.execute(sa.select(Turn.id, Turn.messages, Turn.reply)).all():
        digests = list(dict.fromkeys([*messages, *([reply] if reply is not None else [])]))
        texts = {}
        for digest in digests:
            data = connection.execute(sa.select(Blob.data).where(Blob.sha256 == digest)).scalar_one()
            texts[digest] = search.words(codec.loads(codec.decompress(data)))
        search.store(connection, texts)
        search.link(connection, turn_id, digests)
