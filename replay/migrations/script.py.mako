"""${message}

Column types are spelled out (a revision must not change when `replay.columns` does): LargeBinary for token ids,
logprobs and digests.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """To this revision."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """To the one before."""
    ${downgrades if downgrades else "pass"}
