"""New weights into a running vLLM, and the proof that they arrived.

Pause, load, reset the prefix cache, name the version, resume: requests in flight go on under the new weights. How they
are loaded is the way's affair (:mod:`trainer.push.ways`). Each step has failed silently somewhere (a reload that leaves
tied weights wrong, cached keys and values of the old weights), so afterwards a few tokens are sampled and their
logprobs compared with the trainer's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.push.reload import Reload
from trainer.push.server import PushError, WeightServer
from trainer.push.ways import Way

PROBE_TOKENS = 8
FP32_TOLERANCE = 1e-3
BF16_TOLERANCE = 0.25

Score = Callable[[Sequence[int], int], list[float]]
"""(ids, start) -> logprobs in nats of ids[start:], by the trainer's own model at temperature 1."""


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


def next_version(current: str, at_least: int = 0) -> str:
    """The version after `current` ("default" is vLLM's word for none) and after `at_least`: "1", "2", ...

    Raises ValueError for a version that is not a number: somebody else names the weights of this server.
    """
    if current != "default" and not current.isdecimal():
        raise ValueError(f"the server's weights are called {current!r}, which is not a number: name the next yourself")
    return str(max(0 if current == "default" else int(current), at_least) + 1)


def swap(server: WeightServer, directory: Path, version: str, way: Way | None = None) -> float:
    """Load `directory` (seen by the server under this path) as `version`, unverified; return seconds paused."""
    began = time.monotonic()
    with server.swapping(version):
        (way or Reload()).load(server, directory.resolve())
    return time.monotonic() - began


def push(
    server: WeightServer,
    directory: Path,
    version: str,
    *,
    prompts: Sequence[Sequence[int]],
    score: Score,
    way: Way | None = None,
    tolerance: float = FP32_TOLERANCE,
    fallback: Path | None = None,
) -> Pushed:
    """Load `directory` into `server` as `version`, then compare logprobs on `prompts` with `score`'s.

    `way` (default: Reload) says what `directory` and `fallback` hold, and how they are loaded. The prompts are asked
    once before, too, so that a prefix cache that survived would be caught. Prompts longer than a block of that cache
    (128 tokens on CPU, 16 on GPUs) are the ones that can tell.

    Raises PushError when a step fails; PushMismatch when a logprob differs by more than `tolerance` nats. The version
    is then the old one again, and so are the weights if `fallback` names a directory that has them.
    """
    if not prompts or not all(prompts):
        raise ValueError("a push needs at least one prompt to verify, and no empty ones")
    before = server.version()
    for prompt in prompts:
        server.sample(prompt, 1)
    try:
        paused = swap(server, directory, version, way)
    except PushError:
        # What broke half-way leaves half-new weights: say so by giving back what can be given back.
        _restore(server, fallback, before, way)
        raise
    probes = [_probe(server, prompt, score, seed) for seed, prompt in enumerate(prompts)]
    gap = max(probe.gap for probe in probes)
    if not gap <= tolerance:  # also when it is NaN
        raise PushMismatch(probes, tolerance, _restore(server, fallback, before, way))
    return Pushed(version=version, gap=gap, paused=paused, probes=len(probes))


def _probe(server: WeightServer, prompt: Sequence[int], score: Score, seed: int) -> Probe:
    sampled, served = server.sample(prompt, PROBE_TOKENS, seed=seed)
    expected = score([*prompt, *sampled], len(prompt))
    return Probe(prompt_tokens=len(prompt), sampled=tuple(sampled), served=tuple(served), expected=tuple(expected))


def _restore(server: WeightServer, fallback: Path | None, version: str, way: Way | None) -> str:
    """Go back to `version`; what to tell about it."""
    if fallback is None:
        server.set_version(version)
        return f"The version stays {version}, but the server holds unproven weights: restart it, or push good ones."
    swap(server, fallback, version, way)
    return f"The server has the weights of {fallback} (version {version}) again."
