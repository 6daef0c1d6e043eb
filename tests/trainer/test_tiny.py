"""The tiny model: its world, its tokenizer, its chat template and the checkpoint as shipped."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.tasks import load_tasks
from trainer.tiny.harness import run
from trainer.tiny.make_tasks import DEMO, write_task
from trainer.tiny.world import FAMILIES, FILES, WORDS, draw_example

transformers = pytest.importorskip("transformers")

CHECKPOINT = Path(__file__).parents[2] / "trainer" / "tiny" / "checkpoint"
DEMO_TASKS = Path(__file__).parents[2] / "trainer" / "tasksets" / "demo"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "bash",
            "description": "Run <it> & see",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string"}},
                "required": ["command"],
            },
        },
    }
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(CHECKPOINT)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_family_right_commands_earn_one_and_wrong_ones_nothing(name: str, tmp_path: Path) -> None:
    for seed in range(3):
        example = draw_example(name, random.Random(seed))
        write_task(example, tmp_path / "set" / f"task-{seed}")
        task = load_tasks(tmp_path / "set")[-1]
        for index, command in enumerate((example.right, *example.wrong, "true")):
            workspace = tmp_path / f"{seed}-{index}"
            task.prepare(workspace)
            run(example.look or "true", workspace)
            run(command, workspace)
            assert task.verify(workspace).reward == float(index == 0), command


def test_demo_tasks_are_the_ones_the_script_writes(tmp_path: Path) -> None:
    tasks = load_tasks(DEMO_TASKS)
    assert [task.name for task in tasks] == sorted(name.replace("_", "-") for name, _ in DEMO)
    for name, seed in DEMO:
        folder = tmp_path / name.replace("_", "-")
        write_task(draw_example(name, random.Random(f"{name} {seed}")), folder)
        shipped = DEMO_TASKS / folder.name
        written = {path.relative_to(folder): path.read_text() for path in folder.rglob("*") if path.is_file()}
        assert written == {p.relative_to(shipped): p.read_text() for p in shipped.rglob("*") if p.is_file()}


def test_a_link_to_the_right_content_is_not_a_solution(tmp_path: Path) -> None:
    write_task(draw_example("copy", random.Random(0)), tmp_path / "set" / "copy")
    (task,) = load_tasks(tmp_path / "set")
    workspace = tmp_path / "workspace"
    task.prepare(workspace)
    source, target = task.prompt.split()[3::2]
    (workspace / target).symlink_to(source)
    assert task.verify(workspace).reward == 0.0


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_any_text_round_trips(tokenizer: Any, text: str) -> None:
    ids = tokenizer(text, split_special_tokens=True)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert all(0 <= token < len(tokenizer) for token in ids)


@pytest.mark.parametrize("name", FILES + WORDS)
def test_a_name_is_one_token_wherever_a_space_precedes_it(tokenizer: Any, name: str) -> None:
    (token,) = tokenizer(f" {name}")["input_ids"]
    for text in (f"Copy the file {name} to x", f'{{"command": "cp {name} x"}}', f"echo a > {name}"):
        assert token in tokenizer(text)["input_ids"]


def test_marks_are_single_tokens_and_only_turn_marks_are_special(tokenizer: Any) -> None:
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    marks = [*special, "<tool_call>", "</tool_call>"]
    assert [len(tokenizer(mark)["input_ids"]) for mark in marks] == [1] * 5
    assert set(tokenizer.all_special_tokens) == set(special) - {"<|im_start|>"} or set(
        tokenizer.all_special_tokens
    ) == set(special)
    ids = tokenizer("".join(marks))["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<tool_call></tool_call>"


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=30)
CALL = st.builds(
    lambda command: {
        "type": "function",
        "id": "c",
        "function": {"name": "bash", "arguments": {"command": command}},
    },
    TEXT,
)
MESSAGE = st.one_of(
    st.fixed_dictionaries({"role": st.just("user"), "content": TEXT}),
    st.fixed_dictionaries({"role": st.just("tool"), "content": TEXT, "tool_call_id": st.just("c")}),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": st.none() | TEXT, "tool_calls": st.lists(CALL, max_size=2)}
    ),
)


@settings(max_examples=100, deadline=None)
@given(system=st.none() | TEXT, messages=st.lists(MESSAGE, min_size=2, max_size=6), with_tools=st.booleans())
def test_template_appends_only(tokenizer: Any, system: str | None, messages: list[Any], with_tools: bool) -> None:
    conversation = ([] if system is None else [{"role": "system", "content": system}]) + messages
    first = 1 if system is None else 2
    tools = TOOLS if with_tools else None
    whole = tokenizer.apply_chat_template(conversation, tools=tools, tokenize=False)
    for end in range(first, len(conversation) + 1):
        part = tokenizer.apply_chat_template(conversation[:end], tools=tools, tokenize=False)
        assert whole.startswith(part)
        if end < len(conversation) and conversation[end]["role"] == "assistant":
            asked = tokenizer.apply_chat_template(
                conversation[:end], tools=tools, tokenize=False, add_generation_prompt=True
            )
            assert whole.startswith(asked)


def test_template_names_tools_and_renders_calls_as_hermes(tokenizer: Any) -> None:
    call = {"name": "bash", "arguments": {"command": "echo 'é' > a"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Go"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": call}]},
        {"role": "tool", "content": "ok"},
    ]
    text = tokenizer.apply_chat_template(messages, tools=TOOLS, tokenize=False, add_generation_prompt=True)
    assert '<tools>\n{"name": "bash", "required": ["command"]}\n</tools>' in text
    assert '<tool_call>\n{"name": "bash", "arguments": {"command": "echo \'é\' > a"}}\n</tool_call><|im_end|>\n' in text
    assert text.endswith("<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n<|im_start|>assistant\n")
    as_string = [messages[0], {**messages[1]}, messages[2]]
    as_string[1]["tool_calls"] = [
        {"function": {"name": "bash", "arguments": json.dumps(call["arguments"], ensure_ascii=False)}}
    ]
    assert tokenizer.apply_chat_template(as_string, tools=TOOLS, tokenize=False, add_generation_prompt=True) == text


def test_a_general_parser_reads_replies(tokenizer: Any) -> None:
    reply = 'Look.\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call><|im_end|>'
    message = tokenizer.parse_response(reply, prefix="<|im_start|>assistant\n")
    assert message["content"].strip() == "Look."
    assert [call["function"] for call in message["tool_calls"]] == [{"name": "bash", "arguments": {"command": "ls"}}]


def test_checkpoint_is_small_untied_and_ends_turns() -> None:
    assert (CHECKPOINT / "model.safetensors").stat().st_size <= 6 * 2**20
    config = json.loads((CHECKPOINT / "config.json").read_text())
    generation = json.loads((CHECKPOINT / "generation_config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["tie_word_embeddings"] is False
    assert config["max_position_embeddings"] == 32768
    names = json.loads((CHECKPOINT / "tokenizer.json").read_text())["added_tokens"]
    end = next(token["id"] for token in names if token["content"] == "<|im_end|>")
    assert generation["eos_token_id"] == [end]


def test_checkpoint_emits_a_well_formed_call_on_the_demo(tokenizer: Any) -> None:
    torch = pytest.importorskip("torch")
    model = transformers.AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32).eval()
    messages = [{"role": "user", "content": f"Please solve this issue: {load_tasks(DEMO_TASKS)[0].prompt}"}]
    inputs = tokenizer.apply_chat_template(messages, tools=TOOLS, add_generation_prompt=True, return_tensors="pt")
    output = model.generate(**inputs, do_sample=False, max_new_tokens=64)
    reply = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :])
    message = tokenizer.parse_response(reply, prefix="<|im_start|>assistant\n")
    assert message["tool_calls"][0]["function"]["arguments"]["command"]
