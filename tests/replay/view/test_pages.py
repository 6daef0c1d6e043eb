from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp.test_utils import TestClient, TestServer
from sqlalchemy import event

from replay.reader import Reader
from replay.readiness import examine
from replay.store import Store
from replay.view.access import HEADERS
from replay.view.server import PAGES, application
from tests.replay.view.conftest import EVIL, PNG, SVG, TOKEN

GROUP = "/group?name=" + quote("a/<b>&c", safe="")


class Seen(HTMLParser):
    """What a browser would make of a page: tags, attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[str | None] = []
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.words = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "script":
            self.scripts.append(found.get("src"))
        self.attributes |= found.keys()
        self.links += [value for name, value in attrs if name in ("href", "src", "action") and value]

    def handle_endtag(self, tag: str) -> None:
        self.words += " " if tag in ("dt", "dd", "td", "th", "div") else ""

    def handle_data(self, data: str) -> None:
        self.words += data


def addresses(record: dict[str, int]) -> list[str]:
    """Every page of the record that has everything."""
    evil = f"/sessions/{record['evil']}"
    turns = [f"{evil}/turns/{n}{q}" for n in range(1, 8) for q in ("", "?history=1", "?view=tokens", "?view=wire")]
    return [
        "/sessions", "/sessions?text=script", f"/sessions?task={quote(EVIL[:20])}", "/sessions?reward_min=<script>",
        "/sessions?status=<script>", "/sessions?text=?!", "/groups", GROUP, "/training", "/batches/1", evil,
        f"{evil}/timings", f"{evil}/sequences/1", f"{evil}/sequences/2", "/diff?a=g0&b=g1", "/diff?a=g0&b=branch",
        f"/sessions/{record['branch']}", *turns,
    ]  # fmt: skip


async def test_nothing_that_was_said_runs(client: Any, record: dict[str, int]) -> None:
    for address in addresses(record):
        answer = await client.get(address)
        page = await answer.text()
        assert answer.status == 200, (address, page)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        seen = Seen(page)
        assert seen.scripts == ["/static/live.js"], address
        assert not [name for name in seen.attributes if name.startswith("on") or name == "style"], address
        assert all(link.startswith("/") for link in seen.links), (address, seen.links)
        assert "\x1b" not in page
        assert "Undefined" not in page


async def test_every_page_is_visited(record: dict[str, int]) -> None:
    visited = {re.sub(r"\d+", "N", one.split("?")[0]) for one in addresses(record)}
    known = {re.sub(r"\{.*?\}+", "N", path) for path in PAGES}
    others = {"/", "/named", "/turns/N", *(f"/sessions/N/turns/N/{x}" for x in ("request.json", "reply.json"))}
    assert known - visited == others | {"/sessions/N/turns/N/images/N"}


@pytest.mark.parametrize(
    ("address", "status", "says"),
    [
        ("/sessions/999", 404, "no session with id 999"),
        ("/sessions/x", 404, ""),
        ("/sessions/99999999999999999999", 404, ""),
        ("/sessions/{evil}/turns/9", 404, "has 7 turns, no turn 9"),
        ("/sessions/{evil}/turns/0", 404, "no turn 0"),
        ("/sessions/{evil}/turns/1?view=x", 400, "view: 'x' is none of messages, tokens, wire"),
        ("/sessions/{evil}/turns/2/images/3", 404, "has 2 images, no image 3"),
        ("/sessions/{evil}/sequences/9", 404, "no sequence 9"),
        ("/named?session=evi", 404, "near: evil"),
        ("/group?name=none", 404, "no session is in group"),
        ("/group", 404, "no session is in group"),
        ("/groups?before=x", 400, "before: 'x' is not a whole number"),
        ("/diff?a=g0", 404, "no session"),
        ("/batches/99", 404, "no batch 99; the last is 3"),
        ("/turns/999", 404, "no turn 999"),
        ("/group?name=%00", 400, "without NUL"),
        ("/sessions?reward_max=much", 200, "reward_max: 'much' is not a number"),
        ("/sessions?before=1e3", 200, "before: '1e3' is not a whole number"),
        ("/sessions?task=%00", 200, "without NUL"),
        ("/sessions?text=?!", 200, "nothing to search for"),
    ],
)
async def test_errors_say_what_is_wrong(
    client: Any, record: dict[str, int], address: str, status: int, says: str
) -> None:
    answer = await client.get(address.format(**record))
    assert answer.status == status
    assert says in Seen(await answer.text()).words


async def test_the_list_goes_page_by_page(client: Any, make: Any) -> None:
    names = {f"s{number}" for number in range(120)}
    for name in sorted(names):
        make.session(name, task="t")
    make.session("other")
    address, found = "/sessions?task=t&status=open", []
    while address:
        seen = Seen(await (await client.get(address)).text())
        found += re.findall(r"\bs\d+\b", seen.words)
        older = [link for link in seen.links if "before=" in link]
        assert len(older) <= 1
        address = older[0] if older else ""
    assert (len(found), set(found)) == (120, names)


async def test_filters(client: Any, record: dict[str, int]) -> None:
    async def listed(query: str) -> set[str]:
        words = Seen(await (await client.get(f"/sessions?{query}")).text()).words
        return set(re.findall(r"^\s*(evil|branch|g\d)", words, re.MULTILINE))

    assert await listed("") == {"evil", "branch", "g0", "g1", "g2"}
    assert await listed("reward_min=0") == {"g0", "g1"}
    assert await listed("reward_min=-0.5&reward_max=0") == {"g1", "g2"}
    assert await listed("task=sum&group=a/<b>%26c") == {"g0", "g1", "g2"}
    assert await listed("purpose=subagent") == await listed("harness=<b>h</b>") == {"evil"}
    assert await listed("text=look") == {"evil"}
    assert await listed("weight_version=v2") == set()


async def test_live_pages_change_only_when_the_record_does(client: Any, make: Any, record: dict[str, int]) -> None:
    async def asked(address: str, known: str) -> int:
        answer = await client.get(address, headers={"If-None-Match": known})
        assert (await answer.text() == "") == (answer.status == 304)
        versions[address] = answer.headers["ETag"]
        return int(answer.status)

    branch = f"/sessions/{record['branch']}"
    versions: dict[str, str] = {}
    for address in ("/sessions", branch, GROUP, "/training"):
        assert await asked(address, "") == 200
        assert await asked(address, versions[address]) == 304
    make.turn(record["evil"], drift_reason="template")
    assert await asked("/sessions", versions["/sessions"]) == 200
    assert await asked(branch, versions[branch]) == 304
    opened = make.recorder.open_turn(make.new_turn(record["branch"])).result()
    assert await asked(branch, versions[branch]) == 200
    assert await asked("/sessions", versions["/sessions"]) == 200
    make.recorder.finish_turn(opened, make.end()).result()
    assert await asked(branch, versions[branch]) == 200
    assert await asked("/sessions", versions["/sessions"]) == 200
    make.recorder.score("branch", 0.5, status="done").result()
    assert await asked(branch, versions[branch]) == 200
    assert await asked(GROUP, versions[GROUP]) == 200


async def test_a_tree_shows_forks_roots_retries_and_where_it_goes_on(client: Any, record: dict[str, int]) -> None:
    seen = Seen(await (await client.get(f"/sessions/{record['evil']}")).text())
    words = " ".join(seen.words.split())
    for said in (
        "#1 main", "fork of #1", "retry of #2", "root: subagent: <script>x</script>", "root: compaction: a summary",
        "goes on in branch", "→ </td><script>", "tool: Look: [image] [image] done", "not trained: untrainable: because",
        "<script>window.pwned = 1</script>", "root: harness_rewrote",
    ):  # fmt: skip
        assert said in words, said
    assert "/named?session=branch" in seen.links
    moved = await client.get("/named?session=branch", allow_redirects=False)
    assert (moved.status, moved.headers["Location"]) == (303, f"/sessions/{record['branch']}")
    assert "answered from evil" in " ".join(
        Seen(await (await client.get("/named?session=branch")).text()).words.split()
    )


async def test_a_batchs_row_leads_to_its_turn(client: Any, record: dict[str, int], reader: Reader) -> None:
    turns = reader.turns(reader.session("g2"))
    moved = await client.get(f"/turns/{turns[0].id}", allow_redirects=False)
    assert moved.headers["Location"] == f"/sessions/{record['g2']}/turns/1"


async def test_a_sequence_masks_what_training_leaves_out(client: Any, record: dict[str, int], reader: Reader) -> None:
    found = examine(reader, reader.session(reader.session_name(record["evil"])))
    pages = [
        await (await client.get(f"/sessions/{record['evil']}/sequences/{number}")).text()
        for number in range(1, found.ours.rows + 1)
    ]
    words = [" ".join(Seen(page).words.split()) for page in pages]
    counts = [re.search(r"([\d,]+) tokens, ([\d,]+) trained", text) for text in words]
    assert sum(int(one[1]) for one in counts if one) == found.ours.tokens
    assert sum(int(one[2]) for one in counts if one) == found.trained
    assert '<div class="tokens sampled">' in pages[0]
    assert "not trained: trained in an earlier sequence" in words[1]
    assert '<div class="tokens sampled masked">' in pages[1]


async def test_tokens_are_coloured_by_probability(client: Any, record: dict[str, int]) -> None:
    page = await (await client.get(f"/sessions/{record['evil']}/turns/1?view=tokens")).text()
    body = page[page.index("tokens sampled") :]
    body = body[body.index('<div class="tokens sampled') :]
    levels = re.findall(r'<span class="(p\d)" title="\d+, logprob (-[\d.]+), p ([\d.]+)">(.*?)</span>', body)
    assert [(level, text) for level, _, _, text in levels] == list(
        zip(("p4", "p3", "p2", "p1", "p0", "p4", "p4", "p4"), ("&lt;", *"script", "&gt;"), strict=True)
    )
    assert levels[1][1:3] == ("-0.2000", "0.8187")


async def test_without_a_tokenizer_tokens_are_numbers(store: Store, record: dict[str, int]) -> None:
    async with TestClient(TestServer(application(store, TOKEN))) as client:
        answer = await client.get(f"/sessions/{record['evil']}/turns/2?view=tokens", params={"token": TOKEN})
        words = " ".join(Seen(await answer.text()).words.split())
    assert "65 66 67 7 8" in words
    assert "was given no --tokenizer" in words


async def test_images_are_shown_where_their_type_is_harmless(client: Any, record: dict[str, int]) -> None:
    turn = f"/sessions/{record['evil']}/turns/2"
    seen = Seen(await (await client.get(turn)).text())
    assert seen.links.count(f"{turn}/images/1") == 2
    assert "image 2, not shown" in seen.words
    png, svg = [await client.get(f"{turn}/images/{place}") for place in (1, 2)]
    assert (png.content_type, await png.read()) == ("image/png", PNG)
    assert "Content-Disposition" not in png.headers
    assert (svg.content_type, await svg.read()) == ("application/octet-stream", SVG)
    assert svg.headers["Content-Disposition"].startswith("attachment")
    assert svg.headers["X-Content-Type-Options"] == "nosniff"


async def test_the_wire_is_cut_on_the_page_and_whole_in_the_file(client: Any, record: dict[str, int]) -> None:
    turn = f"/sessions/{record['evil']}/turns/1"
    words = Seen(await (await client.get(f"{turn}?view=wire")).text()).words
    assert re.search(r"y… \[5,\d\d\d more characters\]", words)
    for name, key in (("request.json", "long"), ("reply.json", "content")):
        answer = await client.get(f"{turn}/{name}")
        assert answer.headers["Content-Disposition"].startswith("attachment")
        document = json.loads(await answer.read())
        assert document[key] == {"long": "y" * 9000, "content": EVIL}[key]


async def test_a_group_compares_its_sessions(client: Any, record: dict[str, int]) -> None:
    page = await (await client.get(GROUP)).text()
    words = " ".join(Seen(page).words.split())
    assert "sessions 4 judged 3 reward 0.1667 ± 0.6236" in words
    assert re.search(r"g0 open 1 1 \+0\.800 1 1 2 .*? hello.*?g1 open 0 0 -0\.200 .*g2 open -0\.5 -0\.5 -0\.700", words)
    assert words.index("g2") < words.index("evil")
    assert 'title="&lt;script&gt;no">left out' in page
    assert 'x="-50.0"' in page


async def test_two_sessions_call_by_call(client: Any, record: dict[str, int], make: Any) -> None:
    other = make.session("other")
    make.turn(other, make.end([7, 9]), messages=[{"role": "user", "content": "ho"}])
    words = " ".join(Seen(await (await client.get("/diff?a=g0&b=other")).text()).words.split())
    assert "1 difference in 1 call" in words
    assert "First difference, A #1 and B #1: message 1 (user), content, byte 1: stored 'hi', now 'ho'" in words
    assert "from token 1" in words


async def test_training_is_drawn_over_its_batches(client: Any, record: dict[str, int]) -> None:
    page = await (await client.get("/training")).text()
    assert re.findall(r'aria-label="(\w+)"', page) == ["reward", "entropy", "loss"]
    assert page.count("<circle") == 9
    assert "batch 2: 0.4" in page
    assert "batch 3: 0.166667" in page
    words = " ".join(Seen(await (await client.get("/batches/1")).text()).words.split())
    assert "0 g0 a/<b>&c 1 +0.800 2 turn" in words
    assert "left out: <script>no" in words


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_no_page_reads_all_turns(client: Any, store: Store, record: dict[str, int]) -> None:
    asked: dict[str, Any] = {}
    event.listen(
        store.engine, "before_cursor_execute",
        lambda _c, _cursor, statement, parameters, *_: asked.setdefault(statement, parameters),
    )  # fmt: skip
    for address in [*addresses(record), "/sessions?purpose=main&weight_version=v1&before=9&text=hi"]:
        assert (await client.get(address)).status == 200
    plans = []
    with store.engine.connect() as connection:
        for statement, parameters in list(asked.items()):
            if statement.lstrip().startswith(("SELECT", "WITH")):
                rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
                plans += [(row[-1], statement) for row in rows]
    assert len(plans) > 30
    # The index of open turns holds these alone.
    scans = [plan for plan in plans if re.match(r"SCAN (turn|batch_row|turn_message|message|blob)\b", plan[0])]
    assert [plan for plan in scans if not plan[0].endswith("ix_turn_open")] == []


async def test_a_long_sequence_is_shown_a_hundred_turns_a_page(client: Any, make: Any) -> None:
    session = make.session("long")
    make.conversation(session, 101)
    pages = []
    for query in ("", "?from=101"):
        seen = Seen(await (await client.get(f"/sessions/{session}/sequences/1{query}")).text())
        pages.append(" ".join(seen.words.split()))
        assert f"/sessions/{session}/sequences/1?from=101" in seen.links
    assert [page.count("+10 context, 2 sampled") for page in pages] == [100, 1]
    assert all("1,212 tokens, 202 trained, 83.3 % context or masked" in page for page in pages)
