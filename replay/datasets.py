"""Training sequences as rows of a dataset: OpenAI's messages, and exact tokens as TRL takes them.

A row is a sequence of `replay.sequences`: a path through a session's tree that ends with a trained turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from replay import versions
from replay.reader import Reader
from replay.rerender import openai_message
from replay.schema import Session, Turn
from replay.sequences import DEFAULT_PURPOSES, not_trained, paths

IGNORED = -100
"""The label of a token that is not trained, as PyTorch's cross entropy and TRL have it."""


@dataclass(frozen=True, slots=True)
class TrainingSequence:
    """One training sequence: its turns from the root, with their tokens, and which of them are trained."""

    session: Session
    turns: tuple[Turn, ...]
    trained: frozenset[int]


def sequences(
    reader: Reader, session: Session, purposes: Collection[str] = DEFAULT_PURPOSES
) -> Iterator[TrainingSequence]:
    """The training sequences of a session."""
    turns = {turn.id: turn for turn in reader.turns(session, tokens=True)}
    trainable = {
        turn.id
        for turn in turns.values()
        if turn.n_sampled
        and not_trained(
            status=turn.status, untrainable=turn.untrainable, sampled=turn.n_sampled,
            logprobs=len(turn.logprobs or ()), purpose=turn.purpose, sampling=turn.sampling_sent, purposes=purposes,
        ) is None
    }  # fmt: skip
    for path in paths({turn.id: turn.parent_id for turn in turns.values()}, trainable):
        yield TrainingSequence(session, tuple(turns[turn] for turn in path.turns), path.trained)


def openai_row(reader: Reader, sequence: TrainingSequence) -> dict[str, Any]:
    """`messages` and `tools` as in a Chat Completions request, the last reply included; with what is known of them.

    An assistant message of a turn that this sequence does not train has `"weight": 0`, as OpenAI's fine-tuning has it.
    """
    messages: list[dict[str, Any]] = []
    for turn in sequence.turns:
        messages += [openai_message(message, parsed=False) for message in reader.new_messages(turn)]
        reply = reader.reply(turn)
        if reply is not None:
            weight = {} if turn.id in sequence.trained else {"weight": 0}
            messages.append({**openai_message(reply, parsed=False), **weight})
    tools = [{"type": "function", "function": tool} for tool in reader.tools(sequence.turns[-1])]
    return {"messages": messages, **({"tools": tools} if tools else {}), **_about(sequence)}


def trl_row(reader: Reader, sequence: TrainingSequence) -> dict[str, Any]:
    """`input_ids` and `labels` (-100 where nothing is trained), which TRL's SFTTrainer takes as they are.

    `logprobs` (nats, 0 where nothing is trained) are those of sampling. `weight_versions` are spans of `input_ids`, in
    order, which hold the trained tokens: `version` (None where it is not known), `start` and `end`. `temperatures` are
    a trained turn's each.
    """
    ids: list[int] = []
    labels: list[int] = []
    logprobs: list[float] = []
    weights: list[dict[str, Any]] = []
    for turn in sequence.turns:
        sampled = turn.sampled or []
        trained = turn.id in sequence.trained
        ids += [*turn.prompt_suffix, *sampled]
        labels += [IGNORED] * len(turn.prompt_suffix) + (sampled if trained else [IGNORED] * len(sampled))
        logprobs += [0.0] * len(turn.prompt_suffix)
        logprobs += list(turn.logprobs or ()) if trained else [0.0] * len(sampled)
        if trained:
            before = len(ids) - len(sampled)
            weights += [
                {"version": span.version, "start": before + span.start, "end": before + span.end}
                for span in versions.spans_of(turn)
            ]
    trained_turns = [turn for turn in sequence.turns if turn.id in sequence.trained]
    return {
        "input_ids": ids,
        "labels": labels,
        "logprobs": logprobs,
        "weight_versions": weights,
        "temperatures": [float(turn.sampling_sent.get("temperature", 1.0)) for turn in trained_turns],
        **_about(sequence),
    }


def write_parquet(rows: Sequence[dict[str, Any]], path: str) -> None:
    """Write rows as a Parquet file. Raises ValueError where pyarrow is not installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise ValueError(f"Parquet needs pyarrow: install harnesstap[parquet] ({error})") from error
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path, compression="zstd")


def _about(sequence: TrainingSequence) -> dict[str, Any]:
    session = sequence.session
    return {
        "session": session.name,
        "harness": session.harness,
        "task": session.task,
        "group": session.group,
        "reward": session.reward,
        "turns": [turn.id for turn in sequence.turns],
    }
