"""Run by Alembic, on the connection (and in the transaction) that `replay.store` gives it."""

from __future__ import annotations

from alembic import context

from replay.schema import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite alters tables only by making them anew
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
