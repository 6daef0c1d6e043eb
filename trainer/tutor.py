"""A recipe's teacher, served: a model by vLLM, or a script in its place, behind a proxy of its own."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from trainer import processes, serve
from trainer.local import LocalStack
from trainer.recipe import Teacher

_READY_SECONDS = 60.0


def tutor(teacher: Teacher, student: LocalStack, stack: ExitStack, *, seed: int) -> LocalStack:
    """Start `teacher` beside `student`, with its record and secret; `stack` ends it.

    A script samples with the student's tokenizer and template. Raises processes.ProcessFailed with the tail of a log.
    """
    logs = student.logs / "teacher"
    engine = teacher.engine or ""
    if teacher.script is not None:
        engine = _script(teacher.script, student.model, logs, stack, seed)
    local = replace(student, model=teacher.model or "", engine=engine, logs=logs, stack=stack, lora_rank=None)
    local.start()
    return local


def _script(script: Path, model: str, logs: Path, stack: ExitStack, seed: int) -> str:
    """`tap scripted`; its address."""
    port = processes.free_port()
    argv = [str(Path(sys.executable).with_name("tap")), "scripted", str(script), "--model", model, "--port", str(port)]
    process = processes.start(argv, log=logs / "script.log", env={**os.environ, "TEACHER_SEED": str(seed)})
    stack.callback(processes.stop, process)
    engine = f"http://127.0.0.1:{port}"
    serve.wait_ready(engine, process, log=logs / "script.log", timeout=_READY_SECONDS)
    return engine
