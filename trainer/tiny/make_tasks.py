"""Write examples of the closed world as task folders: `python -m trainer.tiny.make_tasks --help`."""

import random
import shutil
from pathlib import Path
from typing import Annotated

import typer

from trainer.tiny.world import FAMILIES, Example, draw_example

# The demo's tasks, family and seed: the shipped checkpoint solves each one sometimes but not always.
DEMO = (("copy", 2), ("count_words", 4), ("join", 4), ("sort_reverse", 1))

_VERIFY_HEAD = """\
#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }
"""
_NUMBER_HEAD = """\
number() { [ -f "$1" ] && [ ! -L "$1" ] && [ "$(tr -d '[:space:]' < "$1")" = "$2" ]; }
"""
_ABSENT_HEAD = """\
absent() { [ ! -e "$1" ] && [ ! -L "$1" ]; }
"""


def verify_script(example: Example) -> str:
    """The text of verify.sh: exit 0 if all of `example.expect` holds, else exit 1."""
    head, checks = _VERIFY_HEAD, []
    for name, text in example.expect.items():
        if text is None:
            head += _ABSENT_HEAD if _ABSENT_HEAD not in head else ""
            checks.append(f"absent {name} || exit 1\n")
        elif text and not text.endswith("\n"):
            head += _NUMBER_HEAD if _NUMBER_HEAD not in head else ""
            checks.append(f"number {name} {text} || exit 1\n")
        else:
            checks.append(f"holds {name} <<'END' || exit 1\n{text}END\n")
    return head + "\n" + "".join(checks)


def write_task(example: Example, folder: Path) -> None:
    """Write `example` as the task folder `folder`, replacing what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "prompt.md").write_text(example.prompt + "\n")
    for name, text in example.files.items():
        (folder / "files").mkdir(exist_ok=True)
        (folder / "files" / name).write_text(text)
    script = folder / "verify.sh"
    script.write_text(verify_script(example))
    script.chmod(0o755)


def main(
    out: Annotated[Path, typer.Option(help="Folder of the task set; task folders in it are replaced.")],
    held_out: Annotated[int, typer.Option(help="Random tasks of each family; 0 writes the demo's tasks.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the random tasks.")] = 10_000,
) -> None:
    """Write the demo's tasks, or random ones of every family, to OUT."""
    drawn = DEMO if not held_out else [(name, seed + i) for name in sorted(FAMILIES) for i in range(held_out)]
    for name, number in drawn:
        folder = out / (name.replace("_", "-") + (f"-{number}" if held_out else ""))
        write_task(draw_example(name, random.Random(f"{name} {number}")), folder)
    typer.echo(f"{len(drawn)} tasks in {out}")


if __name__ == "__main__":
    typer.run(main)
