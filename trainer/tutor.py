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
        engine = scripted(teacher.script, logs / "script.log", stack, model=student.model, seed=seed)
    local = replace(student, model=teacher.model or "", engine=engine, logs=logs, stack=stack, lora_rank=None)
    local.start()
    return local


def scripted(script: Path, log: Path, stack: ExitStack, *, model: str = "", seed: int | None = None) -> str:
    """Start `tap scripted` on `script` until `stack` ends it; its address.

    `model` names the files of its tokens (empty: one token a byte); the script finds `seed` in TEACHER_SEED. Raises
    processes.ProcessFailed with the tail of `log`.
    """
    port = processes.free_port()
    argv = [str(Path(sys.executable).with_name("tap")), "scripted", str(script), "--port", str(port)]
    argv += ["--model", model] if model else []
    environment = os.environ | ({} if seed is None else {"TEACHER_SEED": str(seed)})
    process = processes.start(argv, log=log, env=environment)
    stack.callback(processes.stop, process)
    engine = f"http://127.0.0.1:{port}"
    serve.wait_ready(engine, process, log=log, timeout=_READY_SECONDS)
    return engine
