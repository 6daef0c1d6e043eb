"""What the commands share: options, consoles, and errors said without a traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from certs.files import TrustError
from certs.harnesses import HarnessError
from replay.reader import UnknownSession
from replay.store import StoreError
from trainer import ranks
from trainer.advantages import NothingToTrain
from trainer.processes import ProcessFailed
from trainer.push import PushError, PushMismatch, WayName
from trainer.serve import VllmMissing
from trainer.tasks import TaskError
from trainer.tasks.sandbox import SandboxError

# Must be in place before torch starts its threads and before transformers looks.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # beside a busy vLLM, spinning threads cost most of the speed
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

CORES = os.cpu_count() or 2
console = Console()
errors = Console(stderr=True, soft_wrap=True)

StoreOption = Annotated[
    str, typer.Option("--store", envvar="HARNESSTAP_STORE", help="Database URL of the record.", show_default=True)
]
EngineOption = Annotated[str, typer.Option("--engine", envvar="HARNESSTAP_ENGINE", help="Where vLLM answers.")]
ReportOption = Annotated[
    str, typer.Option("--report-to", help="Watch the figures in tensorboard, trackio, wandb, ... or all.")
]
PushOption = Annotated[
    WayName | None, typer.Option("--push-by", help="Default: lora where both sides have adapters; else reload.")
]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Say what went wrong, without a traceback, where the message is made for the user.

    Of several processes each says its own: what rank 0 met is not said again by those that end with it. A command that
    was started as several, but is for one (not within ranks.joined), is refused.
    """
    expected = (
        FileNotFoundError, FloatingPointError, HarnessError, NothingToTrain, ProcessFailed, PushError, PushMismatch,
        SandboxError, StoreError, TaskError, TrustError, UnknownSession, ValueError, VllmMissing,
    )  # fmt: skip
    try:
        ranks.check_joined()
        yield
    except ranks.LeaderFailed as error:
        raise typer.Exit(1) from error
    except expected as error:
        where = f" on rank {ranks.rank()}" if ranks.rank() else ""
        errors.print(f"[bold red]error{where}:[/]", end=" ")
        errors.print(str(error), markup=False, highlight=False)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        errors.print("interrupted")
        raise typer.Exit(130) from None


def quiet_libraries() -> None:
    """No progress bars of transformers among our own output. Downloads have theirs, since they come before."""
    from transformers.utils import logging

    logging.disable_progress_bar()
