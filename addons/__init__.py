"""The live side: what runs inside mitmdump."""

import logging

# mitmdump prints INFO of every library, and alembic reports at import already.
logging.getLogger("alembic").setLevel(logging.WARNING)
