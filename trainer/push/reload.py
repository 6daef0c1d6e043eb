"""Push by files: vLLM reads a whole checkpoint again, over the weights that it has. Works on any device."""

from __future__ import annotations

from pathlib import Path

from trainer.push.server import WeightServer


class Reload:
    """Takes an export of the trainer (:mod:`trainer.export`): untied, adapters merged in."""

    adapters = False

    def check(self, server: WeightServer) -> None:
        """Whether the server can be pushed to: it has a weight version. Raises PushError."""
        server.version()

    def load(self, server: WeightServer, directory: Path) -> None:
        """Let every worker read `directory`, which it sees under this path. Raises PushError."""
        server.on_workers("reload_weights", weights_path=str(directory))
