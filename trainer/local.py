"""vLLM and the proxy on this machine, as children of a command that needs both and ends both."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import httpx

from certs import ca
from trainer import processes, serve
from trainer.plan import Plan
from trainer.processes import ProcessFailed
from trainer.serve import ServeOptions

WINDOW = 8192
"""Tokens of prompt and reply on a CPU, where nothing else is asked for: an end to a model that babbles.

On a GPU it is the model's own, or as much of it as fits into memory: harnesses say 20,000 tokens before the task.
"""
SEQUENCES = 32
"""Replies that vLLM samples at a time, at least."""

WATCH_SECONDS = 5.0


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
    sequences: int = SEQUENCES
    lora_rank: int | None = None
    proxy_port: int = field(init=False, default=0)
    _started: list[tuple[str, subprocess.Popen[bytes], Path]] = field(init=False, default_factory=list)
    """What was started here: its name, its process, its log."""

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
        options = ServeOptions(
            model=self.model,
            port=port,
            lora_rank=self.lora_rank,
            max_model_len=self.window,
            extra=("--max-num-seqs", str(self.sequences)),
        )
        options = self._sized(options, cpu=serve.is_cpu_build())
        vllm = serve.start(options, log=self.logs / "vllm.log")
        self.stack.callback(processes.stop, vllm)
        self._started.append(("vLLM", vllm, self.logs / "vllm.log"))
        self._start_proxy()  # it need not wait for vLLM
        serve.wait_ready(self.engine, vllm, log=self.logs / "vllm.log")
        self.say(f"vLLM is ready at {self.engine}")

    def _sized(self, options: ServeOptions, *, cpu: bool) -> ServeOptions:
        """`options` with the window and the memory that this machine allows."""
        if cpu:
            native = serve.native_length(Path(self.model)) or WINDOW
            return replace(options, max_model_len=self.window or min(native, WINDOW))
        # The trainer needs its part of the same memory.
        extra = (*options.extra, "--gpu-memory-utilization", "0.4")
        return replace(options, extra=extra if self.window else (*extra, "--max-model-len", "auto"))

    async def during[T](self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns, if vLLM and the proxy outlive it.

        Else it is cancelled, and ProcessFailed raised with the tail of a log: sessions without a model would each take
        their whole time to say nothing.
        """
        working, watching = asyncio.create_task(work), asyncio.create_task(self._watch())
        try:
            await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else watching.result()
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    async def _watch(self) -> NoReturn:
        async with httpx.AsyncClient(base_url=self.engine, timeout=30.0, trust_env=False) as client:
            while True:
                for name, process, log in self._started:
                    if (status := process.poll()) is not None:
                        raise ProcessFailed(f"{name} ended with status {status}\n--- {log}\n{processes.tail(log)}")
                try:
                    healthy = await client.get("/health")
                except httpx.TransportError:
                    healthy = None  # busy, or started anew by whoever runs it; ours is seen to end above
                if healthy is not None and healthy.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                    ours = [f"\n--- {log}\n{processes.tail(log)}" for name, _, log in self._started if name == "vLLM"]
                    raise ProcessFailed(f"the engine of the vLLM at {self.engine} has died{''.join(ours)}")
                await asyncio.sleep(WATCH_SECONDS)

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
        self._started.append(("the proxy", proxy, self.logs / "tap.log"))
        processes.wait_for("the proxy", self._listens, proxy, self.logs / "tap.log", 60.0)
        self.say(f"the proxy listens on 127.0.0.1:{self.proxy_port}")

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.proxy_port), timeout=1).close()
        except OSError:
            return False
        return True
