"""From what a harness asks to what vLLM is sent, and whether the outcome can be trained on.

The distribution that vLLM samples from must be one the trainer can compute again. It knows temperature; it
does not know nucleus cuts, penalties, biases or grammars. vLLM's own defaults come from the model's
generation_config.json, so every parameter that shapes the distribution is sent, none is left to chance.

Stop strings are not sent: vLLM would find them in reasoning and in tool calls too. The reply parser finds them in
visible text, and the sampling is then dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from addons.conversation import Sampling
from addons.errors import ContextLengthExceeded

Policy = Literal["asked", "full"]

FULL: dict[str, Any] = {
    "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "repetition_penalty": 1.0,
}  # fmt: skip
"""The model's whole distribution, in vLLM's words."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters to send, what was asked but not honoured, and why the turn can't be trained (or None)."""

    params: dict[str, Any]
    overridden: tuple[str, ...]
    untrainable: str | None


def plan(
    asked: Sampling, *, policy: Policy, prompt_tokens: int, window: int, output_cap: int | None,
    stop_ids: tuple[int, ...], constraint: dict[str, Any] | None, top_logprobs: int = 0,
    train_constrained: bool = False, seed: int | None = None,
) -> Plan:  # fmt: skip
    """Parameters for one call.

    Args:
        asked: the harness's own.
        policy: `asked` honours them; `full` samples from the whole distribution at temperature 1 whatever is
            asked, as on-policy training wants.
        prompt_tokens: length of the prompt.
        window: longest prompt + completion the server takes.
        output_cap: an upper bound on the completion set by whoever runs the rollouts, or None.
        stop_ids: the model's own end-of-turn ids.
        constraint: vLLM's `structured_outputs`, or None.
        top_logprobs: how many of the likeliest tokens to report at each place.
        train_constrained: a constraint alone does not keep the turn from training. Its logprobs are those of the
            constrained distribution, above what the trainer computes: the turn is off-policy, and `structured_outputs`
            among its sampling parameters tells it from others.
        seed: of the call, where the harness asks for none; None leaves the draw to vLLM.

    Raises:
        ContextLengthExceeded: the prompt leaves no room for a single token.
    """
    room = window - prompt_tokens
    if room < 1:
        raise ContextLengthExceeded(prompt_tokens, window)
    wanted = asked.asked()
    shape = {name: wanted[name] for name in FULL if name in wanted}
    overridden: tuple[str, ...] = ()
    if policy == "full":
        overridden = tuple(name for name, value in shape.items() if value != FULL[name])
        if asked.logit_bias:
            overridden += ("logit_bias",)
        shape = {}
    params = {**FULL, **shape}
    params["top_k"] = max(params["top_k"], 0)  # -1 and 0 both mean off; one spelling in the record
    if params["top_p"] == 0:  # nothing but the likeliest token; vLLM has another word for it
        params |= {"top_p": 1.0, "temperature": 0.0}
    limits = [room] + [cap for cap in (asked.max_tokens, output_cap) if cap is not None]
    params["max_tokens"] = min(limits)
    params["stop_token_ids"] = list(stop_ids)
    if asked.seed is not None or seed is not None:
        params["seed"] = seed if asked.seed is None else asked.seed
    if asked.logit_bias and policy == "asked":
        params["logit_bias"] = asked.logit_bias
    if constraint is not None:
        params["structured_outputs"] = constraint
    if top_logprobs:
        params["logprobs"] = top_logprobs
    return Plan(params, overridden, _untrainable(params, train_constrained=train_constrained))


def _untrainable(params: dict[str, Any], *, train_constrained: bool) -> str | None:
    if "structured_outputs" in params and not train_constrained:
        return "constrained decoding"
    altered = [f"{name}={params[name]}" for name in FULL if name != "temperature" and params[name] != FULL[name]]
    if "logit_bias" in params:
        altered.append("logit_bias")
    if params["temperature"] == 0:
        altered.append("temperature=0")
    return f"sampling distribution altered: {', '.join(altered)}" if altered else None
