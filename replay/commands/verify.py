"""`replay verify`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from replay import rescoring
from replay.commands.common import JsonOption, SessionArgument, StoreOption, console, opened, print_json
from replay.store import DEFAULT_URL

TOLERANCE = 0.25
"""What the kernels of bfloat16 may differ by, nats."""


def verify(
    session: SessionArgument,
    against: Annotated[str, typer.Option(metavar="URL", help="Address of the running vLLM.")],
    tolerance: Annotated[
        float,
        typer.Option(min=0, help="Largest difference that passes, nats; in float32, 0.001 will do."),
    ] = TOLERANCE,
    store: StoreOption = DEFAULT_URL,
    as_json: JsonOption = False,
) -> None:
    """Score a session again on a running vLLM, and report how far logprobs drift.

    The stored ids are scored as they are, so what shows is the model: other
    weights, another precision, a template or tokenizer that another model
    was trained with. Only turns sampled from the whole distribution at
    temperature 1 can be compared; of the others the reason is given. Ends
    with exit code 2 when a logprob is off by more than --tolerance.

    \b
        replay verify NAME --against http://127.0.0.1:8000
    """
    with opened(store) as reader, rescoring.Scorer(against) as scorer:
        drifts = rescoring.rescore(reader, reader.session(session), scorer)
        if as_json:
            print_json(rescoring.document(drifts, scorer))
        else:
            weights = f", weights {scorer.weight_version}" if scorer.weight_version is not None else ""
            console().print(Text(f"{scorer.model} at {scorer.url}{weights}", "bold"))
            console().print(rescoring.table(drifts, tolerance))
        if not any(drift.skipped is None for drift in drifts):
            raise ValueError("no turn of this session can be compared")
        if any(drift.worst > tolerance for drift in drifts):
            raise typer.Exit(2)
