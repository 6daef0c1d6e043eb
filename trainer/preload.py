"""Run by a harness's own Python: imports the harness once, then forks a process a session.

Many Python harnesses spend seconds on imports before they do anything. Here the same code is imported by a parent, and
each session is a fork of it that runs the harness's own console script, under its own environment. What a harness reads
from its environment while it is imported, it reads once, from the parent's.

Standard library only: this file knows nothing of the environment that it runs in.

    python preload.py SCRIPT MODULE...          SCRIPT: a console script of the harness

Reads one JSON object a line: {"id", "argv", "env", "cwd", "log"}. Writes {"ready": true} once, then {"id", "pid"} when
a session has begun and {"id", "status"} when it has ended: its exit status, negative for a signal.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any


def main(script: str, modules: Sequence[str]) -> None:
    """Serve until stdin ends, then until the last session has ended."""
    out = os.dup(1)
    os.dup2(2, 1)  # what the harness prints while it is imported is no answer of ours
    [entry] = entry_points(group="console_scripts", name=script)
    run = entry.load()
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # the pages of what was imported stay shared
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(wake, selectors.EVENT_READ)
    running: dict[int, Any] = {}
    rest, open_ = b"", True
    tell(out, {"ready": True})
    while open_ or running:
        for key, _ in selector.select():
            if key.fd == wake:
                os.read(wake, 4096)
                continue
            chunk = os.read(0, 1 << 16)
            if not chunk:
                open_ = False
                selector.unregister(0)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                request = json.loads(line)
                alone, told = os.pipe()
                pid = os.fork()
                if pid == 0:
                    become(run, script, request, (wake, woken, alone, told, out))
                os.close(told)
                os.read(alone, 1)  # to its end: the session has a process group of its own, and can be ended by it
                os.close(alone)
                running[pid] = request["id"]
                tell(out, {"id": request["id"], "pid": pid})
        while running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            tell(out, {"id": running.pop(pid), "status": os.waitstatus_to_exitcode(status)})


def become(run: Callable[[], object], script: str, request: dict[str, Any], parents: Sequence[int]) -> None:
    """Be one session, to the end of this process. `parents` are file descriptors that only the parent needs."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for descriptor in parents:  # one of them tells the parent of the line above
            os.close(descriptor)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.argv = [script, *request["argv"]]
        try:
            result = run()
        except SystemExit as leaving:
            result = leaving.code
        if isinstance(result, str):
            print(result, file=sys.stderr)
        status = result if isinstance(result, int) else int(result is not None)
    except BaseException:  # noqa: BLE001 # the process ends here, like any other program that raised
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status & 0xFF)


def tell(out: int, what: dict[str, Any]) -> None:
    """One line on the file descriptor `out`, to whoever started this."""
    os.write(out, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
