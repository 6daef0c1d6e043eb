"""How much of each prompt vLLM has in its prefix cache: ours, against rendering the whole conversation anew.

    python -m tests.bench.prefix_cache [FOLDER]

One session of an agent, under each of some chat templates, on a real vLLM with random weights: what a cache keeps
depends on token ids alone. The replies are the model's own text in its tokenizer's own spelling, and the harness sends
reasoning back, so re-rendering has its best case. After each turn vLLM is given what was sampled, as if it had sampled
it. What is not cached vLLM has to compute.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import torch
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

from addons.conversation import Conversation, Message, ToolCall
from addons.model import ModelFiles
from addons.prompts import Prompts
from tests.addons.kit import BASH, trl_templates
from tests.addons.real_models import real_model
from trainer import serve

TOKENIZER = "qwen3"
TEMPLATES = ("qwen2_5", "qwen3_instruct_2507", "qwen3", "qwen3_5_think", "qwen3_8")
ROUNDS = (
    "Fix the failing test.",
    "",
    "",
    "",
    "Now the documentation.",
    "",
    "",
    "One more question: why?",
    "",
    "Thanks.",
)
"""What the user says at each turn; empty: the result of a tool comes."""


@dataclass
class Count:
    """Tokens of all prompts of a session, and those of them that were in the cache."""

    prompt: int = 0
    cached: int = 0


class Vllm:
    """The server, asked with token ids."""

    def __init__(self, url: str, model: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=600, trust_env=False)
        self._model = model

    def forget(self) -> None:
        """Empty the cache."""
        self._http.post("/reset_prefix_cache").raise_for_status()

    def read(self, prompt: list[int]) -> int:
        """How many of these ids were cached; afterwards all are."""
        body = {"model": self._model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
        usage = self._http.post("/v1/completions", json=body).raise_for_status().json()["usage"]
        return int((usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0)

    def play(self, calls: Iterable[tuple[list[int], list[int]]]) -> Count:
        """Send a session's prompts, with an empty cache before the first; `calls` are prompt and sampled ids."""
        self.forget()
        count = Count()
        for prompt, sampled in calls:
            count.prompt += len(prompt)
            count.cached += self.read(prompt)
            self.read([*prompt, *sampled])
        return count


def replies() -> Iterator[tuple[Message, Message]]:
    """The model's reply at each turn, and what comes after it."""
    for number, following in enumerate([*ROUNDS[1:], None]):
        thought = f"Step {number}. " + "The output says more than it seems to; I compare it with what I expected. " * 6
        if following == "":
            call = ToolCall(f"call_{number}", "bash", json.dumps({"command": f"sed -n {number}00,{number}60p main.py"}))
            result = "\n".join(f"{number}{line:02}: def function_{line}(argument): return {line}" for line in range(40))
            yield Message("assistant", "", thought, (call,)), Message("tool", result, tool_call_id=call.id)
        else:
            yield Message("assistant", f"Done with part {number}.", thought), Message("user", following or "")


def session(model: ModelFiles, *, bridged: bool) -> Iterator[tuple[list[int], list[int]]]:
    """Prompt and sampled ids of each turn."""
    prompts = Prompts(model)
    messages = [Message("system", "You are a coding agent. " + "Mind the rules of this repository. " * 150)]
    messages.append(Message("user", ROUNDS[0]))
    prompt = prompts.first(Conversation(tuple(messages), (BASH,)))
    for reply, after in replies():
        sampled = said(model, reply, prompt)
        yield prompt, sampled
        messages += [reply, after]
        conversation = Conversation(tuple(messages), (BASH,))
        if bridged:
            prompt = [*prompt, *sampled, *prompts.extend(conversation, prompt, sampled, reply, [after]).suffix]
        else:
            prompt = prompts.first(conversation)


def said(model: ModelFiles, reply: Message, prompt: list[int]) -> list[int]:
    """A reply as Qwen's models write it, behind a generation prompt that may have begun the reasoning."""
    text = f"{reply.reasoning}\n</think>\n\n{reply.content}"
    if "<think>" not in str(model.tokenizer.decode(prompt[-5:])):
        text = f"<think>\n{text}"
    for call in reply.tool_calls:
        text += f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'
    ids: list[int] = model.tokenizer.encode(text + "<|im_end|>", add_special_tokens=False)
    return ids


def weights(model: ModelFiles, positions: int = 32_768) -> None:
    """Random ones, as small as they can be for this vocabulary."""
    config = LlamaConfig(
        vocab_size=152_064, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=positions, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(model.path)


def main(folder: Path) -> None:
    """Serve the model, play the sessions, print the table."""
    models = {name: real_model(folder / name, TOKENIZER, trl_templates()[name]) for name in TEMPLATES}
    served = models[TEMPLATES[0]]
    weights(served)
    table = Table("template", "", "turns", "prompt tokens", "cached", "computed")
    with serve.running(serve.ServeOptions(model=str(served.path)), log=folder / "vllm.log") as url:
        vllm = Vllm(url, str(served.path))
        for name, model in models.items():
            for way, bridged in (("ours", True), ("re-rendered", False)):
                count = vllm.play(session(model, bridged=bridged))
                left, share = count.prompt - count.cached, count.cached / count.prompt
                table.add_row(name, way, str(len(ROUNDS)), f"{count.prompt:,}", f"{share:.1%}", f"{left:,}")
    Console(width=100).print(table)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
