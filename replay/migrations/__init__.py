"""Alembic's revisions of the schema; applied by `replay.store.Store.open`."""
