"""Processes that do the same thing at the same moment."""

from __future__ import annotations

import subprocess
import sys


def race(script: str, *arguments: list[str]) -> list[str]:
    """Run `script` once for each list of arguments, all released together after their imports: their outputs.

    The script must call `go()` where the race begins.
    """
    gate = "import sys\ndef go():\n    print(flush=True)\n    sys.stdin.read()\n"
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([sys.executable, "-c", gate + script, *own], stdin=pipe, stdout=pipe, text=True)
        for own in arguments
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    outputs = []
    for process in processes:
        assert process.stdout is not None
        outputs.append(process.stdout.read())
        process.stdout.close()
        assert process.wait() == 0
    return outputs
