"""`trainer`, killed without warning: python -m tests.trainer.killed PLACE CALL ARGUMENTS...

The process ends by SIGKILL at the CALLth call of the function PLACE (module:name or module:Class.name), before that
call has done anything; with `+` before the place, after it is done.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

from trainer.cli import app


def kill_at(place: str, call: int) -> None:
    """Put a killer in the place of a function."""
    module, _, path = place.removeprefix("+").partition(":")
    owner: Any = importlib.import_module(module)
    *classes, name = path.split(".")
    for one in classes:
        owner = getattr(owner, one)
    function, calls = getattr(owner, name), 0

    def killed(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not place.startswith("+"):
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, killed)


if __name__ == "__main__":
    kill_at(sys.argv[1], int(sys.argv[2]))
    app(sys.argv[3:])
