"""The whole matrix with harnesses of our own: what is green, and that each thing that can be wrong makes a row red."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from addons.matrix.report import markdown, table
from addons.matrix.row import Row
from addons.matrix.run import Options, matrix
from certs import harnesses, isolation
from certs.harnesses import Harness

pytestmark = pytest.mark.slow

ISOLATED = isolation.why_not() is None
FAKE = Path(__file__).with_name("fake_harness.py")
# How the first fault begins.
FAULTS = {
    "is good": "",
    "leaves a daemon": "",
    "compacts": "",
    "bypasses": "went past the proxy: telemetry.example:443",
    "refuses to work": "the file was not written",
    "fails": "exit status 3",
    "rewrites": "turn 2 continues none before it: ",
}


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Row]]:
    """The folder, and the rows by habit."""
    folder = tmp_path_factory.mktemp("matrix") / "all"
    chosen = [
        Harness(name=habit.replace(" ", "-"), command=(sys.executable, str(FAKE), "{task}", habit), version="9")
        for habit in FAULTS
    ]
    told: list[str] = []
    options = Options(directory=folder, root=folder, timeout=60, jobs=2)
    rows = asyncio.run(matrix(chosen, options, lambda name, news: told.append(name)))
    assert len(told) == 3 * len(FAULTS)
    return folder, dict(zip(FAULTS, rows, strict=True))


@pytest.mark.parametrize("habit", FAULTS)
def test_each_fault_is_found(tried: tuple[Path, dict[str, Row]], habit: str) -> None:
    if habit == "bypasses" and not ISOLATED:
        pytest.skip("nobody watched")
    row = tried[1][habit]
    assert len(row.faults) == bool(FAULTS[habit])
    assert "".join(row.faults).startswith(FAULTS[habit])
    assert (row.version, row.dialects, row.transports) == ("9", ("chat",), ("HTTP/1.1, whole",))
    calls = 4 if habit == "compacts" else 2
    assert (row.calls, row.turns, row.sequences) == (calls, calls, 2 if habit in ("rewrites", "compacts") else 1)
    if habit == "compacts":
        assert (row.purposes, row.main_sequences) == ({"main": 3, "compaction": 1}, 2)
    assert row.run is not None
    assert row.run.done is (habit != "refuses to work")
    assert row.run.bypassed == ((("telemetry.example:443",) if habit == "bypasses" else ()) if ISOLATED else None)


def test_what_a_harness_left_running_is_ended(tried: tuple[Path, dict[str, Row]]) -> None:
    folder, _ = tried
    assert harnesses.leftovers(folder / "leaves-a-daemon" / "home") == []


def test_the_table_shows_it(tried: tuple[Path, dict[str, Row]]) -> None:
    _, rows = tried
    text = markdown(list(rows.values()), date="2026-12-01", command="tap matrix")
    assert text.startswith("3 of 7 harnesses green, 2026-12-01, by `tap matrix`.\n" if ISOLATED else "4 of 7")
    assert "| is-good | 9 | chat | HTTP/1.1, whole | 2 | 2 main | 1 | done | " in text
    assert "**red**: exit status 3 |" in text
    assert table({"is-good": "running", "later": "waiting"}, {}).row_count == 2


def test_no_key_is_in_what_is_kept(tried: tuple[Path, dict[str, Row]]) -> None:
    flows = (tried[0] / "flows.jsonl").read_text()
    assert '"session": "matrix-is-good"' in flows
    for secret in ("dummy", "authorization", "Basic"):
        assert secret not in flows
