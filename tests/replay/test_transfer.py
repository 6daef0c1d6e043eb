"""Sessions from record to record, out of one, and secrets out of them: on both databases."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, text

from replay import bundles, interchange, pruning, redaction
from replay.owners import take as take_ownership
from replay.reader import Reader
from replay.records import NewBatch, NewBatchRow
from replay.schema import Blob
from replay.store import Store
from replay.versions import VersionSpan
from replay.writer import Recorder


@pytest.fixture
def other(tmp_path: Path) -> Any:
    with Store.open(f"sqlite:///{tmp_path}/other.db") as opened:
        yield opened


@pytest.fixture
def full(make: Any, recorder: Recorder) -> None:
    """A conversation with a reward, a fork, a retry; and a run that replays its first turn."""
    session = make.session("full", harness="codex", harness_version="1", task="t", group="g")
    turns = make.conversation(session, 3)
    pushed = [VersionSpan("1", 0, 1), VersionSpan("2", 1, 2)]
    make.turn(session, make.end([1, 2], logprobs=[-1e-7, -1.0], weight_versions=pushed),
              parent_id=turns[0], prompt_suffix=[5], prompt_length=13,
              messages=[{"role": "user", "content": "fork \ud800 " + "9" * 25}], retry_of=turns[1])  # fmt: skip
    picture = b"\x89PNG\xff\x00"
    image = {"sha256": hashlib.sha256(picture).hexdigest(), "media_type": "image/png", "offset": 0, "length": 1}
    make.turn(make.session("again"), replays=turns[0], images=[image], files={image["sha256"]: picture})
    recorder.score("full", 0.5, {"tests": 1.0}, "done").result()


def everything(store: Store, name: str) -> list[Any]:
    """What a session says, with turns by their numbers."""
    reader = Reader(store)
    session = reader.session(name)
    turns = reader.turns(session, tokens=True)
    numbers = {turn.id: number for number, turn in enumerate(turns, 1)}
    columns = [c.name for c in bundles.TURN.columns if c.name not in ("id", "session_id", "owner", "replays")]
    columns = [c for c in columns if c not in ("request_items", "messages", "parent_id", "retry_of")]
    about = [getattr(session, n) for n in ("harness", "harness_version", "task", "group", "status", "reward",
                                           "reward_parts", "created_at", "scored_at", "meta")]  # fmt: skip
    return about + [
        [
            numbers.get(turn.parent_id), numbers.get(turn.retry_of), reader.prompt_ids(turn), reader.request(turn),
            reader.new_messages(turn), reader.reply(turn), reader.tools(turn), *(getattr(turn, c) for c in columns),
        ]
        for turn in turns
    ]  # fmt: skip


@pytest.mark.usefixtures("full")
def test_an_export_comes_back_exactly(store: Store, other: Store, replay: Any, tmp_path: Path) -> None:
    target, file = f"sqlite:///{tmp_path}/other.db", tmp_path / "x.jsonl"
    replay("export", "--out", str(file))
    said = replay("import", str(file), "--store", target).stderr
    assert "full added" in said
    for name in ("full", "again"):
        assert everything(other, name) == everything(store, name)
    reader = Reader(other)
    [replayed] = reader.turns(reader.session("again"))
    assert replayed.replays == reader.turns(reader.session("full"))[0].id
    assert [session.name for session in reader.sessions(text="message 2")] == ["full"]
    assert "full is there already" in replay("import", str(file), "--store", target).stderr
    with Recorder(other) as recorder:  # and it can be gone on with
        recorder.score("full", 1.0).result()


@pytest.mark.usefixtures("full")
def test_merging_shares_texts_and_minds_names(
    store: Store, other: Store, replay: Any, url: str, make_with: Any, tmp_path: Path
) -> None:
    def blobs(one: Store) -> int:
        with one.engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(Blob)).scalar_one()

    with Recorder(other) as recorder:
        make = make_with(recorder)
        make.conversation(make.session("theirs"), 3)
        make.turn(make.session("again"), messages=[{"role": "user", "content": "another"}])
    target = f"sqlite:///{tmp_path}/other.db"
    before = blobs(other)
    assert "the record has another session 'again'" in replay("merge", url, "--store", target, code=1).stderr
    assert "again added as again.2" in replay("merge", url, "--rename", "--store", target).stderr
    assert blobs(other) - before < blobs(store)
    assert everything(other, "full") == everything(store, "full")
    assert replay("merge", url, "--rename", "--store", target).stderr.count("is there already") == 2
    assert "is the record itself" in replay("merge", target, "--store", target, code=1).stderr


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "it is empty"),
        (['{"type": "session"}'], "line 1: this is no export"),
        (["nonsense"], "line 1:"),
        (['{"type": "header", "format": "harnesstap", "version": 9}'], "another harnesstap (version 9"),
        (
            ['{"type": "header", "format": "harnesstap", "version": 1}', '{"type": "end"}'],
            "line 2: a line of type 'end'",
        ),
        (
            ['{"type": "header", "format": "harnesstap", "version": 1}', '{"type": "session", "row": {"colour": 1}}'],
            "knows no session.colour",
        ),
    ],
)
def test_what_is_no_export(lines: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        list(interchange.read(line.encode() for line in lines))


@pytest.mark.usefixtures("full")
def test_pruning_takes_only_what_nobody_else_has(store: Store, make: Any, recorder: Recorder, replay: Any) -> None:
    make.turn(make.session("kept"), messages=[{"role": "user", "content": "mine"}])
    recorder.close()
    before = everything(store, "again")
    assert replay("prune", "full").stdout == "full\n"
    assert Reader(store).session("full")
    said = replay("prune", "full", "--yes").stderr
    assert "removed 1 session, 4 turns and" in said
    reader = Reader(store)
    assert [session.name for session in reader.sessions()] == ["kept", "again"]
    assert everything(store, "again") == before
    assert [session.name for session in reader.sessions(text="mine")] == ["kept"]
    assert reader.sessions(text="message") == []
    with store.engine.connect() as connection:
        for table in ("turn", "message", "message_search", "blob"):
            assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() > 0
    replay("prune", "kept", "again", "--yes")
    with store.engine.connect() as connection:
        for table in ("session", "turn", "message", "turn_message", "message_search", "blob"):
            assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() == 0


@pytest.mark.usefixtures("full")
def test_what_was_trained_on_or_is_written_to_is_kept(
    store: Store, recorder: Recorder, reader: Reader, replay: Any
) -> None:
    turn = reader.turns(reader.session("full"))[0].id
    recorder.record_batch(
        NewBatch(created_at=0, query={}, seed=0, weight_version="1", rows=[NewBatchRow(turn_id=turn, advantage=1.0)])
    ).result()
    assert "a proxy is writing" in replay("prune", "--group", "g", "--trained", "--yes", code=1).stderr
    recorder.close()
    assert "1 session of training batches kept" in replay("prune", "--group", "g", "--yes").stderr
    assert replay("prune", "--group", "g", "--older-than", "1", "--trained").stdout == ""
    assert replay("prune", "--group", "g", "--trained").stdout == "full\n"
    assert "say which sessions" in replay("prune", code=1).stderr
    owner = take_ownership(store)  # of nothing here
    owner.release()
    with pytest.raises(LookupError):
        reader.turn(10**6)


def test_a_secret_leaves_every_table(make: Any, store: Store, recorder: Recorder, replay: Any, url: str) -> None:
    secret = "hunter2-0123456789"
    call = {"id": "c", "name": "bash", "arguments": json.dumps({"command": f"echo {secret}"})}
    session = make.session("s", metadata={"note": f"uses {secret}"})
    tools = [{"name": "bash", "about": secret + "z" * 500}]
    asked = [{"role": "user", "content": "hi"}]
    first = make.turn(session, make.end([7, 8], reply={"role": "assistant", "content": "", "tool_calls": [call]}),
                      request={"model": "m", "messages": asked, "tools": tools, "note": secret})  # fmt: skip
    result = {"role": "tool", "content": f"{secret}\n", "tool_call_id": "c"}
    second = make.turn(session, parent_id=first, prompt_suffix=[40, 41], prompt_length=7, messages=[result],
                       request={"model": "m", "messages": [*asked, result], "tools": tools})  # fmt: skip
    make.turn(session, parent_id=second, prompt_suffix=[50], prompt_length=10, messages=asked,
              request={"model": "m", "messages": [*asked, result, *asked], "tools": tools})  # fmt: skip
    make.turn(make.session("clean"), messages=[{"role": "user", "content": "clean"}])
    recorder.close()
    clean = everything(store, "clean")
    said = replay("redact", r"hunter2-\d+").stderr
    assert "the token ids of 2 turns; 3 turns not trained any more" in said
    found = [str(column) for table in ("session", "turn") for column in all_of(store, table)]
    with store.engine.connect() as connection:
        found += [str(bundles.load(connection, [d])[d]) for d in connection.execute(select(Blob.sha256)).scalars()]
    assert not any(secret in one for one in found)
    reader = Reader(store)
    turns = reader.turns(reader.session("s"), tokens=True)
    assert reader.request(turns[2])["messages"][1]["content"] == "[redacted]\n"
    assert reader.request(turns[0])["note"] == "[redacted]"
    assert reader.request(turns[0])["tools"][0]["about"].startswith("[redacted]z")
    assert (turns[0].sampled, turns[1].prompt_suffix, turns[2].prompt_suffix) == ([0, 0], [0, 0], [50])
    assert [turn.untrainable for turn in turns] == ["redacted"] * 3
    assert reader.sessions(text="hunter2") == []
    assert [one.name for one in reader.sessions(text="redacted")] == ["s"]
    assert everything(store, "clean") == clean
    assert "redact between all characters" in replay("redact", "x*", code=1).stderr
    assert "no regular expression" in replay("redact", "(", code=1).stderr
    assert url


def all_of(store: Store, table: str) -> list[Any]:
    with store.engine.connect() as connection:
        return [value for row in connection.execute(text(f"SELECT * FROM {table}")) for value in row]


def test_with_the_tokenizer_only_the_secrets_tokens_go(make: Any, store: Store, recorder: Recorder) -> None:
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel

    tokenizer = Tokenizer(BPE({char: index + 1 for index, char in enumerate(sorted(ByteLevel.alphabet()))}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    ids = tokenizer.encode("say abc é").ids
    make.turn(make.session("s"), prompt_suffix=ids, messages=[{"role": "user", "content": "say abc é"}])
    recorder.close()
    done = redaction.redact(store, Reader(store).sessions(), re.compile("abc"), tokenizer)
    assert (done.texts, done.turns, done.untrainable) == (1, 1, 1)
    reader = Reader(store)
    [turn] = reader.turns(reader.session("s"))
    assert reader.prompt_ids(turn) == [*ids[:4], 0, 0, 0, *ids[7:]]
    assert pruning.trained_on(store, reader.sessions()) == []
