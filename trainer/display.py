"""What the commands show: live progress of rollouts, and tables of sessions and steps."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from replay.reader import Reader
from replay.schema import Session
from trainer import summary
from trainer.evaluation import ALL, Interval, Run, compare
from trainer.plan import Attempt, Outcome, Stage
from trainer.summary import Change

if TYPE_CHECKING:  # torch comes with it
    from trainer.sft import SftReport
    from trainer.training import StepReport

_SIGNS = {"waiting": ("·", "dim"), "running": ("▶", "cyan"), "failed": ("!", "yellow")}


class RolloutView:
    """Live progress: a line a task, a sign a session. Where the output is no terminal, a line per ended session."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._tasks: dict[str, dict[str, tuple[str, str]]] = {}
        self._rewards: list[float] = []
        self._ended = 0
        self._live = Live(console=console, refresh_per_second=4, transient=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self.render(), refresh=True)
            self._live.stop()

    def __call__(self, attempt: Attempt, stage: Stage, outcome: Outcome | None) -> None:
        """Take in what became of an attempt; a `rollout.Progress`."""
        sign = _SIGNS.get(stage)
        if outcome is not None:
            self._ended += 1
            if outcome.reward is not None:
                self._rewards.append(outcome.reward)
                sign = ("✓", "green") if outcome.reward > 0 else ("✗", "red")
        self._tasks.setdefault(attempt.task.name, {})[attempt.name] = sign or ("?", "")
        if self._live is not None:
            self._live.update(self.render())
        elif outcome is not None:
            self._console.print(outcome_line(outcome))

    def render(self) -> RenderableType:
        """The view as it is now."""
        total = sum(map(len, self._tasks.values()))
        table = Table.grid(padding=(0, 2))
        for task, signs in self._tasks.items():
            table.add_row(task, Text.assemble(*((sign + " ", style) for sign, style in signs.values())))
        rate = f", {sum(r > 0 for r in self._rewards)}/{len(self._rewards)} solved" if self._rewards else ""
        return Group(Text(f"{self._title}: {self._ended}/{total} sessions{rate}", style="bold"), table)


def outcome_line(outcome: Outcome) -> str:
    """One ended session in words."""
    reward = "no reward" if outcome.reward is None else f"reward {outcome.reward:g}"
    note = f" ({outcome.note})" if outcome.note else ""
    return f"{outcome.attempt.name}: {reward}, {outcome.seconds:.1f} s{note}"


def sessions_table(reader: Reader, prefix: str, title: str) -> Table:
    """The sessions whose names begin with `prefix`, in the order they were opened."""
    table = Table(title=title, title_justify="left")
    table.add_column(f"{prefix}*", overflow="fold")
    table.add_column("status", no_wrap=True)
    for name in ("turns", "rows", "prompt", "sampled", "reward"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in reader.overview(reader.sessions(prefix=prefix)[::-1]):
        reward = line.session.reward
        table.add_row(
            line.session.name.removeprefix(prefix),
            line.session.status,
            str(line.turns),
            str(line.sequences),
            f"{line.prompt_tokens:,}",
            f"{line.sampled_tokens:,}",
            Text("-", "yellow") if reward is None else Text(f"{reward:g}", "green" if reward > 0 else "red"),
        )
    return table


def step_table(report: StepReport) -> Table:
    """What one GRPO step did."""
    table = Table(title=f"GRPO step -> weights {report.version}", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    metrics, credit = report.metrics, report.selection.credit
    flat = f"{credit.groups_flat} without contrast, {credit.groups_small} too few rewards"
    lag = report.selection.lag(int(report.version) - 1)
    older = "" if not lag.max else f", {lag.mean:.2g} old in the mean, {lag.max} at most"
    speed = metrics.tokens_trained / metrics.seconds
    rows: list[tuple[str, str, str]] = [
        ("groups used", str(credit.groups_used), flat),
        ("tokens trained", f"{metrics.tokens_trained:,}", f"{metrics.rows} sequences"),
        ("sampled under", " ".join(report.selection.weight_versions), f"weight versions{older}"),
        ("loss", f"{metrics.loss:.4f}", ""),
        ("gradient norm", f"{metrics.gradient_norm:.4f}", ""),
        ("logprob gap", f"{metrics.logprob_gap_max:.2g}", "max |trainer - vLLM| before the update, nats"),
        ("ratio", f"{metrics.ratio_mean:.6f}", f"max {metrics.ratio_max:.4f}; 1 = sampled by these very weights"),
        ("clipped", f"{metrics.clip_share:.1%}", "of the trained tokens"),
        ("entropy", f"{metrics.entropy:.3f}", "nats a token"),
        ("time", f"{metrics.seconds:.1f} s", f"{metrics.micro_batches} micro-batches, {speed:,.0f} tokens a second"),
    ]
    if report.selection.left_out:
        reasons = ", ".join(f"{why}: {n:,}" for why, n in report.selection.left_out.most_common())
        rows.append(("tokens left out", f"{report.selection.left_out.total():,}", reasons))
    if report.pushed is not None:
        verified = f"verified: logprobs equal within {report.pushed.gap:.2g}, {report.pushed.probes} probes"
        rows.append(("push", f"paused {report.pushed.paused:.2f} s", verified))
    for row in rows:
        table.add_row(*row)
    return table


def before_and_after(rounds: Sequence[tuple[str, str, Sequence[Outcome]]]) -> Table:
    """Rounds of rollouts side by side: (name, weight version, outcomes)."""
    table = Table(title="Before and after", title_justify="left")
    table.add_column("round")
    for name in ("weight version", "sessions", "solved", "mean reward"):
        table.add_column(name, justify="right")
    for name, version, outcomes in rounds:
        rewards = [outcome.reward for outcome in outcomes if outcome.reward is not None]
        mean = f"{sum(rewards) / len(rewards):.3f}" if rewards else "-"
        table.add_row(name, version, str(len(outcomes)), str(sum(reward > 0 for reward in rewards)), mean)
    return table


def step_line(step: int, sessions: Sequence[Session], report: StepReport | None) -> str:
    """One step of an experiment in a line."""
    rewards = [session.reward for session in sessions if session.reward is not None]
    tasks = [(session.reward_parts or {}).get("task", session.reward) for session in sessions]
    solved = sum(task is not None and task > 0 for task in tasks)
    mean = sum(rewards) / len(rewards) if rewards else float("nan")
    head = f"step {step}: {solved}/{len(sessions)} solved, mean reward {mean:.3f}"
    if report is None:
        return f"{head}, no update"
    metrics = report.metrics
    pushed = "" if report.pushed is None else f", pushed within {report.pushed.gap:.1g}"
    return (
        f"{head}; {metrics.tokens_trained:,} tokens of {metrics.rows} sequences, gap {metrics.logprob_gap_max:.1g}, "
        f"ratio {metrics.ratio_mean:.4f}, entropy {metrics.entropy:.3f}, gradient {metrics.gradient_norm:.3f}; weights "
        f"{report.version}{pushed}"
    )


def taught_line(report: SftReport) -> str:
    """Supervised learning in a line."""
    return (
        f"taught {report.examples} examples, {report.tokens:,} tokens, in {report.steps} steps, "
        f"{report.seconds:.0f} s: loss {report.first_loss:.3f} -> {report.last_loss:.3f} nats a token"
    )


def scores_table(runs: Sequence[Run]) -> Table:
    """Evaluations: a line a run and harness. Calls are those of a solved session, cut are sessions with a cut turn."""
    table = Table(title="Tasks solved, with 95 % intervals", title_justify="left")
    for name in ("run", "harness"):
        table.add_column(name, overflow="fold", min_width=8)
    for name in ("tasks", "scored", "solved", "calls", "tokens", "cut"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        for score in run.scores():
            table.add_row(
                run.name.removeprefix("eval-"),
                score.harness,
                str(score.tasks),
                f"{score.sessions}/{score.sessions + score.unscored}",
                _percent(score.solved),
                "-" if score.calls is None else f"{score.calls:g}",
                f"{score.tokens:,.0f}",
                f"{score.truncated:.0%}",
            )
    return table


def matrix_table(runs: Sequence[Run]) -> Table:
    """What was solved under each harness, a line, in each run, a column."""
    table = Table(title="Solved, %, with 95 % intervals", title_justify="left")
    table.add_column("harness", overflow="fold", min_width=8)
    shares = [{score.harness: score.solved for score in run.scores()} for run in runs]
    for run in runs:
        table.add_column(run.name.removeprefix("eval-"), justify="right", overflow="fold")
    for harness in dict.fromkeys(name for found in shares for name in found):
        table.add_row(harness, *(_percent(found[harness]) if harness in found else "-" for found in shares))
    return table


def differences_table(before: Run, after: Run) -> Table:
    """By how much more one run solved than another, over the tasks that both tried."""
    names = [run.name.removeprefix("eval-") for run in (before, after)]
    table = Table(title=f"{names[1]} against {names[0]}, percentage points", title_justify="left")
    table.add_column("harness")
    table.add_column("difference", justify="right", no_wrap=True)
    harnesses: list[str | None] = [name for name in after.harnesses if name in before.harnesses]
    for harness in harnesses if len(harnesses) < 2 else [*harnesses, None]:
        found = compare(before, after, harness)
        shown = "-"
        if found is not None:
            shown = f"{100 * found.value:+.1f} ({100 * found.low:+.1f} .. {100 * found.high:+.1f})"
        table.add_row(harness or "all", shown)
    return table


_NARROW = (0, 1, 2, 3, 5)
"""Columns of `summary.rows` that eighty columns hold: all but the seeds and the number of sessions."""


def changes_table(changes: Sequence[Change], width: int) -> Table:
    """Finished experiments: a line a recipe and harness. Less than a `width` of 160 columns holds only the figures."""
    table = Table(title="Tasks solved before and after, with 95 % intervals", title_justify="left")
    heads, *rows = summary.rows(changes)
    shown = range(len(heads)) if width >= 160 else _NARROW
    for at in shown:
        names = at < 2
        table.add_column(
            heads[at],
            justify="left" if names else "right",
            overflow="fold",
            no_wrap=not names,
            min_width=8 if names else 0,
        )
    for row in rows:
        table.add_row(*(row[at] for at in shown), end_section=row[1] == ALL)
    return table


def _percent(found: Interval) -> str:
    return f"{100 * found.value:.1f} ({100 * found.low:.0f}-{100 * found.high:.0f}) %"
