from __future__ import annotations

import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from trainer import processes, serve
from trainer.processes import ProcessFailed
from trainer.serve import ServeOptions


def option(argv: list[str], name: str) -> str | None:
    return argv[argv.index(name) + 1] if name in argv else None


def test_cpu_command() -> None:
    argv = serve.command(ServeOptions(model="m", port=8001, max_model_len=512, extra=("--max-num-seqs", "4")), cpu=True)
    assert argv[1:5] == ["-m", "trainer.vllm_main", "serve", "m"]
    assert (option(argv, "--dtype"), option(argv, "--host"), option(argv, "--port")) == ("float32", "127.0.0.1", "8001")
    assert option(argv, "--logprobs-mode") == "processed_logprobs"
    assert option(argv, "--max-model-len") == "512"
    assert "--enforce-eager" in argv
    assert "--no-enable-chunked-prefill" in argv
    assert argv[-2:] == ["--max-num-seqs", "4"]


def test_gpu_command_leaves_vllm_its_own_choices() -> None:
    argv = serve.command(ServeOptions(model="m"), cpu=False)
    assert "--dtype" not in argv
    assert "--enforce-eager" not in argv
    assert "--no-enable-chunked-prefill" not in argv
    assert option(argv, "--logprobs-mode") == "processed_logprobs"
    assert option(serve.command(ServeOptions(model="m", dtype="bfloat16"), cpu=False), "--dtype") == "bfloat16"


def test_one_adapter_from_the_start() -> None:
    """Of the least rank that vLLM accepts and that is not less than ours."""
    options = ServeOptions(model="m", lora_rank=4, extra=("--max-num-seqs", "4"))
    argv = serve.command(options, cpu=True, adapter=Path("/blank"))
    assert "--enable-lora" in argv
    assert (option(argv, "--max-lora-rank"), option(argv, "--max-loras")) == ("8", "1")
    assert option(argv, "--lora-modules") == "policy=/blank"
    assert option(argv, "--worker-extension-cls") == "trainer.vllm_worker.SwapsAdapter"
    assert "--enable-lora" not in serve.command(ServeOptions(model="m"), cpu=True)


def test_what_adapters_do_not_go_with() -> None:
    with pytest.raises(ValueError, match="rank 512 at most, not 600"):
        serve.command(ServeOptions(model="m", lora_rank=600), cpu=True)
    for word in ("--lora-modules", "--max-loras=2"):
        with pytest.raises(ValueError, match=f"{word} cannot be given with --lora-rank"):
            serve.command(ServeOptions(model="m", lora_rank=8, extra=(word, "x")), cpu=True)


def test_nccl_is_for_gpus() -> None:
    argv = serve.command(ServeOptions(model="m", nccl=True), cpu=False)
    assert option(argv, "--weight-transfer-config") == '{"backend": "nccl"}'
    with pytest.raises(ValueError, match="--nccl needs vLLM on a GPU"):
        serve.command(ServeOptions(model="m", nccl=True), cpu=True)


def test_environment(checkpoint: Path) -> None:
    local = serve.environment(ServeOptions(model=str(checkpoint), max_model_len=9000), cpu=True, base={})
    assert local["VLLM_SERVER_DEV_MODE"] == "1"
    assert local["HF_HUB_OFFLINE"] == "1"
    assert local["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] == "1"
    assert local["VLLM_CPU_KVCACHE_SPACE"] == "2"
    shorter = serve.environment(ServeOptions(model=str(checkpoint), max_model_len=100), cpu=False, base={})
    assert "VLLM_ALLOW_LONG_MAX_MODEL_LEN" not in shorter
    assert "VLLM_CPU_KVCACHE_SPACE" not in shorter
    hub = serve.environment(ServeOptions(model="org/name"), cpu=True, base={"VLLM_CPU_KVCACHE_SPACE": "7"})
    assert "HF_HUB_OFFLINE" not in hub
    assert hub["VLLM_CPU_KVCACHE_SPACE"] == "7"


@pytest.mark.parametrize(
    "words", [["--host", "0.0.0.0"], ["--logprobs-mode=raw_logprobs"], ["--worker-extension-cls", "a.B"]]
)
def test_arguments_that_would_break_promises(words: list[str]) -> None:
    with pytest.raises(ValueError, match=words[0].split("=")[0]):
        serve.parse_extra(words)


def test_missing_checkpoint(tmp_path: Path) -> None:
    for model in (str(tmp_path), "./nowhere", "/a/b/c"):
        with pytest.raises(FileNotFoundError, match="no checkpoint in"):
            serve.check_model(model)
    serve.check_model("org/name")


def test_wait_ready_reports_the_log_of_what_died(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    process = processes.start([sys.executable, "-c", "print('out of memory'); raise SystemExit(7)"], log=log)
    with pytest.raises(ProcessFailed, match=r"(?s)ended with status 7.*out of memory"):
        serve.wait_ready(f"http://127.0.0.1:{processes.free_port()}", process, log=log, timeout=60)


def test_wait_ready_gives_up(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    process = processes.start(["sleep", "600"], log=log)
    try:
        with pytest.raises(ProcessFailed, match=r"not ready after 0 s"):
            serve.wait_ready(f"http://127.0.0.1:{processes.free_port()}", process, log=log, timeout=0.3)
    finally:
        assert processes.stop(process) == -15


def test_wait_ready_sees_health() -> None:
    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        serve.wait_ready(f"http://127.0.0.1:{server.server_port}", None, timeout=10)
        server.shutdown()


def test_stop_ends_the_whole_group(tmp_path: Path) -> None:
    """Also children of a leader that is gone already."""
    script = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    log = tmp_path / "log"
    process = processes.start([sys.executable, "-c", script], log=log)
    process.wait(30)
    child = Path(f"/proc/{log.read_text().strip()}")
    assert child.exists()
    processes.stop(process)
    for _ in range(100):  # the kernel takes a moment
        if not child.exists() or "Z" in (child / "stat").read_text().split()[2]:
            return
        time.sleep(0.05)
    pytest.fail("the child outlived its group")


def test_launcher_answers_for_vllm() -> None:
    code = (
        "import trainer.vllm_main, importlib.metadata as m;"
        "print(m.version('vllm'), m.metadata('vllm')['Name'], len(m.requires('vllm') or []) > 10)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, name, requires = done.stdout.split()
    assert version.startswith("0.32")
    assert (name, requires) == ("vllm", "True")
    assert ("cpu" in version) == serve.is_cpu_build()
