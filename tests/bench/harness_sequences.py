"""How many training sequences a session of ten turns is, by real harnesses: ours, re-rendered, by exact prefix.

    python -m tests.bench.harness_sequences [NAMES] [--folder FOLDER] [--no-cache]

Each harness, unmodified, does one task behind a real proxy. What the model says is a script
(:mod:`tests.bench.ten_turns`), in the tokens of Qwen 3's published tokenizer and under its chat template, which leaves
out old reasoning. Then the prompts are played to a real vLLM with random weights, to see how much of each is in its
prefix cache. What a cache keeps depends on token ids alone; after each turn vLLM is given what was sampled, as if it
had sampled it.

A folder that has a record already is only measured again.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from addons.matrix.row import Row
from addons.matrix.run import Options, matrix
from addons.model import ModelFiles
from addons.prompts import Prompts
from certs import harnesses
from replay.reader import Reader
from replay.readiness import Fork, examine
from replay.rerender import Rows, joined
from replay.store import Store
from tests.addons.kit import trl_templates
from tests.addons.real_models import real_model
from tests.bench.prefix_cache import Count, Vllm, weights
from tests.bench.ten_turns.script import say, talking
from tests.bench.ten_turns.ways import Tokens, calls_of, exact_prefix, rerendered
from trainer import serve

HARNESSES = Path(__file__).parents[2] / ".harness"
TOKENIZER = TEMPLATE = "qwen3"
SECONDS = 400.0
_BLOCK = 1024


@dataclass(frozen=True)
class Measured:
    """A harness's session, and its prompts as we and others make them. `side` counts turns by purpose."""

    harness: str
    version: str
    turns: int
    side: Counter[str]
    ours: Rows
    forks: tuple[Fork, ...]
    rerendered: list[Tokens]
    exact_prefix: list[Tokens]
    stored: list[Tokens]


def run(chosen: Sequence[harnesses.Harness], folder: Path, model: ModelFiles) -> None:
    """Let each harness have its session; the record is in `folder`."""
    talkers = [talking(one, harnesses.install(one, HARNESSES)) for one in chosen]
    options = Options(
        directory=folder, root=HARNESSES, timeout=SECONDS, script=say, model=model.path,
        proxy_arguments=("--set", "tap_sampling=full"),
    )  # fmt: skip

    def tell(name: str, news: str | Row) -> None:
        said = news if isinstance(news, str) else "; ".join(news.faults) or "green"
        print(f"{name}: {said}", file=sys.stderr, flush=True)

    asyncio.run(matrix(talkers, options, tell))


def measure(reader: Reader, harness: harnesses.Harness, prompts: Prompts) -> Measured:
    """What the record has of a harness's session.."""
    session = reader.session(f"matrix-{harness.name}")
    calls = calls_of(reader, session)
    found = examine(reader, session)
    side = Counter(turn.purpose for turn in reader.turns(session) if turn.purpose != "main")
    return Measured(
        harness.name, harness.version or "", len(calls), side, found.ours,
        tuple(fork for fork in found.forks if fork.purpose == "main"), rerendered(prompts, calls),
        exact_prefix(prompts, calls), [call.tokens for call in calls],
    )  # fmt: skip


def sequences(found: Sequence[Measured]) -> str:
    """The first table."""
    rows = []
    for one in found:
        again, prefix = joined(one.rerendered), joined(one.exact_prefix)
        side = ", ".join(f"{count} {purpose}" for purpose, count in sorted(one.side.items()))
        rows.append([
            one.harness, one.version, f"{one.turns}", f"{one.ours.rows}", f"{again.rows}", f"{prefix.rows}",
            *(f"{rows.tokens:,}" for rows in (one.ours, again, prefix)), side,
        ])  # fmt: skip
    columns = ["harness", "version", "turns", "sequences: ours", "re-rendered", "exact prefix", "tokens: ours"]
    table = markdown([*columns, "re-rendered", "exact prefix", "side calls"], rows, left=(0, 1, 9))
    forks = [f"- {one.harness}, {len(one.forks)}: {_first_and_last(one.forks)}" for one in found if one.forks]
    return "\n".join([table, *(["Where ours forks:", *forks] if forks else [])]) + "\n"


def hits(found: Sequence[Measured], counts: dict[tuple[str, str], Count]) -> str:
    """The second table."""
    rows = []
    for one in found:
        ours, again = counts[one.harness, "ours"], counts[one.harness, "re-rendered"]
        cells = [
            (f"{count.prompt:,}", f"{count.cached:,}", f"{count.cached / count.prompt:.1%}") for count in (ours, again)
        ]
        first = len(one.stored[0][0])  # is in no cache, whatever comes after it
        later = [count.prompt - count.cached - first for count in (ours, again)]
        rows.append([one.harness, *cells[0], *cells[1], *(f"{count:,}" for count in later)])
    columns = ["harness", "ours: prompt tokens", "cached", "share", "re-rendered: prompt tokens", "cached", "share"]
    columns += ["computed after turn 1: ours", "re-rendered"]
    return markdown(columns, rows, left=(0,))


def play(found: Sequence[Measured], model: ModelFiles, folder: Path) -> dict[tuple[str, str], Count]:
    """Send the prompts to a real vLLM, session by session, each with an empty cache before its first."""
    sessions = {(one.harness, "ours"): one.stored for one in found}
    sessions |= {(one.harness, "re-rendered"): one.rerendered for one in found}
    longest = max(len(prompt) + len(sampled) for calls in sessions.values() for prompt, sampled in calls)
    window = math.ceil((longest + 1) / _BLOCK) * _BLOCK
    weights(model, positions=window)
    options = serve.ServeOptions(model=str(model.path), max_model_len=window)
    with serve.running(options, log=folder / "vllm.log") as url:
        vllm = Vllm(url, str(model.path))
        return {key: vllm.play(calls) for key, calls in sessions.items()}


def _first_and_last(forks: Sequence[Fork]) -> str:
    shown = dict.fromkeys((forks[0], forks[-1]))
    return "; ".join(f"turn {fork.turn}, {fork.reason} ({fork.detail or 'no detail'})" for fork in shown)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int]) -> str:
    """A table; the columns of `left` are aligned so, all others to the right."""
    rule = "|".join("---" if at in left else "---:" for at in range(len(columns)))
    lines = ["| " + " | ".join(cells) + " |" for cells in (columns, *rows)]
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]]) + "\n"


def main() -> None:
    """Run, measure, play, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.harness_sequences")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these harnesses; all if none")
    parser.add_argument("--folder", type=Path, help="for the record and the logs; a temporary one if not given")
    parser.add_argument("--no-cache", action="store_true", help="no vLLM, no second table")
    asked = parser.parse_args()
    chosen = [harnesses.get(name) for name in asked.names] or list(harnesses.load().values())
    with tempfile.TemporaryDirectory() as made:
        folder = asked.folder or Path(made)
        model = real_model(folder / "model", TOKENIZER, trl_templates()[TEMPLATE])
        record = folder / "sessions" / "harnesstap.db"
        if not record.exists():
            run(chosen, record.parent, model)
        prompts = Prompts(model)
        with Store.open(f"sqlite:///{record}") as store:
            found = [measure(Reader(store), one, prompts) for one in chosen]
        print(f"By `{shlex.join(['python', '-m', 'tests.bench.harness_sequences', *asked.names])}`:\n")
        print(sequences(found), flush=True)
        if not asked.no_cache:
            print(hits(found, play(found, model, folder)))


if __name__ == "__main__":
    main()
