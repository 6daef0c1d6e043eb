"""How model families write a reply, for tests: a small tokenizer with a family's tokens, and a writer of replies.

The writers follow the families' published chat templates. `oracle` is how a kept library reads the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from renderers import ParsedResponse, Renderer, ToolCallParseStatus, config_from_name, create_renderer
from renderers import parsing as their

from addons.conversation import Tool
from addons.encode import Encoder
from addons.model import ModelFiles
from addons.replies import ParserChoice, parser_for
from tests.addons.kit import byte_level, model_files

Call = tuple[str, dict[str, Any]]
Read = tuple[str, str, list[Call]]
"""Text and reasoning without white space around them, and the calls."""

TOOLS = [
    Tool(
        name,
        "",
        {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "-n": {"type": "integer"},
                "flag": {"type": "boolean"},
                "data": {"type": "object"},
                "items": {"type": "array"},
            },
        },
    )
    for name in ("bash", "mcp__docs-2__get", "Read")
]


@dataclass(frozen=True)
class Family:
    """A family. `write` takes text, reasoning and calls; its text is what the model samples, stop token included."""

    parser: str
    special: tuple[str, ...]
    markup: tuple[str, ...]
    prompt: str
    write: Callable[[str, str, Sequence[Call]], str]
    stops: tuple[str, ...]
    reasons: bool = True
    most_calls: int = 3
    text_with_calls: bool = True
    typed: bool = False
    """Arguments are those of `TOOLS` alone: the form needs their types."""
    words: bool = False
    """Keys are written without quotes."""
    marker: str = ""
    """Begins a call."""
    oracle: Callable[[Model, list[int], list[int]], ParsedResponse] | None = None


@dataclass(frozen=True)
class Model:
    """A family's model on disk."""

    family: Family
    files: ModelFiles
    renderers: dict[str, Renderer] = field(default_factory=dict, repr=False)

    @cached_property
    def choice(self) -> ParserChoice:
        return parser_for(self.files, self.family.parser)

    @cached_property
    def encoder(self) -> Encoder:
        return Encoder(self.files)

    @cached_property
    def prompt(self) -> list[int]:
        return self.encoder.encode(self.family.prompt, self.encoder.escape())

    def sampled(self, text: str, reasoning: str, calls: Sequence[Call]) -> list[int]:
        """Ids of a reply. What looks like a special token in its data is spelt with ordinary ones."""
        escape = self.encoder.escape()
        data = [(name, escape.tree(arguments)) for name, arguments in calls]
        written = self.family.write(escape.text(text), escape.text(reasoning), data)
        return self.encoder.encode(written, escape)

    def renderer(self, name: str) -> Renderer:
        if self.renderers.get(name) is None:
            self.renderers[name] = create_renderer(self.files.tokenizer, config_from_name(name))
        return self.renderers[name]

    def id(self, token: str) -> int:
        number: int = self.files.tokenizer.convert_tokens_to_ids(token)
        return number

    def read_by_library(self, ids: list[int]) -> Read:
        assert self.family.oracle is not None
        reply = self.family.oracle(self, self.prompt, ids)
        assert all(call.status == ToolCallParseStatus.OK for call in reply.tool_calls), reply
        calls = [(str(call.name), dict(call.arguments)) for call in reply.tool_calls]
        return reply.content.strip(), (reply.reasoning_content or "").strip(), calls


def make(folder: Path, family: Family) -> Model:
    """A small byte-level tokenizer with the family's tokens; the template only makes them structure."""
    special = [*family.special, *(stop for stop in family.stops if stop not in family.special)]
    template = "{{- '" + "".join([*special, *family.markup]) + "' if false }}{{- messages[0].content }}"
    tokenizer = byte_level(special, family.markup)
    return Model(family, model_files(folder, tokenizer, template, family.stops[0], family.stops))


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _think(reasoning: str) -> str:
    return f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""


def _hermes(text: str, reasoning: str, calls: Sequence[Call]) -> str:
    blocks = [f"<tool_call>\n{compact({'name': n, 'arguments': a})}\n</tool_call>" for n, a in calls]
    return _think(reasoning) + "\n".join([*([text] if text else []), *blocks]) + "<|im_end|>"


def _hermes_list(text: str, reasoning: str, calls: Sequence[Call]) -> str:
    listed = compact([{"name": n, "arguments": a} for n, a in calls])
    return text + (f"<tool_call>{listed}</tool_call>" if calls else "") + "<|im_end|>"


def _bare(value: Any) -> str:
    return value if isinstance(value, str) else compact(value)


def _qwen_xml(text: str, reasoning: str, calls: Sequence[Call]) -> str:
    blocks = []
    for name, arguments in calls:
        values = "".join(f"<parameter={k}>\n{_bare(v)}\n</parameter>\n" for k, v in arguments.items())
        blocks.append(f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>")
    return _think(reasoning) + text + ("\n\n" if blocks else "") + "\n".join(blocks) + "<|im_end|>"


def _glm(text: str, reasoning: str, calls: Sequence[Call], *, lines: bool = True) -> str:
    line = "\n" if lines else ""
    out = f"\n<think>{reasoning}</think>\n{text}" if reasoning else text
    for name, arguments in calls:
        pairs = (f"<arg_key>{k}</arg_key>{line}<arg_value>{_bare(v)}</arg_value>{line}" for k, v in arguments.items())
        out += f"{line}<tool_call>{name}{line}{''.join(pairs)}</tool_call>"
    return out + ("<|observation|>" if calls else "<|user|>")


def _python(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
        return f"'{escaped}'"
    return compact(value) if isinstance(value, dict) else repr(value)


def python_list(calls: Sequence[Call]) -> str:
    written = [f"{name}({', '.join(f'{k}={_python(v)}' for k, v in a.items())})" for name, a in calls]
    return f"[{', '.join(written)}]"


def _lfm(text: str, reasoning: str, calls: Sequence[Call]) -> str:
    thought = f"<think>{reasoning}</think>" if reasoning else ""
    block = f"<|tool_call_start|>{python_list(calls)}<|tool_call_end|>" if calls else ""
    return thought + text + block + "<|im_end|>"


def _pythonic(text: str, reasoning: str, calls: Sequence[Call]) -> str:
    return (text + "\n" if text and calls else text) + (python_list(calls) if calls else "") + "<|eot_id|>"


def _llama(text: str, reasoning: str, calls: Sequence[Call], *, tag: str = "") -> str:
    blocks = [compact({"name": name, "parameters": arguments}) for name, arguments in calls]
    return text + (tag + "; ".join(blocks) if calls else "") + ("<|eom_id|>" if tag and calls else "<|eot_id|>")


def _deepseek(text: str, reasoning: str, calls: Sequence[Call]) -> str:
    blocks = [
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{n}\n```json\n{compact(a)}\n```<｜tool▁call▁end｜>"
        for n, a in calls
    ]
    section = f"<｜tool▁calls▁begin｜>{chr(10).join(blocks)}<｜tool▁calls▁end｜>" if calls else ""
    return _think(reasoning) + text + section + "<｜end▁of▁sentence｜>"


def _deepseek_v31(text: str, reasoning: str, calls: Sequence[Call]) -> str:
    blocks = [f"<｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{compact(a)}<｜tool▁call▁end｜>" for n, a in calls]
    section = f"<｜tool▁calls▁begin｜>{''.join(blocks)}<｜tool▁calls▁end｜>" if calls else ""
    return _think(reasoning) + text + section + "<｜end▁of▁sentence｜>"


def _kimi(text: str, reasoning: str, calls: Sequence[Call]) -> str:
    blocks = [
        f"<|tool_call_begin|>functions.{n}:{i}<|tool_call_argument_begin|>{compact(a)}<|tool_call_end|>"
        for i, (n, a) in enumerate(calls)
    ]
    section = f"<|tool_calls_section_begin|>{''.join(blocks)}<|tool_calls_section_end|>" if calls else ""
    return _think(reasoning) + text + section + "<|im_end|>"


def _harmony(text: str, reasoning: str, calls: Sequence[Call], *, recipient_first: bool = False) -> str:
    messages = [f"<|channel|>analysis<|message|>{reasoning}<|end|>"] if reasoning else []
    if text:
        channel, end = ("commentary", "<|end|>") if calls else ("final", "<|return|>")
        messages.append(f"<|channel|>{channel}<|message|>{text}{end}")
    for name, arguments in calls:
        to = f" to=functions.{name}"
        if recipient_first:
            header = f"{to}<|channel|>commentary json<|message|>"
        else:
            header = f"<|channel|>commentary{to} <|constrain|>json<|message|>"
        messages.append(f"{header}{compact(arguments)}<|call|>")
    return "<|start|>assistant".join(messages)


def gemma_value(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{gemma_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(gemma_value, value)) + "]"
    return compact(value)


def _gemma(text: str, reasoning: str, calls: Sequence[Call]) -> str:
    thought = f"<|channel>thought\n{reasoning}\n<channel|>" if reasoning else ""
    blocks = "".join(f"<|tool_call>call:{n}{gemma_value(a)}<tool_call|>" for n, a in calls)
    return thought + text + blocks + ("<|tool_response>" if calls else "<turn|>")


def _mistral(text: str, reasoning: str, calls: Sequence[Call], *, ids: bool = False) -> str:
    thought = f"[THINK]{reasoning}[/THINK]" if reasoning else ""
    call_id = "[CALL_ID]call00001" if ids else ""
    return thought + text + "".join(f"[TOOL_CALLS]{n}{call_id}[ARGS]{compact(a)}" for n, a in calls) + "</s>"


def _mistral_list(text: str, reasoning: str, calls: Sequence[Call]) -> str:
    listed = [{"name": n, "arguments": a, "id": f"call{i:05}"} for i, (n, a) in enumerate(calls)]
    return text + (f"[TOOL_CALLS] {compact(listed)}" if calls else "") + "</s>"


def _family(name: str) -> Callable[[Model, list[int], list[int]], ParsedResponse]:
    def read(model: Model, prompt: list[int], ids: list[int]) -> ParsedResponse:
        return model.renderer(name).parse_response(ids, prompt_ids=prompt, tools=tools_json())

    return read


def tools_json() -> list[Any]:
    return [{"type": "function", "function": {"name": t.name, "parameters": t.parameters}} for t in TOOLS]


def _glm_oracle(model: Model, prompt: list[int], ids: list[int]) -> ParsedResponse:
    return their.parse_glm(
        model.files.tokenizer, ids, stop_ids={model.id(stop) for stop in model.family.stops},
        think_id=model.id("<think>"), think_end_id=model.id("</think>"),
        tool_call_id=model.id("<tool_call>"), tool_call_end_id=model.id("</tool_call>"),
        arg_key_id=model.id("<arg_key>"), arg_key_end_id=model.id("</arg_key>"),
        arg_value_id=model.id("<arg_value>"), arg_value_end_id=model.id("</arg_value>"), tools=tools_json(),
    )  # fmt: skip


def _deepseek_oracle(model: Model, prompt: list[int], ids: list[int]) -> ParsedResponse:
    return their.parse_deepseek_v3(
        model.files.tokenizer, ids, stop_ids={model.id("<｜end▁of▁sentence｜>")},
        tool_calls_begin_id=model.id("<｜tool▁calls▁begin｜>"), tool_calls_end_id=model.id("<｜tool▁calls▁end｜>"),
        tool_call_begin_id=model.id("<｜tool▁call▁begin｜>"), tool_call_end_id=model.id("<｜tool▁call▁end｜>"),
        tool_sep_id=model.id("<｜tool▁sep｜>"),
    )  # fmt: skip


def _kimi_oracle(model: Model, prompt: list[int], ids: list[int]) -> ParsedResponse:
    return their.parse_kimi_k2(
        model.files.tokenizer, ids, stop_ids={model.id("<|im_end|>")},
        tool_calls_section_begin_id=model.id("<|tool_calls_section_begin|>"),
        tool_calls_section_end_id=model.id("<|tool_calls_section_end|>"),
        tool_call_begin_id=model.id("<|tool_call_begin|>"), tool_call_end_id=model.id("<|tool_call_end|>"),
        tool_call_argument_begin_id=model.id("<|tool_call_argument_begin|>"),
    )  # fmt: skip


def _harmony_oracle(model: Model, prompt: list[int], ids: list[int]) -> ParsedResponse:
    start = model.files.tokenizer.encode("<|start|>assistant", add_special_tokens=False)
    return their.parse_gpt_oss(
        model.files.tokenizer, [*start, *ids], return_id=model.id("<|return|>"), call_id=model.id("<|call|>"),
        start_id=model.id("<|start|>"), end_id=model.id("<|end|>"), channel_id=model.id("<|channel|>"),
        message_id=model.id("<|message|>"), constrain_id=model.id("<|constrain|>"),
    )  # fmt: skip


def _llama_oracle(model: Model, prompt: list[int], ids: list[int]) -> ParsedResponse:
    return their.parse_llama_3(model.files.tokenizer, ids, stop_ids={model.id("<|eot_id|>"), model.id("<|eom_id|>")})


_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
           "<|video_pad|>")  # fmt: skip
_TOOL_CALL = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_THINKS = ("<think>", "</think>")
_ASSISTANT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
_LLAMA = ("<|python_tag|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>")
_LLAMA_PROMPT = (
    "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
)
_DEEPSEEK = ("<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
             "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>")  # fmt: skip
_KIMI = ("<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|tool_calls_section_begin|>",
         "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
         "<|tool_call_end|>")  # fmt: skip
_HARMONY = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>")
_GEMMA = ("<bos>", "<eos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>",
          "<|tool_response>", "<tool_response|>", "<|tool>", "<tool|>", "<|think|>", '<|"|>', 
          "<|image>", "<|image|>", "<image|>", "<|audio>",
          "<|audio|>", "<audio|>", "<|video>", "<|video|>", "<video|>")  # fmt: skip
_MISTRAL = ("[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]")
_GLM_MARKUP = (*_TOOL_CALL, *_THINKS, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_GLM_SPECIAL = ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|system|>")

FAMILIES = {
    "hermes": Family(
        "hermes", _CHATML, (*_TOOL_CALL, *_THINKS), _ASSISTANT, _hermes, ("<|im_end|>",), marker="<tool_call>",
        oracle=_family("qwen3"),
    ),
    "smollm2": Family(
        "hermes-list", _CHATML, _TOOL_CALL, _ASSISTANT, _hermes_list, ("<|im_end|>",), reasons=False,
        marker="<tool_call>",
    ),
    "qwen3.5": Family(
        "qwen-xml", _CHATML, (*_TOOL_CALL, *_THINKS), _ASSISTANT, _qwen_xml, ("<|im_end|>",), typed=True,
        marker="<tool_call>", oracle=_family("qwen3.5"),
    ),
    "glm4.5": Family(
        "glm", _GLM_SPECIAL, _GLM_MARKUP, "<|user|>\nhi<|assistant|>", _glm,
        ("<|endoftext|>", "<|user|>", "<|observation|>"), typed=True, marker="<tool_call>", oracle=_glm_oracle,
    ),
    "glm4.7": Family(
        "glm", _GLM_SPECIAL, _GLM_MARKUP, "<|user|>hi<|assistant|>", partial(_glm, lines=False),
        ("<|endoftext|>", "<|user|>", "<|observation|>"), typed=True, marker="<tool_call>", oracle=_glm_oracle,
    ),
    "lfm2": Family(
        "lfm2", (*_CHATML, "<|tool_call_start|>", "<|tool_call_end|>"), _THINKS, _ASSISTANT, _lfm, ("<|im_end|>",),
        words=True, marker="<|tool_call_start|>",
    ),
    "pythonic": Family(
        "pythonic", _LLAMA, (), _LLAMA_PROMPT, _pythonic, ("<|eot_id|>", "<|eom_id|>"), reasons=False, words=True,
        marker="[",
    ),
    "llama3": Family(
        "llama3", _LLAMA, (), _LLAMA_PROMPT, _llama, ("<|eot_id|>", "<|eom_id|>"), reasons=False, most_calls=1,
        text_with_calls=False, marker='{"name"', oracle=_llama_oracle,
    ),
    "llama3 tag": Family(
        "llama3", _LLAMA, (), _LLAMA_PROMPT, partial(_llama, tag="<|python_tag|>"), ("<|eot_id|>", "<|eom_id|>"),
        reasons=False, marker="<|python_tag|>",
    ),
    "deepseek-v3": Family(
        "deepseek-v3", _DEEPSEEK, (), "<｜User｜>hi<｜Assistant｜>", _deepseek, ("<｜end▁of▁sentence｜>",),
        marker="<｜tool▁call▁begin｜>", oracle=_deepseek_oracle,
    ),
    "deepseek-v3.1": Family(
        "deepseek-v3.1", _DEEPSEEK, _THINKS, "<｜User｜>hi<｜Assistant｜>", _deepseek_v31, ("<｜end▁of▁sentence｜>",),
        marker="<｜tool▁call▁begin｜>",
    ),
    "kimi-k2": Family(
        "kimi-k2", _KIMI, (), "<|im_user|>user<|im_middle|>hi<|im_end|><|im_assistant|>assistant<|im_middle|>", _kimi,
        ("<|im_end|>",), marker="<|tool_call_begin|>", oracle=_kimi_oracle,
    ),
    "gpt-oss": Family(
        "harmony", _HARMONY, (), "<|start|>user<|message|>hi<|end|><|start|>assistant", _harmony,
        ("<|return|>", "<|call|>"), marker="<|channel|>", oracle=_harmony_oracle,
    ),
    "gpt-oss template": Family(
        "harmony", _HARMONY, (), "<|start|>user<|message|>hi<|end|><|start|>assistant",
        partial(_harmony, recipient_first=True), ("<|return|>", "<|call|>"), marker=" to=functions.",
        oracle=_harmony_oracle,
    ),
    "gemma4": Family(
        "gemma4", _GEMMA, (), "<bos><|turn>user\nhi<turn|>\n<|turn>model\n", _gemma,
        ("<eos>", "<turn|>", "<|tool_response>"), words=True, marker="<|tool_call>", oracle=_family("gemma4"),
    ),
    "mistral": Family(
        "mistral", _MISTRAL, (), "[INST]hi[/INST]", _mistral, ("</s>",), marker="[TOOL_CALLS]",
    ),
    "mistral ids": Family(
        "mistral", _MISTRAL, (), "[INST]hi[/INST]", partial(_mistral, ids=True), ("</s>",), marker="[TOOL_CALLS]",
    ),
    "mistral-list": Family(
        "mistral-list", _MISTRAL, (), "[INST]hi[/INST]", _mistral_list, ("</s>",), reasons=False,
        marker="[TOOL_CALLS]",
    ),
}  # fmt: skip
