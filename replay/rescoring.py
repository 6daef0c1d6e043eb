"""Stored sequences scored again by a running vLLM: do its weights give the recorded logprobs?

Whole paths of a session go to `/v1/completions` as prompts, with `prompt_logprobs`. vLLM gives those of the model's own
distribution, at temperature 1 and before any processing, whatever its `--logprobs-mode`: so the turns compared are
those that were sampled from that distribution. Of others the recorded logprobs are of another one, and that is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import httpx
from rich.table import Table
from rich.text import Text

from replay.reader import Reader
from replay.schema import Session, Turn
from replay.sequences import distorted, paths, temperature_of
from replay.tokens import visible

_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How far a turn's (from 1) recorded logprobs are from those of the server, in nats.

    `worst` is the largest difference, at token `at` of the reply; `mean` is of the absolute differences, `shift` of the
    signed ones (recorded minus served). `skipped` says why there are none.
    """

    turn: int
    tokens: int
    weight_version: str | None
    mean: float = 0.0
    shift: float = 0.0
    worst: float = 0.0
    at: int = 0
    skipped: str | None = None


class ScoringError(ValueError):
    """The server does not answer, or cannot score."""


class Scorer:
    """A vLLM at `url`. A context manager."""

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, timeout=_SECONDS, trust_env=False, transport=transport)
        self.model = ""
        self.window = 0
        self.weight_version: str | None = None

    def __enter__(self) -> Self:
        card = self._call("GET", "/v1/models")["data"][0]
        self.model, self.window = str(card["id"]), int(card.get("max_model_len") or 0)
        try:
            self.weight_version = str(self._call("GET", "/weight_info")["weight_version"])
        except ScoringError:
            self.weight_version = None  # a server without VLLM_SERVER_DEV_MODE=1 does not tell
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def logprobs(self, ids: Sequence[int]) -> list[float]:
        """The logprob (nats) of each of `ids` but the first, given those before it. Raises ScoringError."""
        body = {"model": self.model, "prompt": list(ids), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        [choice] = self._call("POST", "/v1/completions", body)["choices"]
        scored = choice.get("prompt_logprobs")
        if not isinstance(scored, list) or len(scored) != len(ids):
            raise ScoringError(f"{self.url} gives no prompt_logprobs: is it vLLM?")
        return [float(place[str(number)]["logprob"]) for number, place in zip(ids[1:], scored[1:], strict=True)]

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, json=body)
        except httpx.TransportError as error:
            raise ScoringError(f"no vLLM answers at {self.url} ({error or type(error).__name__})") from error
        if response.is_error:
            raise ScoringError(f"{self.url} answers {response.status_code} to {path}: {response.text[:500]}")
        answer: dict[str, Any] = response.json()
        return answer


def rescore(reader: Reader, session: Session, scorer: Scorer) -> list[Drift]:
    """Score a session's turns that sampled anything, in their order. Raises ScoringError."""
    turns = reader.turns(session, tokens=True)
    numbers = {turn.id: number for number, turn in enumerate(turns, 1)}
    by_id = {turn.id: turn for turn in turns}
    skipped = {turn.id: why for turn in turns if (why := _incomparable(turn, scorer.window)) is not None}
    comparable = {turn.id for turn in turns if turn.n_sampled and turn.id not in skipped}
    found = {
        turn.id: _drift(turn, numbers[turn.id], None, why)
        for turn in turns
        if turn.n_sampled and (why := skipped.get(turn.id)) is not None
    }
    for path in paths({turn.id: turn.parent_id for turn in turns}, comparable):
        last = by_id[path.turns[-1]]
        scored = scorer.logprobs([*reader.prompt_ids(last), *(last.sampled or [])])
        for number in path.trained:
            turn = by_id[number]
            start = turn.prompt_length - 1  # the first id has no logprob
            found[number] = _drift(turn, numbers[number], scored[start : start + turn.n_sampled], None)
    return [found[turn.id] for turn in turns if turn.id in found]


def document(drifts: Sequence[Drift], scorer: Scorer) -> dict[str, Any]:
    """As JSON."""
    compared = [drift for drift in drifts if drift.skipped is None]
    return {
        "server": {"url": scorer.url, "model": scorer.model, "weight_version": scorer.weight_version},
        "worst": max((drift.worst for drift in compared), default=None),
        "turns": [asdict(drift) for drift in drifts],
    }


def table(drifts: Sequence[Drift], tolerance: float) -> Table:
    """A line a turn."""
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in ("turn", "tokens", "mean |Δ|", "mean Δ", "max |Δ|", "at token", "weights"):
        view.add_column(header, justify="right", no_wrap=True)
    view.add_column("", overflow="fold")
    for drift in drifts:
        weights = Text(visible(drift.weight_version or "-"))
        if drift.skipped is not None:
            blank = ["-"] * 4
            view.add_row(f"#{drift.turn}", f"{drift.tokens:,}", *blank, weights, Text(visible(drift.skipped), "yellow"))
            continue
        worst = Text(f"{drift.worst:.2g}", "bold red" if drift.worst > tolerance else "green")
        view.add_row(
            f"#{drift.turn}", f"{drift.tokens:,}", f"{drift.mean:.2g}", f"{drift.shift:+.2g}", worst, str(drift.at),
            weights, "",
        )  # fmt: skip
    return view


def _incomparable(turn: Turn, window: int) -> str | None:
    """Why a turn's logprobs cannot be compared."""
    if len(turn.logprobs or ()) != turn.n_sampled:
        return "its logprobs are not recorded"
    if (how := distorted(turn.sampling_sent)) is not None:
        return f"not compared: {how}"
    if temperature_of(turn.sampling_sent) != 1.0:
        return f"not compared: sampled at temperature {temperature_of(turn.sampling_sent):g}, and vLLM scores at 1"
    if window and turn.prompt_length + turn.n_sampled >= window:
        return f"not compared: with a token more it does not fit the server's window of {window:,}"
    return None


def _drift(turn: Turn, number: int, served: Sequence[float] | None, skipped: str | None) -> Drift:
    if served is None:
        return Drift(turn=number, tokens=turn.n_sampled, weight_version=turn.weight_version, skipped=skipped)
    gaps = [a - b for a, b in zip(turn.logprobs or [], served, strict=True)]
    at = max(range(len(gaps)), key=lambda index: abs(gaps[index]))
    return Drift(
        turn=number, tokens=turn.n_sampled, weight_version=turn.weight_version, worst=abs(gaps[at]), at=at,
        mean=math.fsum(map(abs, gaps)) / len(gaps), shift=math.fsum(gaps) / len(gaps),
    )  # fmt: skip
