"""What the tests of recipes run in: a folder with a model and tasks, and a stack that starts nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.trainer.conftest import make_checkpoint
from trainer.local import LocalStack
from trainer.plan import Plan


class Local(LocalStack):
    """Nothing is started; the fake harness needs no proxy."""

    def through(self, plan: Plan) -> Plan:
        return replace(plan, home=self.home)


def lay_out(folder: Path) -> Path:
    """model/, tasks/ with three of them and home/ in `folder`; returns it."""
    make_checkpoint(folder / "model", layers=1)
    for name in ("a", "b", "c"):
        task = folder / "tasks" / name
        task.mkdir(parents=True)
        (task / "prompt.md").write_text("do")
        (task / "verify.sh").write_text("test -f answer.txt || exit 1\n")
    (folder / "home").mkdir(mode=0o700)
    return folder
