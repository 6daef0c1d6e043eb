from __future__ import annotations

import json
from typing import Any

import pytest

from addons.matrix.actor import TASK, WORD, act
from addons.matrix.engine import Prompt
from addons.matrix.schemas import instance

PATH = "/x/written.txt"
ASKED = ("user", TASK.format(path=PATH))


def tool(name: str, required: tuple[str, ...] = (), description: str = "", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required or properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TEXT = {"type": "string"}
BASH = tool("Bash", ("command",), command=TEXT, timeout={"type": "number"})


def called(text: str) -> tuple[str, Any]:
    body = json.loads(text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
    return body["name"], body["arguments"]


WRITES = f"echo {WORD} > {PATH}"


@pytest.mark.parametrize(
    ("tools", "name", "arguments"),
    [
        ([BASH], "Bash", {"command": WRITES}),
        ([tool("read", path=TEXT), BASH], "Bash", {"command": WRITES}),
        # What runs later or elsewhere only may take a command.
        ([tool("cron", ("job",), job=TEXT, script=TEXT), BASH], "Bash", {"command": WRITES}),
        # A word of an enum is no command.
        ([tool("edit", command={"type": "string", "enum": ["view"]}, path=TEXT), BASH], "Bash", {"command": WRITES}),
        ([tool("exec_command", cmd=TEXT)], "exec_command", {"cmd": WRITES}),
        ([tool("run", commands={"type": "array", "items": TEXT})], "run", {"commands": [WRITES]}),
        ([tool("shell", command={"type": "array", "items": TEXT})], "shell", {"command": ["sh", "-c", WRITES]}),
        (
            [tool("run", commands={"type": "array", "items": tool("", command=TEXT)["function"]["parameters"]})],
            "run",
            {"commands": [{"command": WRITES}]},
        ),
        ([tool("write", file_path=TEXT, content=TEXT)], "write", {"file_path": PATH, "content": WORD + "\n"}),
        (
            [tool("sh", command=TEXT, why=TEXT, risk={"type": "string", "enum": ["LOW", "HIGH"]})],
            "sh",
            {"command": WRITES, "why": "write the file", "risk": "LOW"},
        ),
        (
            [tool("exec", description="JavaScript; await tools.exec_command(...)", input=TEXT)],
            "exec",
            {"input": f'text(await tools.exec_command({{"cmd": "{WRITES}"}}))'},
        ),
    ],
)
def test_it_takes_the_tool_that_can_write_a_file(tools: list[dict[str, Any]], name: str, arguments: Any) -> None:
    assert called(act(Prompt(tools, [ASKED]))) == (name, arguments)


def test_it_says_so_when_there_is_none() -> None:
    assert act(Prompt([tool("read", path=TEXT), tool("look")], [ASKED])).endswith("can write a file: read, look")


CALLED = ("assistant", act(Prompt([BASH], [ASKED])))


def test_then_it_is_finished() -> None:
    assert act(Prompt([BASH], [ASKED, CALLED, ("tool", "")])) == "The file is written. I am finished."
    finish = tool("finish", message=TEXT)
    assert called(act(Prompt([BASH, finish], [ASKED, CALLED, ("tool", "")]))) == (
        "finish",
        {"message": "write the file"},
    )


def test_it_submits_where_only_that_ends_the_harness() -> None:
    told = ("system", "To submit, run `echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT`.")
    assert called(act(Prompt([BASH], [told, ASKED])))[1] == {"command": WRITES}
    done = called(act(Prompt([BASH], [told, ASKED, CALLED, ("tool", "")])))
    assert done[1] == {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}


def test_without_tools_it_edits_by_text_or_gives_a_title() -> None:
    assert "<<<<<<< SEARCH" in act(Prompt([], [("system", "Use SEARCH/REPLACE blocks."), ASKED]))
    assert act(Prompt([], [("system", "Give it a title."), ASKED])) == "Write a file"


SCHEMA = {"type": "object", "properties": {"choice": {"enum": ["flash", "pro"]}, "n": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        ({"json": {**SCHEMA, "required": ["choice"]}}, {"choice": "flash"}),
        ({"json_object": True}, {}),
        ({"choice": ["yes", "no"]}, "yes"),
    ],
)
def test_a_forced_format_is_kept(constraint: dict[str, Any], said: Any) -> None:
    text = act(Prompt([BASH], [ASKED], constraint))
    assert (text if isinstance(said, str) else json.loads(text)) == said


def test_structural_tags_are_followed() -> None:
    form = {"type": "json_schema", "json_schema": {**SCHEMA, "required": ["n"]}}
    tag = {"type": "tag", "begin": "<a>", "content": form, "end": "</a>"}
    calls = {"type": "tags_with_separator", "tags": [tag], "separator": ""}

    def said(form: dict[str, Any]) -> str:
        text = json.dumps({"type": "structural_tag", "format": form})
        return act(Prompt([], [], {"structural_tag": text}))

    assert said(form) == '{"n": 1}'
    assert said(calls) == '<a>{"n": 1}</a>'
    assert said({"type": "or", "elements": [calls, form]}) == '{"n": 1}'
    with pytest.raises(ValueError, match="'grammar'"):
        said({"type": "grammar", "grammar": "x"})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "#/$defs/a", "$defs": {"a": {"const": 7}}}, 7),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, None),
        ({"allOf": [{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}]}, {"a": False}),
        ({"type": ["integer", "null"], "minimum": 3}, 3),
        ({"type": "array", "items": {"type": "number"}, "minItems": 2}, [1, 1]),
        ({"type": "STRING", "minLength": 20}, "write the file......"),
        ({}, "write the file"),
        ({"properties": {}}, {}),
    ],
)
def test_instance(schema: dict[str, Any], value: Any) -> None:
    assert instance(schema) == value
