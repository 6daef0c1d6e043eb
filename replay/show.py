"""A session drawn in the terminal: its tree of turns, and what was said in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree
from tokenizers import Tokenizer

from replay import sequences, tokens, trees, versions
from replay.groups import Overview
from replay.reader import Reader
from replay.schema import Session, Turn
from replay.tokens import visible

_EXCERPT_LINES = 6
_EXCERPT_CHARS = 600
_STATUS = {"open": "yellow", "complete": "green", "done": "green", "aborted": "yellow", "failed": "red"}
_ROLE = {"system": "magenta", "developer": "magenta", "user": "cyan", "assistant": "green", "tool": "blue"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to draw of each turn."""

    messages: bool = True
    tokens: bool = False
    logprobs: bool = False
    request: bool = False
    reply: bool = False
    tokenizer: Tokenizer | None = None


def sessions_table(overviews: Sequence[Overview], now: float) -> Table:
    """One row a session. `now` is the time ages are counted to."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("session", overflow="fold", min_width=min(40, max(len(one.session.name) for one in overviews)))
    for header in ("harness", "task", "group"):
        table.add_column(header, overflow="ellipsis", min_width=6)  # the name is what is copied, whole
    for header in ("turns", "seqs", "prompt", "sampled", "reward"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    for one in overviews:
        session = one.session
        table.add_row(
            Text(session.name, "bold"),
            *(Text(visible(text or "-")) for text in (session.harness, session.task, session.group)),
            *(f"{number:,}" for number in (one.turns, one.sequences, one.prompt_tokens, one.sampled_tokens)),
            _reward(session.reward),
            Text(session.status, _STATUS[session.status]),
            duration(now - session.created_at),
        )
    return table


def session_view(reader: Reader, overview: Overview, turns: Sequence[Turn], options: Options) -> RenderableType:
    """The whole session as a tree. A path goes straight down below its first turn; only forks and roots branch."""
    numbers = {turn.id: number for number, turn in enumerate(turns, 1)}
    branches = reader.branches(overview.session)
    tree = Tree(_headline(overview), guide_style="dim")
    above = [tree]
    for line in trees.lines(turns):
        node = above[line.depth].add(_turn_view(reader, line.turn, numbers, options, excerpt=True, fork=line.fork))
        for name in branches.get(line.turn.id, ()):
            node.add(Text.assemble(("goes on in ", "dim"), (visible(name), "cyan")))
        above[line.depth + 1 :] = [node]
    parts: list[RenderableType] = [tree]
    if options.tokens:
        parts.append(tokens.legend())
    return Stack(*parts)


def turn_view(reader: Reader, turns: Sequence[Turn], number: int, options: Options) -> RenderableType:
    """One turn (1-based) in full."""
    numbers = {turn.id: place for place, turn in enumerate(turns, 1)}
    turn = turns[number - 1]
    rows = Table(box=None, show_header=False, pad_edge=False)
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    for name, value in facts(turn, numbers).items():
        rows.add_row(name, Text(visible(value)))
    parts = [_turn_view(reader, turn, numbers, options, excerpt=False, facts=rows)]
    if options.tokens:
        parts.append(tokens.legend())
    return Stack(*parts)


def duration(seconds: float) -> str:
    """A span of time, coarse: `42 s`, `5 min`, `3 h`, `2 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size or (unit == "min" and seconds >= size):
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def counted(number: int, what: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _reward(reward: float | None) -> Text:
    return Text("-", "dim") if reward is None else Text(f"{reward:g}", "green" if reward > 0 else "")


def _headline(overview: Overview) -> Text:
    session: Session = overview.session
    text = Text(session.name, "bold")
    text.append("  ").append(session.status, _STATUS[session.status])
    harness = " ".join(part for part in (session.harness, session.harness_version) if part)
    for name, value in {"harness": harness, "task": session.task, "group": session.group}.items():
        if value:
            text.append(f"  {name} ", "dim").append(visible(value))
    text.append("  reward ", "dim").append_text(_reward(session.reward))
    if session.reward_parts:
        parts = ", ".join(f"{name} {value:g}" for name, value in session.reward_parts.items())
        text.append(f" ({visible(parts)})", "dim")
    counts = (overview.turns, "turn"), (overview.sequences, "sequence"), (overview.new_tokens, "prompt token")
    numbers = ", ".join(counted(*count) for count in counts)
    text.append(f"\n{numbers} ({overview.prompt_tokens:,} as sent), {overview.sampled_tokens:,} sampled", "dim")
    return text


def _turn_line(turn: Turn, numbers: Mapping[int, int], *, fork: bool) -> Text:
    text = Text(f"#{numbers[turn.id]} ", "bold").append(turn.purpose)
    text.append("  ").append(turn.finish if turn.status == "complete" and turn.finish else turn.status,
                             _STATUS[turn.status])  # fmt: skip
    text.append(f"  prompt {turn.prompt_length:,} (+{turn.suffix_length:,})  sampled {turn.n_sampled:,}")
    if weights := versions.told(turn):
        text.append(f"  {weights}")
    if turn.done_at is not None:
        text.append(f"  {turn.done_at - turn.received_at:.1f} s", "dim")
    if fork and turn.parent_id is not None:
        text.append(f"  fork of #{numbers[turn.parent_id]}", "yellow")
    if turn.parent_id is None and turn.drift_reason:
        text.append(f"  root: {turn.drift_reason}", "yellow" if turn.drift_reason != "first" else "dim")
    if turn.drift_detail:
        text.append(f"  {visible(turn.drift_detail)}", "dim")
    if turn.retry_of is not None and turn.retry_of in numbers:
        text.append(f"  retry of #{numbers[turn.retry_of]}", "yellow")
    if turn.untrainable:
        text.append(f"  untrainable: {visible(turn.untrainable)}", "red")
    if turn.error:
        text.append(f"  {visible(str(turn.error.get('message', turn.error)))}", "red")
    return text


def _turn_view(
    reader: Reader,
    turn: Turn,
    numbers: Mapping[int, int],
    options: Options,
    *,
    excerpt: bool,
    fork: bool = False,
    facts: Table | None = None,
) -> RenderableType:
    parts: list[RenderableType] = [_turn_line(turn, numbers, fork=fork)]
    if facts is not None:
        parts.append(Padding(facts, (0, 0, 0, 3)))
    below: list[RenderableType] = []
    if options.messages:
        below += [_message(message, excerpt) for message in reader.new_messages(turn)]
        if (reply := reader.reply(turn)) is not None:
            below.append(_message(reply, excerpt, sampled=True))
    if options.tokens or options.logprobs:
        sampled, logprobs = reader.sampled(turn)
        if options.tokens:
            new = reader.prompt_ids(turn)[turn.prompt_length - turn.suffix_length :]
            why_not = sequences.not_trained(
                status=turn.status, untrainable=turn.untrainable, sampled=len(sampled), logprobs=len(logprobs),
                purpose=turn.purpose, sampling=turn.sampling_sent,
            )  # fmt: skip
            below.append(tokens.sequence(new, sampled, logprobs, options.tokenizer, trained=why_not is None))
            if why_not is not None and sampled:
                below.append(Text(f"not trained: {visible(why_not)}", "dim"))
        if options.logprobs:
            below.append(tokens.table(sampled, logprobs, options.tokenizer))
    if options.request:
        below.append(Text(visible(pretty(reader.request(turn)))))
    if options.reply:
        below.append(Text(visible(pretty(reader.reply(turn)))))
    parts += [Padding(part, (0, 0, 0, 3)) for part in below]
    return Stack(*parts)


def _message(message: Mapping[str, Any], excerpt: bool, *, sampled: bool = False) -> Text:
    role = str(message.get("role", "?"))
    text = Text(visible(role) + ("▸ " if sampled else ": "), f"bold {_ROLE.get(role, '')}")
    if reasoning := message.get("reasoning"):
        text.append(_cut(reasoning, excerpt), "italic dim").append("\n")
    text.append(_cut(message.get("content") or "", excerpt))
    for call in message.get("tool_calls") or ():
        text.append(f"\n→ {visible(call['name'])} ", "bold yellow").append(_cut(call["arguments"], excerpt))
    if message.get("malformed"):
        text.append("\n! a tool call in it could not be read, and was told as text", "red")
    return text


def _cut(content: str, excerpt: bool) -> str:
    lines = visible(content).rstrip("\n")
    if not excerpt:
        return lines
    kept = "\n".join(lines[:_EXCERPT_CHARS].split("\n")[:_EXCERPT_LINES])
    return kept if len(kept) == len(lines) else f"{kept} … [{len(lines) - len(kept):,} more characters]"


def facts(turn: Turn, numbers: Mapping[int, int]) -> dict[str, str]:
    """Everything else that is known of a turn, but for what is not there."""
    moments = {"first token": turn.first_token_at, "done": turn.done_at, "delivered": turn.delivered_at}
    timing = [f"{name} +{at - turn.received_at:.2f} s" for name, at in moments.items() if at is not None]
    known: dict[str, Any] = {
        "call": f"{turn.dialect} {turn.route}",
        "model": turn.model,
        "continues": f"#{numbers[turn.parent_id]}" if turn.parent_id is not None else None,
        "stop sequence": turn.stop_sequence,
        "usage": turn.usage,
        "sampling asked": turn.sampling_asked,
        "sampling sent": turn.sampling_sent,
        "ignored fields": ", ".join(turn.ignored_fields) or None,
        "template": turn.template_hash,
        "timing": ", ".join(timing) or None,
        "error": turn.error,
        "turn id": turn.id,
    }
    return {
        name: value if isinstance(value, str) else pretty(value, indent=None)
        for name, value in known.items()
        if value is not None
    }


def pretty(value: Any, indent: int | None = 2) -> str:
    """JSON for the eye."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
