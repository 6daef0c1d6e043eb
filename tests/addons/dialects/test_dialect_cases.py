"""Which test has which of the numbered cases: faults that other proxies of this kind had.

What a model samples and what the harness is told of it are the numbered cases of `cases.py`; the others are tests.
"""

from __future__ import annotations

import re
from pathlib import Path

COVERED = {
    1: "case-1", 2: "case-2", 4: "case-4", 6: "case-6", 8: "case-8", 9: "case-9",
    11: "test_case_11", 12: "test_case_12", 13: "test_case_13", 15: "test_case_15", 16: "test_case_16",
    18: "test_case_18", 19: "test_case_19", 20: "test_case_20", 22: "test_case_22", 23: "test_case_23",
    24: "case-24", 25: "case-25", 27: "test_case_27", 29: "class Responses", 31: "case-31", 33: "test_case_33",
    34: "test_case_34", 35: "test_compressed_bodies", 36: "test_websocket.py",
    38: "test_a_client_that_leaves_stops_the_sampling", 40: "test_case_40", 42: "test_case_42",
    43: "test_loopback_only", 45: "test_no_provider_is_ever_contacted_nor_even_looked_up",
}  # fmt: skip


def test_every_case_is_covered() -> None:
    tests = Path(__file__).parents[2]
    source = "\n".join(path.name + path.read_text() for path in tests.rglob("*.py") if path != Path(__file__))
    source += re.sub(r"COVERED = \{.*?\}", "", Path(__file__).read_text(), flags=re.DOTALL)
    missing = {number: where for number, where in COVERED.items() if where not in source}
    assert not missing
