"""Forks of a preloaded harness behave like processes of their own: environment, folder, output, status, end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import venv
from pathlib import Path

import pytest

from trainer.launcher import Launcher, Plain, Preloaded
from trainer.processes import ProcessFailed, signal_group

HARNESS = """
import os, sys, time
from pathlib import Path
import slow_module
print("welcome to the toy", flush=True)
def main():
    word = sys.argv[1]
    print(word, os.environ["WHO"], Path.cwd().name, sys.stdin.read(), "MARK" in os.environ, flush=True)
    print("and this", file=sys.stderr)
    if word == "hang":
        time.sleep(600)
    if word == "raise":
        raise RuntimeError("broken")
    if word == "child":
        os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"])
    return {"none": None, "text": "a message", "three": 3}.get(word, 0)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with a harness of ours installed in it."""
    folder = tmp_path_factory.mktemp("harness")
    venv.create(folder, with_pip=False)
    [packages] = folder.glob("lib/python3*/site-packages")
    (packages / "toy.py").write_text(HARNESS)
    (packages / "slow_module.py").write_text("import os\nopen(os.environ['COUNT'], 'a').write('imported ')\n")
    info = packages / "toy-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[console_scripts]\ntoy = toy:main\n")
    script = folder / "bin" / "toy"
    script.write_text(f"#!{folder}/bin/python\nimport sys\nfrom toy import main\nsys.exit(main())\n")
    script.chmod(0o755)
    return script


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path


async def run(launcher: Launcher, program: Path, folder: Path, word: str) -> tuple[int, str]:
    log = folder / f"{word}.log"
    env = {"WHO": f"me-{word}", "COUNT": str(folder / "count")}
    process = await launcher.start([str(program), word], env=env, cwd=folder / "workspace", log=log)
    return await asyncio.wait_for(process.wait(), 20), log.read_text()


@pytest.mark.parametrize("kind", ["plain", "preloaded"])
async def test_a_session_is_a_process_of_its_own(program: Path, folder: Path, kind: str) -> None:
    words = {"zero": 0, "none": 0, "text": 1, "three": 3, "raise": 1}
    env = {"COUNT": str(folder / "count"), "MARK": "the parent's own"}
    async with Preloaded(program, [], env, folder / "preload.log") as preloaded:
        launcher = preloaded if kind == "preloaded" else Plain()
        ended = await asyncio.gather(*(run(launcher, program, folder, word) for word in words))
    for (word, expected), (status, output) in zip(words.items(), ended, strict=True):
        assert status == expected, word
        assert f"{word} me-{word} workspace  False" in output
        assert "and this" in output
    assert "RuntimeError: broken" in ended[4][1]
    assert "a message" in ended[2][1]
    if kind == "preloaded":
        assert (folder / "preload.log").read_text() == "welcome to the toy\n", "and it is not taken for an answer"
    imported = (folder / "count").read_text().split()
    assert len(imported) == (1 if kind == "preloaded" else 6), "once by the preloading parent"


async def test_a_session_can_be_ended_with_all_that_it_started(program: Path, folder: Path) -> None:
    env = {"COUNT": str(folder / "count")}
    async with Preloaded(program, ["json"], env, folder / "preload.log") as launcher:
        log = folder / "hang.log"
        process = await launcher.start(
            [str(program), "hang"], env={**env, "WHO": "x"}, cwd=folder / "workspace", log=log
        )
        signal_group(process.pid, signal.SIGKILL)
        assert await asyncio.wait_for(process.wait(), 20) == -signal.SIGKILL
        left = await launcher.start([str(program), "hang"], env={**env, "WHO": "x"}, cwd=folder / "workspace", log=log)
    with pytest.raises(ProcessLookupError):
        os.kill(left.pid, 0)


async def test_what_cannot_be_imported_is_told(program: Path, folder: Path) -> None:
    broken = Preloaded(program, ["no_such_module"], {"COUNT": str(folder / "count")}, folder / "preload.log")
    with pytest.raises(ProcessFailed, match="No module named 'no_such_module'"):
        await broken.__aenter__()


def test_a_loop_that_is_left_in_a_hurry_ends_all_of_it(program: Path, folder: Path) -> None:
    """An interrupt that no handler of asyncio's takes cancels every task at once, those that clean up too."""
    env = {"COUNT": str(folder / "count"), "WHO": "x"}
    pids: list[int] = []
    all_there = asyncio.Event()

    async def session(launcher: Launcher, number: int) -> None:
        process = await launcher.start(
            [str(program), "hang"], env=env, cwd=folder / "workspace", log=folder / f"{number}.log"
        )
        pids.append(process.pid)
        if len(pids) == 3:
            all_there.set()
        try:
            await process.wait()
        finally:
            signal_group(process.pid, signal.SIGKILL)
            await process.wait()

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def rollouts() -> None:
        async with Preloaded(program, [], env, folder / "preload.log") as launcher, asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(session(launcher, number))
            await all_there.wait()
            group.create_task(session(launcher, 3))  # is starting when the end comes
            asyncio.get_running_loop().call_soon(interrupt)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(asyncio.wait_for(rollouts(), 20))
    assert time.monotonic() - began < 15
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_session_that_is_cancelled_while_it_starts_is_ended(program: Path, folder: Path) -> None:
    env = {"COUNT": str(folder / "count"), "WHO": "x"}
    log = folder / "hang.log"
    launcher = Preloaded(program, [], env, folder / "preload.log")
    async with launcher:
        starting = asyncio.create_task(
            launcher.start([str(program), "hang"], env=env, cwd=folder / "workspace", log=log)
        )
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        again = await launcher.start([str(program), "zero"], env=env, cwd=folder / "workspace", log=folder / "2.log")
        assert await asyncio.wait_for(again.wait(), 20) == 0
    assert launcher._forks == {}, "both were seen to end, though nobody had the id of the first"
