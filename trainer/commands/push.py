"""`trainer push`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainer.adapters import Lora
from trainer.commands.common import EngineOption, PushOption, console, plain_errors, quiet_libraries
from trainer.notes import read_note
from trainer.push import FP32_TOLERANCE, WayName, WeightServer, choose, next_version
from trainer.push.lora import CONFIG, adapter_rank

if TYPE_CHECKING:
    from trainer.policy import Policy


def push(
    weights: Annotated[Path, typer.Argument(help="What `trainer grpo` wrote: weights/N, or adapter/N.")],
    engine: EngineOption = "http://127.0.0.1:8000",
    version: Annotated[str, typer.Option(help="Default: the one noted in WEIGHTS, or the next number.")] = "",
    by: PushOption = None,
    tolerance: Annotated[float, typer.Option(help="Nats a logprob may differ; bfloat16: 0.25.")] = FP32_TOLERANCE,
    fallback: Annotated[Path | None, typer.Option(help="The same, to go back to when WEIGHTS do not verify.")] = None,
) -> None:
    """Load weights into the running vLLM, and verify them: logprobs must equal our own.

    Requests in flight go on under the new weights. Later turns carry the new version. WEIGHTS is an untied checkpoint,
    or an adapter for a vLLM that was started with --lora-rank.

    \b
        trainer push runs/grpo/weights/3
        trainer push runs/grpo/adapter/3
    """
    with plain_errors():
        adapter = (weights / CONFIG).is_file()
        if not adapter and not (weights / "config.json").is_file():
            raise FileNotFoundError(f"no checkpoint in {weights}: {weights / 'config.json'} does not exist")
        name = _way(weights, by, adapter=adapter)
        with WeightServer(engine) as server:
            current = server.version()
            way = choose(name, server, rank=adapter_rank(weights) if adapter else None)
            from trainer.policy import text_prompts, token_logprobs
            from trainer.push import push as push_weights

            quiet_libraries()
            noted = read_note(weights).get("weight_version")
            policy = _adapted(weights) if adapter else _whole(weights, exported=noted is not None)
            pushed = push_weights(
                server,
                weights,
                version or noted or next_version(current),
                prompts=text_prompts(policy.tokenizer),
                score=lambda ids, start: token_logprobs(policy.model, ids, start),
                way=way,
                tolerance=tolerance,
                fallback=fallback,
            )
        console.print(
            f"weights {pushed.version} (before: {current}) are served: paused {pushed.paused:.2f} s, logprobs equal "
            f"within {pushed.gap:.2g} nats over {pushed.probes} probes"
        )


def _way(weights: Path, by: WayName | None, *, adapter: bool) -> WayName:
    """The way for what is in `weights`. Raises ValueError where it holds the other kind."""
    if by is not None and adapter != (by == "lora"):
        kind = "an adapter alone, pushed by lora" if adapter else "a whole checkpoint, pushed by reload or nccl"
        raise ValueError(f"{weights} holds {kind}, not by {by}")
    return by or ("lora" if adapter else "reload")


def _whole(weights: Path, *, exported: bool) -> Policy:
    from trainer.policy import load_policy

    policy = load_policy(weights)
    if policy.tied and not exported:
        raise ValueError(
            f"{weights} shares its input and output embeddings, which vLLM reloads wrongly: push an export of "
            "`trainer grpo` instead"
        )
    return policy


def _adapted(adapter: Path) -> Policy:
    """The model that the adapter names as its base, with the adapter."""
    from trainer.policy import find_checkpoint, load_policy

    base = str(json.loads((adapter / CONFIG).read_text())["base_model_name_or_path"])
    policy = load_policy(find_checkpoint(base))
    policy.adapt(Lora(rank=adapter_rank(adapter)), adapter)
    return policy
