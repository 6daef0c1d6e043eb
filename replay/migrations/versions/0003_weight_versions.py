"""Which weights sampled which tokens of a turn that a push came into."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision. Of turns recorded before, only the versions at both ends are known."""
    op.add_column("turn", sa.Column("weight_versions", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    """Back to 0002."""
    op.drop_column("turn", "weight_versions")
