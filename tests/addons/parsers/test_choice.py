from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from addons.conversation import Conversation, Message, Tool
from addons.habits import Habits
from addons.model import ModelFiles
from addons.prompts import Prompts
from addons.replies import ReplyParser, UnknownParser, available, parser_for
from tests.addons.kit import (
    BASH,
    CHATML,
    byte_level,
    call,
    chatml,
    model_files,
    said,
    strict,
    trl_model,
    trl_templates,
)

RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}


def read(model: ModelFiles, text: str, parser: str | None = None, tools: tuple[Tool, ...] = (BASH,)) -> Message:
    choice = parser_for(model, parser)
    prompt = Prompts(model).first(Conversation((Message("user", "hi"),), tools))
    reply = ReplyParser(choice, prompt, tools)
    deltas = reply.feed(model.tokenizer.encode(text, add_special_tokens=False))
    last, parsed = reply.finish("stop")
    assert said([*deltas, *last]) == parsed.message
    return parsed.message


def test_the_format_is_proven_by_the_templates_own_call(tmp_path: Path) -> None:
    choice = parser_for(chatml(tmp_path))
    assert (choice.name, choice.streams) == ("hermes", True)
    assert parser_for(chatml(tmp_path / "b"), "auto").name == "hermes"


def test_the_models_own_response_template_goes_first(tmp_path: Path) -> None:
    model = chatml(tmp_path, response_template=RESPONSE_TEMPLATE)
    assert parser_for(model).name == "config"
    message = read(model, 'ok <tool_call>{"name": "bash", "arguments": {"n": 1}}</tool_call>\n<|im_end|>')
    assert message.content == "ok "
    assert [(c.name, c.arguments) for c in message.tool_calls] == [("bash", '{"n": 1}')]
    broken = read(model, "<tool_call>{oops}</tool_call><|im_end|>")
    assert (broken.content, broken.tool_calls) == ("<tool_call>{oops}</tool_call>", ())


def test_a_response_template_that_does_not_read_its_own_model_is_passed_over(tmp_path: Path) -> None:
    fields = {"content": {"content": "text"}}
    model = chatml(tmp_path, response_template={"start_anchor": "<|im_start|>assistant\n", "fields": fields})
    assert parser_for(model).name == "hermes"
    assert parser_for(model, "config").name == "config"


@pytest.mark.skipif("gemma4" not in trl_templates(), reason="TRL is not installed")
def test_a_response_template_that_reads_only_plain_calls_is_passed_over(tmp_path: Path) -> None:
    """As Gemma 4's: its keys and names are words, but harnesses have a key `-n` and tools `mcp__a-b`."""
    fields = {
        "tool_calls": {
            "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
            "close_pattern": r"<tool_call\|>\s*",
            "repeats": True,
            "content": "json",
            "content_args": {"string_delims": [['<|"|>', '<|"|>']], "unquoted_keys": True},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"content": "text"},
    }
    template = {"start_anchor": "<|turn>model\n", "fields": fields}
    model = trl_model(tmp_path, "gemma4", trl_templates()["gemma4"])
    with_template = replace(model, response_template=template)
    assert parser_for(with_template).name == "gemma4"
    assert parser_for(with_template, "config").name == "config"


@pytest.mark.parametrize(
    "template",
    [{"start_anchor": "x", "fields": {"wrong": {}}}, {"start_anchor": "x", "fields": {"content": {"open": ""}}}],
)
def test_a_wrong_response_template(tmp_path: Path, template: dict[str, Any]) -> None:
    with pytest.raises(UnknownParser, match="response_template"):
        parser_for(chatml(tmp_path, response_template=template))


def test_unknown_says_what_can_be_chosen(tmp_path: Path) -> None:
    model = strict(tmp_path / "strict")
    with pytest.raises(UnknownParser, match=r"shows no tool calls.*hermes.*text.*renderers:qwen3"):
        parser_for(model)
    with pytest.raises(UnknownParser, match=r"no parser 'hermse'. Choose one of: .*hermes"):
        parser_for(model, "hermse")
    with pytest.raises(UnknownParser, match="no response_template"):
        parser_for(model, "config")
    with pytest.raises(UnknownParser, match="does not fit its tokenizer"):
        parser_for(model, "renderers:qwen3")
    odd = chatml(
        tmp_path / "odd", template=CHATML.replace("<tool_call>", "<|call|>").replace("</tool_call>", "<|/call|>")
    )
    with pytest.raises(UnknownParser, match="none of them reads the tool call"):
        parser_for(odd)
    assert {"hermes", "qwen-xml", "think", "text", "config", "renderers:deepseek-v3"} <= set(available())


def test_text_and_think(tmp_path: Path) -> None:
    model = chatml(tmp_path)
    reply = '<think>a</think>b<tool_call>{"name": "bash", "arguments": {}}</tool_call>'
    assert read(model, reply, "text") == Message("assistant", reply)
    assert read(model, reply, "think") == Message("assistant", reply.partition("</think>")[2], "a")


XML = """\
<tool_call>
<function=bash>
<parameter=command>
ls

 -la
</parameter>
<parameter=n>
7
</parameter>
</function>
</tool_call>"""
TYPED = Tool("bash", "", {"type": "object", "properties": {"command": {"type": "string"}, "n": {"type": "integer"}}})


def test_xml_calls(tmp_path: Path) -> None:
    model = chatml(tmp_path)
    got = read(model, "ok\n" + XML, "qwen-xml", (TYPED,))
    assert [(c.name, c.arguments) for c in got.tool_calls] == [("bash", '{"command": "ls\\n\\n -la", "n": 7}')]
    assert got.content == "ok\n"
    without = read(model, "<tool_call>\n<function=bash>\n</function>\n</tool_call>", "qwen-xml")
    assert [(c.name, c.arguments) for c in without.tool_calls] == [("bash", "{}")]


@pytest.mark.parametrize(
    "broken",
    [
        XML.replace("</parameter>", "", 1).replace("\n<parameter=n>\n7\n</parameter>", ""),
        XML.replace("<parameter=n>", "<parameter n>"),
        XML.replace("<function=bash>", "<function bash>"),
        XML.removesuffix("</tool_call>"),
        '<tool_call>\n{"name": "bash", "arguments": {}}\n</tool_call>',
    ],
)
def test_broken_xml_calls_are_text(tmp_path: Path, broken: str) -> None:
    model = chatml(tmp_path)
    choice = parser_for(model, "qwen-xml")
    reply = ReplyParser(choice, [1], [TYPED])
    reply.feed(model.tokenizer.encode(broken, add_special_tokens=False))
    _, parsed = reply.finish("stop")
    assert parsed.message == Message("assistant", broken)
    assert parsed.malformed


# Templates of published models that have tool calls, and what reads them.
_EXPECTED = {
    "deepseek_r1_distill": "deepseek-v3",
    "deepseekv3": "deepseek-v3",
    "gemma4": "gemma4",
    "gemma4_v2": "gemma4",
    "gemma4_v5": "gemma4",
    "glm4moe": "glm",
    "gptoss": "harmony",
    "lfm2_v2": "lfm2",
    "lfm2_2_5": "lfm2",
    "lfm2_2_5_v2": "lfm2",
    "llama3_1": "llama3",
    "llama3_2": "llama3",
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "qwen3_instruct_2507": "hermes",
    "qwen3_vl": "hermes",
    "qwen3_5_think": "qwen-xml",
    "qwen3_5_nothink": "qwen-xml",
    "qwen3_6": "qwen-xml",
    "qwen3_8": "qwen-xml",
    "nemotron_3_nano": "qwen-xml",
    "nemotron_3_super": "qwen-xml",
    "nemotron_3_ultra": "qwen-xml",
    "nemotron_3_5_lightning": "qwen-xml",
}
_ONE_CALL = ("llama3_1", "llama3_2", "gptoss")
_NO_TEXT = (*_ONE_CALL, "gemma4", "gemma4_v2", "gemma4_v5", "deepseek_r1_distill")


@pytest.mark.parametrize("name", sorted(_EXPECTED.keys() & trl_templates().keys()))
def test_published_templates(name: str, tmp_path: Path) -> None:
    """The parser that is chosen reads back what the template writes: text, reasoning, and two calls."""
    model = trl_model(tmp_path, name, trl_templates()[name])
    choice = parser_for(model)
    assert (choice.name, choice.streams) == (_EXPECTED[name], True)
    prompts = Prompts(model)
    habits: Habits = prompts.probe().habits
    two = [call("bash", '{"command": "ls -la"}', 1), call("bash", '{"command": "pwd"}', 2)]
    calls = tuple(two[:1] if name in _ONE_CALL else two)
    text = "" if name in _NO_TEXT else "I look."
    meant = Message("assistant", text, "Hm." if habits.reasoning else "", calls)
    user = Message("user", "hi")
    tools = prompts.template.tools((BASH,))
    before = prompts.template.render(prompts.template.messages([user]), tools)
    after = prompts.template.render(prompts.template.messages([user, meant]), tools, generation=False)
    shared = next(n for n, (a, b) in enumerate(zip(before + "\0", after + "\1", strict=False)) if a != b)
    while shared and after[shared - 1] in "<|":  # a token is not cut in two
        shared -= 1
    prompt = prompts.first(Conversation((user,), (BASH,))) if before == after[:shared] else None
    if prompt is None:  # the generation prompt opens reasoning, or closes it
        prompt = model.tokenizer.encode(after[:shared], add_special_tokens=False)
    reply = ReplyParser(choice, prompt, (BASH,))
    reply.feed(model.tokenizer.encode(after[shared:].rstrip("\n"), add_special_tokens=False))
    _, parsed = reply.finish("stop")
    got = parsed.message
    assert (got.content.strip(), got.reasoning) == (meant.content, meant.reasoning)
    assert [(c.name, c.arguments) for c in got.tool_calls] == [(c.name, c.arguments) for c in calls]
    assert not parsed.malformed


SAYS_HOW = """\
{%- if tools %}{{- '<|im_start|>system\\nFor each call return JSON within XML tags:\\n<tool_call>\\n' }}
{{- '{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
PLAIN = """\
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def test_a_template_that_writes_no_calls_may_tell_how(tmp_path: Path) -> None:
    """SmolLM3's, say: the model is told the format, and its calls are never shown again."""
    assert parser_for(chatml(tmp_path / "a", template=SAYS_HOW)).name == "hermes"
    model = chatml(tmp_path / "b", template=SAYS_HOW.replace("if tools", "if xml_tools"))
    assert parser_for(model).name == "hermes"
    asked = Prompts(model).first(Conversation((Message("user", "hi"),), (BASH,)))
    assert "<function-name>" in str(model.tokenizer.decode(asked))


@pytest.mark.parametrize(
    ("tokens", "parser"),
    [
        (("<|tool_call_start|>", "<|tool_call_end|>"), "lfm2"),
        (("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"), "kimi-k2"),
        (("[TOOL_CALLS]", "[ARGS]"), "mistral"),
    ],
)
def test_tokens_that_one_format_has(tokens: tuple[str, ...], parser: str, tmp_path: Path) -> None:
    """LFM2's and Kimi K2's first templates write no calls, but their vocabularies have the delimiters."""
    model = model_files(tmp_path / "a", byte_level(("<|im_start|>", "<|im_end|>", *tokens)), PLAIN, "<|im_end|>")
    assert parser_for(model).name == parser
    without = model_files(tmp_path / "b", byte_level(("<|im_start|>", "<|im_end|>")), PLAIN, "<|im_end|>")
    with pytest.raises(UnknownParser, match="shows no tool calls"):
        parser_for(without)


def test_a_response_template_of_your_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    fields = {**RESPONSE_TEMPLATE["fields"], "reasoning_content": {"open": "<mull>", "close": "</mull>"}}  # type: ignore[dict-item]
    file.write_text(json.dumps({"start_anchor": "<|im_start|>assistant\n", "fields": fields}))
    model = chatml(tmp_path / "model")
    message = read(model, '<mull>Hm.</mull>ok <tool_call>{"name": "bash", "arguments": {}}</tool_call>', str(file))
    assert (message.content, message.reasoning, message.tool_calls[0].name) == ("ok ", "Hm.", "bash")
    with pytest.raises(UnknownParser, match=r"no response template in .*other\.json"):
        parser_for(model, str(tmp_path / "other.json"))
    file.write_text('{"fields": {"content": {}}}')
    with pytest.raises(UnknownParser, match=r"mine\.json: response_template must define 'start_anchor'"):
        parser_for(model, str(file))


MINIMAX = """\
{{- ']~!b[]~b]system\\nYou are a helpful assistant. Your name is MiniMax-M2 and is built by MiniMax.[e~[\\n' }}
{%- for m in messages %}{{- ']~b]' + ('ai' if m.role == 'assistant' else m.role) + '\\n' + m.content }}
{%- for c in m.tool_calls or [] %}{{- '\\n<minimax:tool_call>\\n<invoke name="' + c.function.name + '">\\n' }}
{%- for k, v in c.function.arguments.items() %}
{{- '<parameter name="' + k + '">' + v + '</parameter>\\n' }}{%- endfor %}
{{- '</invoke>\\n</minimax:tool_call>' }}{%- endfor %}{{- '[e~[\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- ']~b]ai\\n' }}{%- endif %}
"""


def test_a_family_of_renderers_is_found_by_what_it_writes(tmp_path: Path) -> None:
    special = ("]~!b[", "]~b]", "[e~[", "<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>")
    model = model_files(tmp_path, byte_level(special), MINIMAX, "[e~[")
    choice = parser_for(model)
    assert (choice.name, choice.streams) == ("renderers:minimax-m2", False)
    written = (
        'I look.\n<minimax:tool_call>\n<invoke name="bash">\n<parameter name="command">ls</parameter>\n</invoke>\n'
        "</minimax:tool_call>[e~["
    )
    reply = ReplyParser(choice, model.tokenizer.encode("]~b]user\nhi[e~[\n]~b]ai\n"), (BASH,))
    assert reply.feed(model.tokenizer.encode(written, add_special_tokens=False)) == []
    deltas, parsed = reply.finish("stop")
    assert said(deltas) == parsed.message
    assert parsed.message.content == "I look."
    assert [(c.name, c.arguments) for c in parsed.message.tool_calls] == [("bash", '{"command": "ls"}')]


@pytest.mark.skipif("deepseekv3" not in trl_templates(), reason="TRL is not installed")
def test_a_family_of_renderers_by_name(tmp_path: Path) -> None:
    model = trl_model(tmp_path, "deepseekv3", trl_templates()["deepseekv3"])
    choice = parser_for(model, "renderers:deepseek-v3")
    written = (
        "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>bash\n"
        '```json\n{"command": "ls"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'
    )
    reply = ReplyParser(choice, model.tokenizer.encode("<｜User｜>hi<｜Assistant｜>"), (BASH,))
    assert reply.feed(model.tokenizer.encode(written, add_special_tokens=False)) == []
    deltas, parsed = reply.finish("stop")
    assert said(deltas) == parsed.message
    assert parsed.message.content == "I look."
    assert [(c.name, c.arguments) for c in parsed.message.tool_calls] == [("bash", '{"command": "ls"}')]
    reply = ReplyParser(choice, [1], (BASH,))
    reply.feed(model.tokenizer.encode(written.replace('"ls"}', '"ls"'), add_special_tokens=False))
    _, parsed = reply.finish("stop")
    assert parsed.malformed
    assert parsed.message.tool_calls == ()
