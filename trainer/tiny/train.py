"""Build the tiny model from nothing: `python -m trainer.tiny.train --out DIR`. Minutes on one CPU core.

Three lessons, each starting where the one before ended:

1. copying   sessions of a demonstrator that is always right, the harness's fixed prompt left out, but with
             position ids as if it were there, longer or shorter at random
2. habits    sessions of a demonstrator that is often wrong, with a tenth of the fixed prompt's tokens
3. prompt    the same with the full prompt, the learning rate falling to zero

Copying arguments is what is hard for so small a model. It is learned in minutes from sequences that are
clean, short and spell a name the same way everywhere, and hardly at all from others; once there, it stays.
"""

import itertools
import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trainer.tiny.harness import Harness, MiniSweAgent
from trainer.tiny.tokenizer import MAX_LENGTH, build_tokenizer
from trainer.tiny.transcripts import SURE, UNSURE, Encoder, Sequence, make_sequences
from trainer.tiny.watched import Watched
from trainer.tiny.world import FAMILIES

HEAD_SIZE = 32
HELD_OUT = 144
EXAMINED = 24
PAD = 0
SHORT = 10**9  # where little of the prompt is shown, the number of sequences is limit enough


@dataclass(frozen=True)
class Lesson:
    """One stretch of training."""

    name: str
    sequences: list[Sequence]
    steps: int
    batch_size: int
    batch_tokens: int
    """Most tokens of a batch, fixed prompts whole and padding left aside."""
    keep: float
    """Share of the fixed prompt's tokens that is shown."""
    shift: tuple[int, int]
    """Least and most by which all positions after the task are moved: distances must not become a clue. Only where
    more of the prompt follows the task, so that there is a distance which varies."""
    rates: tuple[float, float]
    """Learning rate at the beginning (after the warm-up) and at the end; between them half a cosine."""
    warm_up: int = 50


def new_model(tokenizer: PreTrainedTokenizerFast, hidden: int, layers: int) -> LlamaForCausalLM:
    """A Llama of `hidden` channels in float32, its head untied: vLLM on a CPU reloads tied ones wrongly."""
    heads = hidden // HEAD_SIZE
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=HEAD_SIZE,
        max_position_embeddings=MAX_LENGTH,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    return LlamaForCausalLM(config)


def collate(rows: list[Sequence], lesson: Lesson, rng: random.Random) -> tuple[Tensor, Tensor, Tensor]:
    """Right-padded ids, positions (int64), trained (bool), each (batch, time); dropped tokens leave gaps."""
    table = []
    for row in rows:
        shown = [i for i, varies in enumerate(row.varies) if varies or i == 0 or rng.random() < lesson.keep]
        shift = rng.randint(*lesson.shift) if row.followed else 0
        table.append([(row.ids[i], i + shift * (i >= row.task_end), row.trained[i]) for i in shown])
    width = max(map(len, table))
    padded = torch.tensor([row + [(PAD, 0, False)] * (width - len(row)) for row in table])
    return padded[..., 0], padded[..., 1], padded[..., 2].bool()


def loss_and_accuracy(model: LlamaForCausalLM, batch: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, float]:
    """Mean cross-entropy (nats) over the trained tokens, and the share of them that are the first choice."""
    ids, positions, trained = batch
    # The mask of ones says "one sequence a row": without it, gaps in the positions read as packed sequences.
    states = model.model(
        input_ids=ids, position_ids=positions, attention_mask=torch.ones_like(ids), use_cache=False
    ).last_hidden_state[:, :-1]
    said = trained[:, 1:]
    logits, targets = model.lm_head(states[said]), ids[:, 1:][said]
    return cross_entropy(logits, targets), (logits.argmax(-1) == targets).float().mean().item()


def batches(sequences: list[Sequence], lesson: Lesson, rng: random.Random) -> Iterator[list[Sequence]]:
    """Batches without end, of each harness in turn, sequences of like length together so that little is padding."""
    by_harness: dict[str, list[Sequence]] = {}
    for row in sequences:
        by_harness.setdefault(row.harness, []).append(row)
    queues: dict[str, list[list[Sequence]]] = {name: [] for name in by_harness}
    for name in itertools.cycle(sorted(by_harness)):
        if not queues[name]:
            rows = by_harness[name]
            size = max(1, min(lesson.batch_size, lesson.batch_tokens // max(len(row.ids) for row in rows)))
            order = sorted(rng.sample(rows, len(rows)), key=lambda row: sum(row.varies) + 8 * rng.random())
            cut = [order[i : i + size] for i in range(0, len(order) - size + 1, size)]
            queues[name] = rng.sample(cut, len(cut))
        yield queues[name].pop()


def teach(model: LlamaForCausalLM, lesson: Lesson, rng: random.Random) -> None:
    """Train `model` in place on one lesson; all but the first `HELD_OUT` sequences are trained on."""
    held_out, sequences = lesson.sequences[:HELD_OUT], lesson.sequences[HELD_OUT:]
    high, low = lesson.rates
    optimizer = torch.optim.AdamW(model.parameters(), lr=high, betas=(0.9, 0.95), weight_decay=0.01)
    queue = batches(sequences, lesson, rng)
    started = time.monotonic()
    for step in range(1, lesson.steps + 1):
        rate = low + (high - low) * 0.5 * (1 + math.cos(math.pi * step / lesson.steps))
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / lesson.warm_up)
        loss, accuracy = loss_and_accuracy(model, collate(next(queue), lesson, rng))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == lesson.steps:
            told = " ".join(
                f"{name} {seen:.3f} ({hit:.0%})" for name, seen, hit in examine(model, held_out, lesson, rng)
            )
            typer.echo(
                f"{lesson.name} {step}/{lesson.steps} {time.monotonic() - started:.0f} s "
                f"loss {loss.item():.4f} ({accuracy:.1%}), held out: {told}"
            )


@torch.no_grad()
def examine(
    model: LlamaForCausalLM, rows: list[Sequence], lesson: Lesson, rng: random.Random
) -> Iterator[tuple[str, float, float]]:
    """Harness, loss and accuracy on `rows`."""
    for name in sorted({row.harness for row in rows}):
        some = [row for row in rows if row.harness == name][:EXAMINED]
        loss, accuracy = loss_and_accuracy(model, collate(some, lesson, rng))
        yield name, loss.item(), accuracy


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Write the checkpoint in bfloat16, half the size; it is served and trained on in float32."""
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(out)
    half = LlamaForCausalLM(model.config).to(torch.bfloat16)
    half.load_state_dict(model.state_dict())
    half.save_pretrained(out)
    generation = {
        "do_sample": True,
        "eos_token_id": [tokenizer.eos_token_id],
        "pad_token_id": tokenizer.pad_token_id,
        "temperature": 1.0,
    }
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def main(
    out: Annotated[Path, typer.Option(help="Folder for the checkpoint.")],
    watched: Annotated[list[Path], typer.Option(help="What `trainer.tiny.watch` wrote of another harness.")],
    mini: Annotated[Path | None, typer.Option(help="Folder `minisweagent` of an installed 2.4.")] = None,
    hidden: Annotated[int, typer.Option(help="Channels; a multiple of 32.")] = 128,
    layers: Annotated[int, typer.Option(help="Layers; copying needs at least two.")] = 4,
    copying_steps: Annotated[int, typer.Option(help="Steps of lesson 1.")] = 1000,
    habits_steps: Annotated[int, typer.Option(help="Steps of lesson 2.")] = 300,
    prompt_steps: Annotated[int, typer.Option(help="Steps of lesson 3.")] = 400,
    rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 2e-3,
    sessions: Annotated[int, typer.Option(help="Sessions to make, of each demonstrator.")] = 12000,
    threads: Annotated[int, typer.Option(help="Torch threads.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 0,
) -> None:
    """Train the tiny model on made-up sessions of mini-swe-agent and the watched harnesses, and save it to OUT."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    rng = random.Random(seed)
    package = MiniSweAgent.load(mini)
    harnesses: list[Harness] = [package, *(Watched.load(path) for path in watched)]
    tokenizer = build_tokenizer(package)
    encoder = Encoder(tokenizer)
    model = new_model(tokenizer, hidden, layers)
    size = sum(weight.numel() for weight in model.parameters())
    typer.echo(f"{size / 1e6:.2f} M parameters, vocabulary {len(tokenizer)}")
    for one in harnesses:
        rows = make_sequences(len(FAMILIES), SURE, encoder, [one], seed)
        typer.echo(f"{one.name}: {sum(len(row.ids) for row in rows) // len(rows)} tokens a session")
    sure = make_sequences(sessions, SURE, encoder, harnesses, seed + 1)
    unsure = make_sequences(sessions, UNSURE, encoder, harnesses, seed + 2)
    for lesson in (
        Lesson("copying", sure, copying_steps, 64, SHORT, 0.0, (-120, 400), (rate, rate / 2)),
        Lesson("habits", unsure, habits_steps, 64, SHORT, 0.1, (-120, 400), (rate / 2, rate / 4)),
        Lesson("prompt", unsure, prompt_steps, 32, 9000, 1.0, (0, 60), (rate / 2, 0.0)),
    ):
        teach(model, lesson, rng)
        save(model, tokenizer, out)


if __name__ == "__main__":
    typer.run(main)
