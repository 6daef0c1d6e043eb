"""Real harnesses recorded behind a scripted model, then answered from the record with no engine at all."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from addons.matrix import actor
from addons.matrix.actor import act
from addons.matrix.engine import ScriptedEngine
from addons.matrix.model import write_model
from addons.model import ModelFiles
from certs import harnesses
from replay.reader import Reader
from replay.store import Store
from tests.proxy import Proxy, mitmdump

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9"

pytestmark = [pytest.mark.harness, pytest.mark.network]


class Bench:
    """One harness, its task, and a folder that looks the same to every run of it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.harness = harnesses.get(name)
        self.program = harnesses.install(self.harness, ROOT / ".harness")
        self.model = write_model(folder / "model")
        self.written = folder / "workspace" / "written.txt"

    async def run(self, proxy: Proxy, session: str, task: str = actor.TASK) -> str:
        """Run it in a fresh home and workspace of the same names; its output."""
        home, workspace = self.folder / "run-home", self.written.parent
        for directory in (home, workspace):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
        env = harnesses.environment(self.harness, program=self.program, home=home, proxy=proxy.environment(session))
        process = await asyncio.create_subprocess_exec(
            *self.harness.argv(task.format(path=self.written), self.program), cwd=workspace, env=env,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), 240)
        return out.decode(errors="replace")


@pytest.mark.parametrize("name", ["mini-swe-agent", "claude-code", "codex"])
async def test_a_recorded_harness_runs_again_without_an_engine(name: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path, name)
    model = ModelFiles.load(str(bench.model))
    async with ScriptedEngine(model, act).serving() as engine, mitmdump(tmp_path, engine) as proxy:
        said = await bench.run(proxy, "recorded")
        assert bench.written.read_text().strip() == actor.WORD, said
    first = bench.written.read_bytes()

    options = {"tap_replay": "recorded", "tap_model": str(bench.model)}
    async with mitmdump(tmp_path, NOWHERE, **options) as proxy:
        said = await bench.run(proxy, "again")
        log = proxy.log.read_text()
        assert bench.written.read_bytes() == first, f"{said}\n{log[-3000:]}"
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        recorded, again = (reader.turns(reader.session(session)) for session in ("recorded", "again"))
        answered = {turn.replays for turn in again}
        assert {turn.id for turn in recorded if turn.purpose == "main"} <= answered, log[-3000:]
        assert [turn.error for turn in again if turn.replays is None] == []
    code, out = await _replay("diff", "recorded", "again", "--json", store=proxy.store)
    assert code == 0, out

    # With one message edited the first difference is named: where the harness says it, and in the record.
    async with mitmdump(tmp_path, NOWHERE, **options) as proxy:
        await bench.run(proxy, "edited", actor.TASK.replace("single word", "one word"))
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        errors = [turn.error or {} for turn in reader.turns(reader.session("edited")) if turn.status == "failed"]
        told = [str(error.get("message")) for error in errors]
        assert any("this request is not in session 'recorded': message" in words for words in told), told
        assert any("single word" in words and "one word" in words for words in told), told
        assert not bench.written.exists()


async def _replay(*arguments: str, store: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("replay")), *arguments, "--store", store,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()
