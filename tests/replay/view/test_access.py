from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from replay.view.access import HEADERS, new_token
from replay.view.server import application
from tests.replay.view.conftest import TOKEN


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/record.db"


@pytest.mark.parametrize("path", ["/", "/sessions", "/static/view.css", "/training", "/nothing"])
@pytest.mark.parametrize("query", ["", "?token=", "?token=wrong", "?token=%C3%A9"])
async def test_without_the_token_there_is_nothing(stranger: Any, path: str, query: str) -> None:
    answer = await stranger.get(path + query)
    assert answer.status == 403
    assert "Open the address" in await answer.text()
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


async def test_the_token_becomes_a_cookie_and_leaves_the_address(stranger: Any) -> None:
    answer = await stranger.get(f"/sessions?status=done&token={TOKEN}", allow_redirects=False)
    assert (answer.status, answer.headers["Location"]) == (303, "/sessions?status=done")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert (await stranger.get("/sessions")).status == 200
    assert (await stranger.get("/sessions?token=wrong")).status == 403


async def test_servers_side_by_side_do_not_take_each_others_cookies(stranger: Any, store: Any) -> None:
    async with TestServer(application(store, "another")) as other:
        await stranger.get("/sessions", params={"token": TOKEN})
        first = await stranger.session.get(other.make_url("/sessions"), params={"token": "another"})
        assert (first.status, (await stranger.get("/sessions")).status) == (200, 200)
        assert (await stranger.session.get(other.make_url("/sessions"))).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80@127.0.0.1.x", "10.0.0.1", "[::1", "", "a@b@c"]
)
async def test_another_name_for_this_machine_is_refused(client: Any, host: str) -> None:
    answer = await client.get("/sessions", headers={"Host": host})
    assert answer.status == 403
    assert "127.0.0.1 and localhost only" in await answer.text()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:9999", "[::1]:80"])
async def test_loopbacks_own_names_are_taken(client: Any, host: str) -> None:
    assert (await client.get("/sessions", headers={"Host": host})).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_it_is_read_only(client: Any, method: str) -> None:
    answer = await client.request(method, "/sessions")
    assert answer.status == 405
    assert answer.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]


async def test_static_files_only(client: Any) -> None:
    assert (await client.get("/static/view.css")).content_type == "text/css"
    for path in ("/static/", "/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py"):
        assert (await client.get(path)).status in (403, 404), path


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43
