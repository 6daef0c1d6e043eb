"""Watch harnesses at known commands: `python -m trainer.tiny.watch --out DIR NAME...` writes NAME.json of each.

The real program runs behind the real proxy; in the model's place is `probe.py`. See `watched.py` for what is kept.
"""

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from certs import harnesses as table
from replay.reader import Reader
from replay.store import Store
from trainer.local import LocalStack
from trainer.plan import Plan, Runner
from trainer.rollout import rollout
from trainer.tasks import load_tasks
from trainer.tiny import probe
from trainer.tiny.watched import Watched
from trainer.tutor import scripted

RUN = "watch"


def write_task(folder: Path) -> None:
    """The task in whose workspace the probes run."""
    (folder / "files").mkdir(parents=True)
    (folder / "prompt.md").write_text(probe.PROMPT + "\n")
    (folder / "files" / "list.txt").write_text(probe.SHOWN)
    script = folder / "verify.sh"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)


def main(
    names: Annotated[list[str], typer.Argument(help="Harnesses of `tap harness list`.")],
    out: Annotated[Path, typer.Option(help="Folder for what was seen.")],
    root: Annotated[Path, typer.Option(help="Where harnesses are installed.")] = table.DEFAULT_ROOT,
) -> None:
    """Run each harness once on five commands and write how it words things."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch).resolve()
        url = f"sqlite:///{folder}/record.db"
        local = LocalStack(model="", store_url=url, home=folder / "home", logs=folder, stack=stack, say=typer.echo)
        local.engine = scripted(Path(probe.__file__), folder / "scripted.log", stack)
        local.start()
        write_task(folder / "tasks" / "probe")
        specs = [table.get(name) for name in names]
        for spec in specs:
            table.install(spec, root, say=typer.echo, log=folder / f"install-{spec.name}.log")
        plan = Plan(
            run=RUN,
            tasks=tuple(load_tasks(folder / "tasks")),
            runners=tuple(Runner(spec, table.find(spec, root)) for spec in specs),
            group_size=1,
            concurrency=2,
            directory=folder / "sessions",
        )
        store = stack.enter_context(Store.open(url))
        asyncio.run(rollout(local.through(plan), store))
        reader = Reader(store)
        for session in reader.sessions(prefix=f"{RUN}."):
            turn = [turn for turn in reader.turns(session) if turn.purpose == "main"][-1]
            workspace = folder / "sessions" / session.name / "workspace"
            seen = Watched.of(
                str(session.harness), reader.messages(turn), reader.tools(turn), workspace, root.resolve()
            )
            seen.save(out / f"{session.harness}.json")
            typer.echo(f"{out / f'{session.harness}.json'}: {len(seen.tools)} tools")


if __name__ == "__main__":
    typer.run(main)
