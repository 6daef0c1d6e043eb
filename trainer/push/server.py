"""The endpoints of a running vLLM that concern its weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from trainer.adapters import SERVED_NAME

_RELOAD_SECONDS = 600.0


class PushError(RuntimeError):
    """A push did not happen; the server still has, or again has, the weights and version it had before."""


class DevModeOff(PushError):
    """The server does not offer the endpoints that change weights."""


@dataclass(slots=True)
class WeightServer:
    """The vLLM at `url`, as far as its weights are concerned. A context manager."""

    url: str
    transport: httpx.BaseTransport | None = None
    _http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        # vLLM closes connections that are idle for five seconds, and minutes of training lie between two pushes: one
        # that is kept could be closed in the very moment that it is used again.
        self._http = httpx.Client(
            base_url=self.url,
            timeout=_RELOAD_SECONDS,
            trust_env=False,
            transport=self.transport,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.close()

    def model(self) -> str:
        """The name that the policy is asked under, by the proxy as well: the adapter's where there is one."""
        models = self.call("GET", "/v1/models")["data"]
        return SERVED_NAME if any(model["id"] == SERVED_NAME for model in models) else str(models[0]["id"])

    def first_adapter(self) -> Path | None:
        """The adapter that the server began with, which changes nothing; None where it was started without one."""
        for model in self.call("GET", "/v1/models")["data"]:
            if model["id"] == SERVED_NAME and model.get("parent"):
                return Path(model["root"])
        return None

    def version(self) -> str:
        """The weight version; vLLM calls it "default" until it has been given another."""
        version: str = self.call("GET", "/weight_info")["weight_version"]
        return version

    def set_version(self, version: str) -> None:
        """Name the weights the server has."""
        self.call("POST", "/update_weight_version", json={"new_version": version})

    def on_workers(self, method: str, **kwargs: str) -> None:
        """Call a method of every worker."""
        self.call("POST", "/collective_rpc", json={"method": method, "kwargs": kwargs})

    @contextmanager
    def swapping(self, version: str) -> Iterator[None]:
        """Requests stand still while the body changes the weights, and go on under those, called `version`.

        Whatever keys and values were computed with the old weights is computed again. The server is resumed whatever
        happens.
        """
        self.call("POST", "/pause", params={"mode": "keep"})
        try:
            yield
            reset = self.call("POST", "/reset_prefix_cache", params={"reset_running_requests": "true"})
            if not reset.get("success"):
                raise PushError(f"vLLM did not reset its prefix cache: {reset}")
            self.set_version(version)
        finally:
            self.call("POST", "/resume")

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
        [choice] = self.call("POST", "/v1/completions", json=body)["choices"]
        return choice["token_ids"], choice["logprobs"]["token_logprobs"]

    def call(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
        """One request; what is answered. Raises PushError, DevModeOff for an endpoint that is not there."""
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
