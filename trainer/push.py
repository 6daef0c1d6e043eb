"""New weights into a running vLLM, and the proof that they arrived.

Pause, reload, reset the prefix cache, name the version, resume: requests in flight go on under the new weights. Each
step has failed silently somewhere (a reload that leaves tied weights wrong, cached keys and values of the old weights),
so afterwards a few tokens are sampled and their logprobs compared with the trainer's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

PROBE_TOKENS = 8
FP32_TOLERANCE = 1e-3
BF16_TOLERANCE = 0.25
_RELOAD_SECONDS = 600.0

Score = Callable[[Sequence[int], int], list[float]]
"""(ids, start) -> logprobs in nats of ids[start:], by the trainer's own model at temperature 1."""


class PushError(RuntimeError):
    """A push did not happen; the server still has, or again has, the weights and version it had before."""


class DevModeOff(PushError):
    """The server does not offer the endpoints that change weights."""


class PushMismatch(RuntimeError):
    """The server's logprobs under the new weights are not the trainer's. `probes` has the figures."""

    def __init__(self, probes: Sequence[Probe], tolerance: float, consequence: str) -> None:
        worst = max(probes, key=lambda probe: probe.gap)
        shown = ", ".join(f"{a:.4f}/{b:.4f}" for a, b in zip(worst.served, worst.expected, strict=True))
        super().__init__(
            f"the served policy is not the trained one: logprobs differ by up to {worst.gap:.4g} nats (allowed "
            f"{tolerance:g}) over {len(probes)} probes; the worst one, served/expected: {shown}. {consequence}"
        )
        self.probes = tuple(probes)
        self.tolerance = tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Tokens sampled by the server after `prompt_tokens` tokens, with its logprobs and the trainer's (nats)."""

    prompt_tokens: int
    sampled: tuple[int, ...]
    served: tuple[float, ...]
    expected: tuple[float, ...]

    @property
    def gap(self) -> float:
        """The largest difference."""
        return max(abs(a - b) for a, b in zip(self.served, self.expected, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """A push that was verified: `gap` is the largest logprob difference found; `paused` the seconds of silence."""

    version: str
    gap: float
    paused: float
    probes: int


@dataclass(slots=True)
class WeightServer:
    """The vLLM at `url`, as far as its weights are concerned. A context manager."""

    url: str
    transport: httpx.BaseTransport | None = None
    _http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self._http = httpx.Client(base_url=self.url, timeout=_RELOAD_SECONDS, trust_env=False, transport=self.transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.close()

    def model(self) -> str:
        """The name under which the model is served."""
        name: str = self._call("GET", "/v1/models")["data"][0]["id"]
        return name

    def version(self) -> str:
        """The weight version; vLLM calls it "default" until it has been given another."""
        version: str = self._call("GET", "/weight_info")["weight_version"]
        return version

    def set_version(self, version: str) -> None:
        """Name the weights the server has."""
        self._call("POST", "/update_weight_version", json={"new_version": version})

    def swap(self, weights: Path, version: str) -> float:
        """Replace the weights by those in `weights` (seen by the server under this path); return seconds paused.

        The server is resumed whatever happens.
        """
        with self._paused() as began:
            self._call(
                "POST",
                "/collective_rpc",
                json={"method": "reload_weights", "kwargs": {"weights_path": str(weights)}},
            )
            reset = self._call("POST", "/reset_prefix_cache", params={"reset_running_requests": "true"})
            if not reset.get("success"):
                raise PushError(f"vLLM did not reset its prefix cache: {reset}")
            self.set_version(version)
        return time.monotonic() - began

    @contextmanager
    def _paused(self) -> Iterator[float]:
        began = time.monotonic()
        self._call("POST", "/pause", params={"mode": "keep"})
        try:
            yield began
        finally:
            self._call("POST", "/resume")

    def sample(self, prompt: Sequence[int], tokens: int, *, seed: int | None = None) -> tuple[list[int], list[float]]:
        """Sample `tokens` ids after `prompt` from the whole distribution; the ids and their logprobs."""
        body = {
            "model": self.model(),
            "prompt": list(prompt),
            "max_tokens": tokens,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "logprobs": 0,
            "return_token_ids": True,
            "seed": seed,
        }
        [choice] = self._call("POST", "/v1/completions", json=body)["choices"]
        return choice["token_ids"], choice["logprobs"]["token_logprobs"]

    def _call(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, **kwargs)
        except httpx.TransportError as error:
            raise PushError(f"no vLLM answers at {self.url} ({error or type(error).__name__})") from error
        if response.status_code == 404:
            raise DevModeOff(
                f"{path} is not there: start vLLM with `trainer serve`, or set VLLM_SERVER_DEV_MODE=1 when starting it"
            )
        if response.is_error:
            raise PushError(f"vLLM answered {response.status_code} to {path}: {response.text[:500]}")
        answer: dict[str, Any] = response.json() if response.content else {}
        return answer


def next_version(current: str, at_least: int = 0) -> str:
    """The version after `current` ("default" is vLLM's word for none) and after `at_least`: "1", "2", ...

    Raises ValueError for a version that is not a number: somebody else names the weights of this server.
    """
    if current != "default" and not current.isdecimal():
        raise ValueError(f"the server's weights are called {current!r}, which is not a number: name the next yourself")
    return str(max(0 if current == "default" else int(current), at_least) + 1)


def push(
    server: WeightServer,
    weights: Path,
    version: str,
    *,
    prompts: Sequence[Sequence[int]],
    score: Score,
    tolerance: float = FP32_TOLERANCE,
    fallback: Path | None = None,
) -> Pushed:
    """Load `weights` into `server` as `version`, then compare logprobs on `prompts` with `score`'s.

    The prompts are asked once before, too, so that a prefix cache that survived the reload would be caught. Prompts
    longer than a block of that cache (128 tokens on CPU, 16 on GPUs) are the ones that can tell.

    Raises PushError when a step fails; PushMismatch when a logprob differs by more than `tolerance` nats. The version
    is then the old one again, and so are the weights if `fallback` names a directory that has them.
    """
    if not prompts or not all(prompts):
        raise ValueError("a push needs at least one prompt to verify, and no empty ones")
    before = server.version()
    for prompt in prompts:
        server.sample(prompt, 1)
    try:
        paused = server.swap(weights.resolve(), version)
    except PushError:
        # A reload that broke half-way leaves half-new weights: say so by giving back what can be given back.
        _restore(server, fallback, before)
        raise
    probes = [_probe(server, prompt, score, seed) for seed, prompt in enumerate(prompts)]
    gap = max(probe.gap for probe in probes)
    if not gap <= tolerance:  # also when it is NaN
        raise PushMismatch(probes, tolerance, _restore(server, fallback, before))
    return Pushed(version=version, gap=gap, paused=paused, probes=len(probes))


def _probe(server: WeightServer, prompt: Sequence[int], score: Score, seed: int) -> Probe:
    sampled, served = server.sample(prompt, PROBE_TOKENS, seed=seed)
    expected = score([*prompt, *sampled], len(prompt))
    return Probe(prompt_tokens=len(prompt), sampled=tuple(sampled), served=tuple(served), expected=tuple(expected))


def _restore(server: WeightServer, fallback: Path | None, version: str) -> str:
    """Go back to `version`; what to tell about it."""
    if fallback is None:
        server.set_version(version)
        return f"The version stays {version}, but the server holds unproven weights: restart it, or push good ones."
    server.swap(fallback.resolve(), version)
    return f"The server has the weights of {fallback} (version {version}) again."
