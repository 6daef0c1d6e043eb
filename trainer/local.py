"""vLLM and the proxy on this machine, as children of a command that needs both and ends both."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from certs import ca
from trainer import processes, serve
from trainer.plan import Plan
from trainer.serve import ServeOptions

WINDOW = 8192
"""Tokens of prompt and reply where nothing else is asked for: an end to a model that babbles."""


@dataclass(slots=True)
class LocalStack:
    """vLLM on `model`, and `tap up` before it; `stack` ends every process.

    `engine` names a vLLM that runs already, and is set to ours otherwise; with one, an empty `model` means the files
    that it says it serves. `home` holds CA and secret, `logs` vllm.log and tap.log. `max_tokens` caps one reply;
    `window` is of prompt and reply. `lora_rank` is vLLM's, as `trainer serve` has it.
    """

    model: str
    store_url: str
    home: Path
    logs: Path
    stack: ExitStack
    say: Callable[[str], None]
    engine: str = ""
    window: int | None = None
    max_tokens: int = 512
    sequences: int = 32
    lora_rank: int | None = None
    proxy_port: int = field(init=False, default=0)

    def start(self) -> None:
        """Start both and wait until both serve. Raises processes.ProcessFailed with the tail of a log."""
        if self.engine:
            self.say(f"using the vLLM at {self.engine}")
            serve.wait_ready(self.engine, None, timeout=5.0)
            self._start_proxy()
            return
        if not self.model:
            raise ValueError("without a vLLM that runs already there must be a model to start one on")
        self.say(f"starting vLLM on {self.model}")
        port = processes.free_port()
        self.engine = f"http://127.0.0.1:{port}"
        window = self.window or min(serve.native_length(Path(self.model)) or WINDOW, WINDOW)
        # On a GPU the trainer needs its part of the same memory.
        share = () if serve.is_cpu_build() else ("--gpu-memory-utilization", "0.4")
        extra = ("--max-num-seqs", str(self.sequences), *share)
        options = ServeOptions(model=self.model, port=port, max_model_len=window, lora_rank=self.lora_rank, extra=extra)
        vllm = serve.start(options, log=self.logs / "vllm.log")
        self.stack.callback(processes.stop, vllm)
        self._start_proxy()  # it need not wait for vLLM
        serve.wait_ready(self.engine, vllm, log=self.logs / "vllm.log")
        self.say(f"vLLM is ready at {self.engine}")

    def through(self, plan: Plan) -> Plan:
        """`plan` through this proxy."""
        bundle = ca.load(self.home).bundle
        return replace(plan, proxy_host="127.0.0.1", proxy_port=self.proxy_port, home=self.home, bundle=bundle)

    def explain(self, log: Path) -> str:
        """The ends of a harness's log and the proxy's, for when nothing worked."""
        tap = self.logs / "tap.log"
        return f"--- {log}\n{processes.tail(log)}\n--- {tap}\n{processes.tail(tap)}"

    def _start_proxy(self) -> None:
        tap = Path(sys.executable).with_name("tap")
        if not tap.exists():
            raise FileNotFoundError(f"{tap} does not exist: install this project into the environment (pip install .)")
        self.proxy_port = processes.free_port()
        argv = [str(tap), "up", "--port", str(self.proxy_port), "--engine", self.engine]
        argv += ["--store", self.store_url, "--home", str(self.home), "--keys", "required"]
        if self.model:
            argv += ["--model", self.model]
        argv += ["--sampling", "full", "--max-tokens", str(self.max_tokens)]
        proxy = processes.start(argv, log=self.logs / "tap.log")
        self.stack.callback(processes.stop, proxy)
        processes.wait_for("the proxy", self._listens, proxy, self.logs / "tap.log", 60.0)
        self.say(f"the proxy listens on 127.0.0.1:{self.proxy_port}")

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.proxy_port), timeout=1).close()
        except OSError:
            return False
        return True
