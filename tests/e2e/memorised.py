"""A model that knows one session by heart: it reasons, calls tools, and speaks.

What weights of that size never do by themselves is then sampled by a real vLLM, in a session of known form. Nothing is
trained: the head is solved for, over a random GPT-2 whose states tell positions apart. They depend on the tokens as
well, so a prompt that is not the right one has other logprobs.
"""

from __future__ import annotations

import itertools
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from addons.conversation import Conversation, Message, Tool, ToolCall
from addons.model import ModelFiles
from addons.prompts import Prompts
from tests.addons.kit import CHATML, chatml
from trainer import serve

FORGETFUL = CHATML.replace(
    "{%- if m.reasoning_content %}",
    "{%- set later = messages[loop.index0 + 1:] | selectattr('role', 'equalto', 'user') | list %}"
    "{%- if m.reasoning_content and not later %}",
)
"""Like Qwen 3's: reasoning is left out of every turn before the last user message."""
WEATHER = Tool("weather", "Tell it.", {"type": "object", "properties": {"city": {"type": "string"}}})
SYSTEM = Message("system", "You are a helpful agent. " + "Follow the rules of the house. " * 20)


def calling(*cities: str) -> str:
    calls = (f'<tool_call>\n{{"name": "weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>' for city in cities)
    return "<think>\nI will look.\n</think>\n\n" + "\n".join(calls)


@dataclass(frozen=True)
class Line:
    """What the harness sends, and what the model has learnt to say to it."""

    ask: str
    says: str
    cut: int | None = None
    """The limit of tokens that the harness sets."""
    stop: str | None = None
    """The stop string that it sets."""


LINES = (
    Line("Weather in Bern?", calling("Bern")),
    Line("", "<think>\nGood.\n</think>\n\nIt is sunny in Bern."),
    Line("And in Rome and Oslo?", calling("Rome", "Oslo")),
    Line("", "<think>\nBoth.\n</think>\n\nRome is hot. Oslo is cold."),
    Line("Tell me a story.", "<think>\nA long story has to be planned: who, where and when", cut=12),
    Line("Go on.", "<think>\nGo.\n</think>\n\nOnce there was a fox END and", stop="END"),
    Line("Thanks.", "<think>\nDone.\n</think>\n\nBye."),
)
"""Empty: the results of the tools come, `sun in CITY`."""


def make(folder: Path, system: Message = SYSTEM) -> ModelFiles:
    """Write the model's files and weights."""
    model = chatml(folder, template=FORGETFUL)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(model.tokenizer), n_embd=384, n_layer=2, n_head=4, n_positions=4096, tie_word_embeddings=False,
        eos_token_id=model.tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    policy = GPT2LMHeadModel(config).eval()
    torch.nn.init.normal_(policy.transformer.wpe.weight)
    ids, said = lesson(model, system)
    with torch.no_grad():
        states = policy.transformer(torch.tensor([ids])).last_hidden_state[0]
        places = [place for place, by_model in enumerate(said) if by_model]
        logits = torch.randn(len(places), config.vocab_size)
        logits[torch.arange(len(places)), torch.tensor([ids[place] for place in places])] += 12
        before = states[torch.tensor(places) - 1]
        policy.lm_head.weight.copy_(torch.linalg.lstsq(before, logits).solution.T)
    policy.save_pretrained(folder)
    return model


def served(model: ModelFiles, folder: Path) -> AbstractContextManager[str]:
    """The address of a real vLLM that serves it."""
    options = serve.ServeOptions(model=str(model.path), kv_cache_gib=1)
    return serve.running(options, log=folder / "vllm.log")


def lesson(model: ModelFiles, system: Message = SYSTEM) -> tuple[list[int], list[bool]]:
    """The ids of the whole session, as the gateway puts it together, and which of them the model says."""
    prompts = Prompts(model)
    messages = [system, Message("user", LINES[0].ask)]
    ids = prompts.first(Conversation(tuple(messages), (WEATHER,)))
    said = [False] * len(ids)
    for line, following in itertools.zip_longest(LINES, LINES[1:]):
        ids_said = sampled(model, line)
        reply = Message("assistant", tool_calls=_calls(line))
        new = [Message("user", following.ask)] if following and following.ask else []
        new += [Message("tool", f"sun in {call.id}", tool_call_id=call.id) for call in reply.tool_calls]
        suffix: list[int] = []
        if new:
            messages += [reply, *new]
            suffix = prompts.extend(Conversation(tuple(messages), (WEATHER,)), ids, ids_said, reply, new).suffix
        ids += [*ids_said, *suffix]
        said += [True] * len(ids_said) + [False] * len(suffix)
    return ids, said


def sampled(model: ModelFiles, line: Line) -> list[int]:
    """The ids that it says to a line."""
    ids: list[int] = model.tokenizer.encode(line.says + "<|im_end|>", add_special_tokens=False)
    if line.stop is not None:
        return next(ids[:n] for n in range(len(ids)) if line.stop in str(model.tokenizer.decode(ids[:n])))
    return ids[: line.cut]


def _calls(line: Line) -> tuple[ToolCall, ...]:
    cities = re.findall(r'"city": "(\w+)"', line.says)
    return tuple(ToolCall(city, "weather", f'{{"city": "{city}"}}') for city in cities)
