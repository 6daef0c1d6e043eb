"""`trainer push`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainer.commands.common import EngineOption, console, plain_errors, quiet_libraries
from trainer.notes import read_note
from trainer.push import FP32_TOLERANCE, WeightServer, next_version


def push(
    weights: Annotated[Path, typer.Argument(help="A directory that `trainer grpo` wrote, or an untied checkpoint.")],
    engine: EngineOption = "http://127.0.0.1:8000",
    version: Annotated[str, typer.Option(help="Default: the one noted in WEIGHTS, or the next number.")] = "",
    tolerance: Annotated[float, typer.Option(help="Nats a logprob may differ; bfloat16: 0.25.")] = FP32_TOLERANCE,
    fallback: Annotated[Path | None, typer.Option(help="Weights to go back to when they do not verify.")] = None,
) -> None:
    """Load weights into the running vLLM, and verify them: logprobs must equal our own.

    Requests in flight go on under the new weights. Later turns carry the new version.

    \b
        trainer push runs/grpo/weights/3
    """
    with plain_errors():
        if not (weights / "config.json").is_file():
            raise FileNotFoundError(f"no checkpoint in {weights}: {weights / 'config.json'} does not exist")
        with WeightServer(engine) as server:
            current = server.version()
            from trainer.policy import load_policy, text_prompts, token_logprobs
            from trainer.push import push as push_weights

            quiet_libraries()
            policy = load_policy(weights)
            noted = read_note(weights).get("weight_version")
            if policy.tied and noted is None:
                raise ValueError(
                    f"{weights} shares its input and output embeddings, which vLLM reloads wrongly: push an export of "
                    "`trainer grpo` instead"
                )
            pushed = push_weights(
                server,
                weights,
                version or noted or next_version(current),
                prompts=text_prompts(policy.tokenizer),
                score=lambda ids, start: token_logprobs(policy.model, ids, start),
                tolerance=tolerance,
                fallback=fallback,
            )
        console.print(
            f"weights {pushed.version} (before: {current}) are served: paused {pushed.paused:.2f} s, logprobs equal "
            f"within {pushed.gap:.2g} nats over {pushed.probes} probes"
        )
