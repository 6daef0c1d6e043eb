"""Solve rate of a checkpoint: `python -m trainer.tiny.evaluate CHECKPOINT TASKS`.

Sessions as a harness would hold them (its own prompt and formats, commands really executed), but with transformers
sampling many at once instead of the program and a server: a hundred sessions take seconds.
"""

import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import torch
import typer
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from trainer.tasks import Task, load_tasks
from trainer.tiny.harness import Harness, Message, MiniSweAgent, run
from trainer.tiny.shells import LISTS, SHELLS, SUBMIT
from trainer.tiny.watched import Watched

MAX_CALLS = 8
MAX_NEW_TOKENS = 64
BATCH = 48


@dataclass
class Session:
    """One attempt at a task."""

    task: Task
    workspace: Path
    messages: list[Message]
    commands: list[str] = field(default_factory=list)
    malformed: int = 0
    submitted: bool = False
    reward: float | None = None


@torch.inference_mode()
def sample(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sessions: list[Session], harness: Harness
) -> list[str]:
    """One sampled reply (text, special tokens kept) for each session, at temperature 1."""
    prompts = [
        tokenizer.apply_chat_template(s.messages, tools=harness.tools, tokenize=False, add_generation_prompt=True)
        for s in sessions
    ]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
    output = model.generate(
        input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"],
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=MAX_NEW_TOKENS,
    )  # fmt: skip
    new = output[:, inputs["input_ids"].shape[1] :]
    return [text.replace("<|endoftext|>", "") for text in tokenizer.batch_decode(new)]


def step(session: Session, reply: str, tokenizer: PreTrainedTokenizerBase, harness: Harness) -> None:
    """Do in `session` what the harness does with `reply`."""
    try:
        message = tokenizer.parse_response(reply, prefix="<|im_start|>assistant\n")
        calls = [call["function"] for call in message.get("tool_calls") or []]
        given = [(name, call["arguments"][name]) for call in calls for name in [SHELLS[call["name"]]]]
        commands = [command for name, value in given for command in (value if name in LISTS else [value])]
    except (ValueError, KeyError, TypeError):
        message, commands = {"role": "assistant", "content": reply.removesuffix("<|im_end|>")}, []
    session.messages.append(message)
    if not commands and isinstance(harness, MiniSweAgent):
        session.malformed += 1
        session.messages.append(harness.complaint())
    elif not commands:
        session.malformed += message != harness.finish()
        session.submitted = True
    for command in commands:
        session.commands.append(command)
        if command.strip() == SUBMIT:
            session.submitted = True
            return
        session.messages.append(harness.result(command, run(command, session.workspace)))


def attempt(
    tasks: list[Task],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    harness: Harness,
    samples: int,
    rng: random.Random,
) -> list[Session]:
    """`samples` finished and scored sessions for each of `tasks`."""
    with tempfile.TemporaryDirectory() as folder:
        sessions = [
            Session(task, Path(folder) / f"{task.name}-{i}", harness.draw_opening(task.prompt, rng))
            for task in tasks
            for i in range(samples)
        ]
        for session in sessions:
            session.task.prepare(session.workspace)
        for _ in range(MAX_CALLS):
            running = [session for session in sessions if not session.submitted]
            for batch in (running[i : i + BATCH] for i in range(0, len(running), BATCH)):
                for session, reply in zip(batch, sample(model, tokenizer, batch, harness), strict=True):
                    step(session, reply, tokenizer, harness)
        for session in sessions:
            session.reward = session.task.verify(session.workspace).reward
    return sessions


def main(
    checkpoint: Annotated[Path, typer.Argument(help="Folder of the checkpoint.")],
    tasks: Annotated[Path, typer.Argument(help="Folder of the task set.")],
    samples: Annotated[int, typer.Option(help="Sessions for each task.")] = 16,
    mini: Annotated[Path | None, typer.Option(help="Folder `minisweagent` of an installed mini-swe-agent 2.4.")] = None,
    watched: Annotated[Path | None, typer.Option(help="Another harness, as `trainer.tiny.watch` wrote it.")] = None,
    threads: Annotated[int, typer.Option(help="Torch threads.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    show: Annotated[bool, typer.Option(help="Also print every session's commands.")] = False,
) -> None:
    """Print the solve rate of CHECKPOINT on each task of TASKS, and the mean."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    harness: Harness = MiniSweAgent.load(mini) if watched is None else Watched.load(watched)
    sessions = attempt(load_tasks(tasks), model, tokenizer, harness, samples, random.Random(seed))
    for name in dict.fromkeys(session.task.name for session in sessions):
        group = [session for session in sessions if session.task.name == name]
        typer.echo(f"{sum(session.reward or 0.0 for session in group) / samples:6.1%}  {name}")
        for session in group if show else []:
            typer.echo(f"          {session.reward} {' | '.join(session.commands)}")
    count = len(sessions)
    typer.echo(
        f"{sum(session.reward or 0.0 for session in sessions) / count:6.1%}  mean of {count} sessions; "
        f"{sum(session.submitted for session in sessions) / count:.1%} submitted, "
        f"{sum(session.malformed for session in sessions)} malformed replies, "
        f"{sum(len(session.commands) for session in sessions) / count:.2f} calls a session"
    )


if __name__ == "__main__":
    typer.run(main)
