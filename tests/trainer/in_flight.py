"""A completion that is still being sampled when the weights change."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import httpx

_TOKENS = 1500


def sample_across(
    url: str, model: str, prompt: list[int], change: Callable[[], object]
) -> tuple[list[int], list[float]]:
    """Ids and logprobs of a long completion of `prompt`; `change` is called as soon as it has begun."""
    ids: list[int] = []
    logprobs: list[float] = []
    started = threading.Event()

    def stream() -> None:
        body = {
            "model": model, "prompt": prompt, "max_tokens": _TOKENS, "ignore_eos": True, "temperature": 1.0,
            "logprobs": 0, "return_token_ids": True, "stream": True,
        }  # fmt: skip
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=120) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    [choice] = json.loads(line[6:])["choices"]
                    ids.extend(choice["token_ids"])
                    logprobs.extend(choice["logprobs"]["token_logprobs"])
                    if len(ids) > 20:
                        started.set()

    thread = threading.Thread(target=stream)
    thread.start()
    assert started.wait(60)
    change()
    thread.join(120)
    assert len(ids) == len(logprobs) == _TOKENS
    return ids, logprobs
