from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from replay import tokens
from replay.reader import Reader
from replay.writer import Recorder


@pytest.fixture
def forked(make: Any) -> None:
    """A session of two roots; the first goes on in two ways, one of them two turns long."""
    call = {"id": "c1", "name": "bash", "arguments": '{"cmd": "ls"}'}
    reply = {"role": "assistant", "content": "looking", "reasoning": "hmm", "tool_calls": [call]}
    session_id = make.session("forked", harness="codex", harness_version="0.171", task="t", group="g")
    first = make.turn(session_id, make.end(reply=reply, finish="tool_calls"))
    tool = {"role": "tool", "content": "\n".join(f"line {n}" for n in range(50)), "tool_call_id": "c1"}
    left = make.turn(session_id, parent_id=first, prompt_suffix=[4], prompt_length=6, messages=[tool])
    make.turn(session_id, parent_id=left, prompt_suffix=[5], prompt_length=9)
    error = {"status": 503, "message": "vLLM is loading"}
    ending = make.end((), status="failed", finish=None, reply=None, error=error)
    make.turn(session_id, ending, parent_id=first, prompt_suffix=[4, 5], prompt_length=7)
    ending = make.end([9], logprobs=[], untrainable="missing logprobs")
    make.turn(session_id, ending, drift_reason="compaction", purpose="compaction")


def shape(output: str) -> list[str]:
    """The tree's lines, by their guides and turn numbers."""
    return [line[: line.index("#") + 2] for line in output.splitlines() if "── #" in line]


@pytest.mark.usefixtures("forked")
def test_the_tree(replay: Any) -> None:
    output = replay("show", "forked", "--no-messages").output
    assert shape(output) == ["├── #1", "│   ├── #2", "│   │   └── #3", "│   └── #4", "└── #5"]
    lines = output.splitlines()
    assert "harness codex 0.171  task t  group g" in lines[0]
    assert lines[1] == "5 turns, 2 sequences, 10 prompt tokens (28 as sent), 7 sampled"
    assert "tool_calls  prompt 3 (+3)  sampled 2  v1" in lines[2]
    assert "root: first" in lines[2]
    assert "fork of #1" in lines[3]
    assert "fork" not in lines[4]
    assert "failed" in lines[5]
    assert "vLLM is loading" in lines[5]
    assert "root: compaction  untrainable: missing logprobs" in lines[6]


def test_a_long_session_goes_straight_down(replay: Any, make: Any) -> None:
    make.conversation(make.session("s"), 12)
    output = replay("show", "s", "--no-messages").output
    assert shape(output) == ["└── #1", *["    ├── #" + str(n)[0] for n in range(2, 12)], "    └── #1"]


def test_branches_are_named_where_they_begin(replay: Any, make: Any, reader: Reader) -> None:
    turns = make.conversation(make.session("s"), 3)
    for name, last in (("s.at2.1", 2), ("s.at2.2", 2), ("whole", 3)):
        branch = make.session(name)
        for turn in turns[:last]:
            make.turn(branch, replays=turn)
    assert reader.branches(reader.session("s")) == {turns[1]: ["s.at2.1", "s.at2.2"], turns[2]: ["whole"]}
    lines = [line.strip(" │├└─") for line in replay("show", "s", "--no-messages").output.splitlines()[2:]]
    assert [line.split("  ")[0] for line in lines] == [
        "#1 main", "#2 main", "goes on in s.at2.1", "goes on in s.at2.2", "#3 main", "goes on in whole",
    ]  # fmt: skip


@pytest.mark.usefixtures("forked")
def test_messages(replay: Any) -> None:
    output = replay("show", "forked").output
    assert "assistant▸ hmm" in output
    assert '→ bash {"cmd": "ls"}' in output
    assert "line 5 … [" in output
    assert "line 6" not in output
    whole = replay("show", "forked", "--turn", "2").output
    assert "line 49" in whole
    assert 'sampling asked  {"temperature": 0.5}' in whole
    assert "continues       #1" in whole


@pytest.mark.usefixtures("forked")
def test_tokens_logprobs_and_the_request(replay: Any) -> None:
    output = replay("show", "forked", "--turn", "2", "--tokens", "--logprobs", "--no-messages").output
    assert "4 ▸ 7 8" in output
    assert "0   7  -0.5000  0.607" in output
    assert "not trained" not in output.replace("struck: not trained", "")
    assert "not trained: untrainable: missing logprobs" in replay("show", "forked", "--tokens", "--turn", "5").output
    assert "none" in replay("show", "forked", "--turn", "5", "--logprobs").output


@pytest.mark.usefixtures("forked")
def test_into_a_pipe_goes_json_alone(replay: Any) -> None:
    request = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}
    assert json.loads(replay("show", "forked", "--turn", "2", "--request").stdout) == request
    lines = replay("show", "forked", "--request", "--reply").stdout.splitlines()
    assert len(lines) == 10
    assert json.loads(lines[3]) == {"role": "assistant", "content": "hello"}


@pytest.mark.usefixtures("forked")
def test_timings(replay: Any) -> None:
    lines = replay("show", "forked", "--timings").output.splitlines()
    assert lines[0].split("  ")[0] == "turn"
    assert [line.split()[0] for line in lines[1:]] == ["#1", "#2", "#3", "#4", "#5"]
    assert replay("show", "forked", "--timings", "--turn", "2").output.splitlines()[1].split()[0] == "#2"


@pytest.mark.usefixtures("forked")
def test_json_documents(replay: Any) -> None:
    [listed] = json.loads(replay("list", "--json").output)
    assert (listed["name"], listed["reward"]) == ("forked", None)
    counts = {"turns": 5, "sequences": 2, "prompt_tokens": 28, "new_tokens": 10, "sampled_tokens": 7}
    assert listed["counts"] == counts
    shown = json.loads(replay("show", "forked", "--json", "--tokens", "--request").output)
    assert {name: shown[name] for name in listed} == listed
    assert [turn["number"] for turn in shown["turns"]] == [1, 2, 3, 4, 5]
    assert [turn["parent"] for turn in shown["turns"]] == [None, 1, 2, 1, None]
    third = shown["turns"][2]
    assert (third["prompt_ids"], third["sampled"]) == ([1, 2, 3, 7, 8, 4, 7, 8, 5], [7, 8])
    assert third["request"] == {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}
    assert third["reply"] == {"role": "assistant", "content": "hello"}
    [one] = json.loads(replay("show", "forked", "--json", "--turn", "2", "--no-messages").output)["turns"]
    assert one["number"] == 2
    assert "reply" not in one
    assert "sampled" not in one


def test_list(replay: Any, make: Any, recorder: Recorder) -> None:
    make.session("a", harness="codex")
    make.conversation(make.session("b", harness="pi", task="t", group="g"), 2)
    recorder.score("b", 0.5, status="done").result()
    lines = replay("list").output.splitlines()
    assert lines[0].split() == ["session", "harness", "task", "group", "turns", "seqs", "prompt", "sampled", "reward",
                                "status", "age"]  # fmt: skip
    assert lines[1].split()[:10] == ["b", "pi", "t", "g", "2", "1", "32", "4", "0.5", "done"]
    assert lines[2].split()[:10] == ["a", "codex", "-", "-", "0", "0", "0", "0", "-", "open"]
    filtered = replay("list", "--reward-min", "0.5", "--harness", "pi", "--status", "done", "--limit", "1", "--json")
    assert [one["name"] for one in json.loads(filtered.output)] == ["b"]
    assert "no session matches" in replay("list", "--task", "none").stderr
    for filters in (["message 1"], ["--weights", "v1"], ["--purpose", "main"]):
        assert [one["name"] for one in json.loads(replay("list", *filters, "--json").output)] == ["b"], filters
    for filters in (["message 7"], ["--weights", "v2"], ["--purpose", "title"], ["--harness-version", "2"]):
        assert json.loads(replay("list", *filters, "--json").output) == [], filters
    assert "nothing to search for" in replay("list", "?!", code=1).stderr


def test_a_long_name_stays_whole_and_its_row_one_line(replay: Any, make: Any) -> None:
    name = "run.fix-the-quoting-of-the-argument-parser.mini-swe-agent.3"
    make.session(name, harness="mini-swe-agent", task="fix-the-quoting", group="run/fix-the-quoting/mini-swe-agent")
    lines = replay("list").output.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith(name)


def test_one_is_no_plural(replay: Any, make: Any) -> None:
    make.turn(make.session("s"))
    assert replay("show", "s").output.splitlines()[1] == "1 turn, 1 sequence, 3 prompt tokens (3 as sent), 2 sampled"


def test_score(replay: Any, make: Any, reader: Reader) -> None:
    make.session("a")
    replay("score", "a", "-1", "--part", "tests=1", "--part", "length=-2", "--status", "done")
    found = reader.session("a")
    assert (found.reward, found.reward_parts, found.status) == (-1.0, {"tests": 1.0, "length": -2.0}, "done")
    replay("score", "a", "none")
    assert reader.session("a").reward is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "fixtests"], "no session 'fixtests'; near: fix-tests"),
        (["score", "fixtests", "1"], "near: fix-tests"),
        (["show", "fix-tests", "--turn", "9"], "has 0 turns, no turn 9"),
        (["score", "fix-tests", "much"], "REWARD: 'much' is not a number"),
        (["score", "fix-tests", "nan"], "must be finite"),
        (["score", "fix-tests", "1", "--part", "x"], "'x' is not NAME=VALUE"),
        (["show", "fix-tests", "--tokenizer", "/none"], "no tokenizer at /none"),
        (["list", "--store", "sqlite:////none/x.db"], "tap up"),
        (["list", "--store", "x.db"], "write sqlite:///x.db"),
    ],
)
def test_errors_say_what_to_do(replay: Any, make: Any, arguments: list[str], says: str) -> None:
    make.session("fix-tests")
    result = replay(*arguments, code=1)
    assert says in result.stderr
    assert result.stdout == ""


def test_what_a_model_says_cannot_steer_the_terminal(replay: Any, make: Any) -> None:
    reply = {"role": "assistant", "content": "[bold]x[/bold] \x1b[2J \x9b5m \ud83d end"}
    make.turn(make.session("s"), make.end(reply=reply))
    output = replay("show", "s").output
    assert "[bold]x[/bold] ␛[2J �5m � end" in output


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """Byte-level: one id a byte, so a character may take several."""
    vocabulary = {char: index for index, char in enumerate(sorted(ByteLevel.alphabet()))}
    made = Tokenizer(BPE(vocabulary, []))
    made.pre_tokenizer = ByteLevel(add_prefix_space=False)
    made.decoder = ByteLevelDecoder()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_tokens_as_text(tokenizer: Path, replay: Any, make: Any) -> None:
    loaded = tokens.load_tokenizer(tokenizer)
    prompt, sampled = loaded.encode("say\n").ids, loaded.encode("é ok").ids
    assert len(sampled) == 5
    assert tokens.decode(sampled, loaded) == ["", "é", " ", "o", "k"]
    make.turn(make.session("s"), make.end(sampled), prompt_suffix=prompt)
    output = replay("show", "s", "--tokens", "--logprobs", "--tokenizer", str(tokenizer), "--no-messages").output
    assert "say↵" in output
    assert "▸é ok" in output
    assert "-0.5000  0.607  é" in output
    (tokenizer / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match="is not a tokenizer"):
        tokens.load_tokenizer(tokenizer / "bad.json")


def test_unlikely_tokens_are_red() -> None:
    assert [tokens.style(logprob) for logprob in (0.0, -0.2, -1.0, -3.0, -30.0, float("-inf"))] == [
        "", "green", "yellow", "dark_orange3", "bold red", "bold red",
    ]  # fmt: skip
    console = Console(force_terminal=True, color_system="standard", width=80)
    with console.capture() as capture:
        console.print(tokens.sequence([1], [2, 3], [-0.01, -9.0], None))
    assert "\x1b[1;31m3 \x1b[0m" in capture.get()
