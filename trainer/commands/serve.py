"""`trainer serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from trainer import serve as serving
from trainer.commands.common import plain_errors
from trainer.serve import ServeOptions


def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="Directory of a checkpoint, or a Hugging Face id.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8000,
    max_model_len: Annotated[int | None, typer.Option(help="Prompt + reply, tokens. Default: the model's own.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Default: float32 on CPU, vLLM's choice on a GPU.")] = None,
    served_name: Annotated[str | None, typer.Option("--served-model-name", help="Default: MODEL.")] = None,
    kv_cache_gib: Annotated[int, typer.Option(help="Memory for keys and values, on CPU.")] = 2,
    lora_rank: Annotated[int | None, typer.Option(min=1, help="Take adapters of up to this rank, alone.")] = None,
    nccl: Annotated[bool, typer.Option("--nccl", help="Take weights from the trainer's GPU, by NCCL.")] = False,
) -> None:
    """Start vLLM the way this project needs it, on a GPU or on CPU.

    Logprobs are those of the distribution sampled from, defaults sample from the whole distribution, and the endpoints
    that reload weights are on. It listens on 127.0.0.1 only. What follows -- goes to vLLM.

    \b
        trainer serve Qwen/Qwen3-0.6B
        trainer serve runs/grpo/weights/3 --port 8001
        trainer serve MODEL --lora-rank 16          # for trainer grpo --lora-rank 16
        trainer serve MODEL --max-model-len 32768 -- --max-num-seqs 64
    """
    with plain_errors():
        options = ServeOptions(
            model=model,
            port=port,
            max_model_len=max_model_len,
            dtype=dtype,
            served_name=served_name,
            kv_cache_gib=kv_cache_gib,
            lora_rank=lora_rank,
            nccl=nccl,
            extra=serving.parse_extra([word for word in context.args if word != "--"]),
        )
        serving.replace_process(options)
