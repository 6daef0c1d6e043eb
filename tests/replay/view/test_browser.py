"""The pages in a real Chromium: what runs, what is drawn, and what comes up to date by itself."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from replay.store import Store
from replay.view.server import application, serve
from tests.replay.view.conftest import TOKEN

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (harnesstap[dev])")
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no {CHROMIUM}: apt-get install chromium"),
]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/record.db"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        yield running.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))


@pytest.fixture
def served(store: Store, tokenizer: Tokenizer) -> Iterator[str]:
    """Address of the pages, served by a thread with an event loop of its own."""
    port: list[int] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()

    def started(at: int) -> None:
        port.append(at)
        ready.set()

    task = loop.create_task(serve(application(store, TOKEN, tokenizer), 0, started))

    def run() -> None:
        asyncio.set_event_loop(loop)
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    yield f"http://127.0.0.1:{port[0]}"
    loop.call_soon_threadsafe(task.cancel)
    thread.join(30)
    loop.close()


@pytest.fixture
def page(browser: Any, served: str) -> Iterator[Any]:
    """A page that has shown the token; nothing may be complained of in its console."""
    context = browser.new_context(base_url=served, viewport={"width": 1280, "height": 800})
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(f"/?token={TOKEN}")
    assert opened.url == f"{served}/sessions"
    yield opened
    assert complaints == []
    context.close()


def addresses(record: dict[str, int]) -> list[str]:
    evil = f"/sessions/{record['evil']}"
    return [
        "/sessions", "/groups", "/group?name=a%2F%3Cb%3E%26c", "/training", "/batches/1", evil, f"{evil}/timings",
        f"{evil}/sequences/1", f"{evil}/turns/1", f"{evil}/turns/2?history=1", f"{evil}/turns/1?view=tokens",
        f"{evil}/turns/1?view=wire", "/diff?a=g0&b=branch",
    ]  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_quiet_and_fits(page: Any, record: dict[str, int], scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    for address in addresses(record):
        assert page.goto(address).status == 200
        page.wait_for_load_state("networkidle")
        assert page.evaluate("window.pwned") is None, address
        assert page.evaluate("document.querySelectorAll('script').length") == 1, address
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, (address, wide)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) > 380) == (scheme == "light"), address


def test_even_a_script_in_the_page_would_not_run(page: Any, record: dict[str, int]) -> None:
    """The policy holds by itself, should an escape ever be missed."""

    def poisoned(route: Any) -> None:
        answer = route.fetch()
        bad = (
            "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'><b style='color: red'>b</b></main>"
        )
        route.fulfill(response=answer, body=answer.text().replace("</main>", bad))

    blocked: list[str] = []
    with page.context.new_page() as other:
        other.on("console", lambda message: blocked.append(message.text))
        other.route("**/training", poisoned)
        other.goto("/training")
        other.wait_for_load_state("networkidle")
        assert other.evaluate("window.pwned") is None
        assert other.evaluate("getComputedStyle(document.querySelector('main > b')).color") != "rgb(255, 0, 0)"
    assert sum("Content Security Policy" in one for one in blocked) >= 3, blocked


def test_the_list_comes_up_to_date_by_itself(page: Any, make: Any) -> None:
    make.session("first")
    page.goto("/sessions")
    page.get_by_role("link", name="first", exact=True).wait_for()
    page.locator("#pulse", has_text="live").wait_for()
    page.get_by_label("Text").fill("half a thou")
    make.turn(make.session("second", harness="codex"))
    page.get_by_role("link", name="second", exact=True).wait_for(timeout=10_000)
    make.recorder.score("first", 0.25, status="done").result()
    page.locator("tr", has_text="first").get_by_text("0.25").wait_for(timeout=10_000)
    assert page.get_by_label("Text").input_value() == "half a thou"


def test_a_session_comes_up_to_date_and_keeps_what_is_open(page: Any, make: Any) -> None:
    session = make.session("s", metadata={"key": "value"})
    make.turn(session)
    page.goto(f"/sessions/{session}")
    page.get_by_text("metadata").click()
    assert page.get_by_text('"key": "value"').is_visible()
    make.turn(session, drift_reason="compaction", drift_detail="a summary")
    page.get_by_text("root: compaction: a summary").wait_for(timeout=10_000)
    assert page.get_by_text('"key": "value"').is_visible()


def test_who_reads_is_not_disturbed(page: Any, make: Any) -> None:
    make.session("first")
    page.goto("/sessions")
    page.locator("#pulse", has_text="live").wait_for()
    page.get_by_text("first").select_text()
    make.session("second")
    page.wait_for_timeout(5000)
    assert page.get_by_text("second").count() == 0
    page.evaluate("getSelection().removeAllRanges()")
    page.get_by_text("second").wait_for(timeout=10_000)


def test_a_lost_server_is_told(page: Any) -> None:
    with page.context.new_page() as other:  # its console will complain
        other.goto("/sessions")
        other.route("**/sessions", lambda route: route.fulfill(status=503))
        other.locator("#pulse", has_text="not up to date: the server answers 503").wait_for(timeout=10_000)
        other.unroute("**/sessions")
        other.locator("#pulse.live").wait_for(timeout=10_000)


def test_from_the_filter_to_the_token(page: Any, record: dict[str, int]) -> None:
    page.get_by_label("Text").fill("look")
    page.get_by_role("button", name="Filter").click()
    assert "text=look" in page.url
    assert page.locator("tbody tr").count() == 1
    page.locator("tbody a").first.click()
    page.get_by_role("link", name="#1", exact=True).first.click()
    page.get_by_role("link", name="tokens").click()
    colours = page.evaluate(
        "[...document.querySelectorAll('main > * .tokens.sampled[class] > span[title]')]"
        ".map(one => getComputedStyle(one).backgroundColor)"
    )
    assert len(colours) == 8
    assert len(set(colours)) == 5
    page.get_by_role("link", name="wire").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="request.json").click()
    assert download.value.suggested_filename.endswith("turn1-request.json")


def test_an_image_is_painted(page: Any, record: dict[str, int]) -> None:
    page.goto(f"/sessions/{record['evil']}/turns/2")
    page.wait_for_load_state("networkidle")
    assert page.evaluate("[...document.images].map(one => [one.naturalWidth, one.naturalHeight])") == [[8, 6]]


def test_charts_are_drawn(page: Any, record: dict[str, int]) -> None:
    page.goto("/training")
    path = page.locator("svg.chart path").first
    assert path.bounding_box()["width"] > 200
    assert path.evaluate("one => getComputedStyle(one).fill") == "none"
    page.goto("/group?name=a%2F%3Cb%3E%26c")
    assert page.locator("td.bars rect").first.bounding_box()["width"] == pytest.approx(45, abs=1)
