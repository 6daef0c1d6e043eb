"""What harnesses tell of themselves, in headers and bodies of the shape that real ones send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from multidict import CIMultiDict

from addons.caller import HOST_HEADER, SESSION_HEADER, Caller, caller_of, with_body


def caller(
    headers: dict[str, str] | None = None, body: dict[str, Any] | None = None, *, trusted: bool = True
) -> Caller:
    return with_body(caller_of(CIMultiDict(headers or {}), trusted=trusted, default_host="h"), body or {})


def test_our_own_headers_count_only_with_the_hops_token() -> None:
    ours = {SESSION_HEADER: "run-7", HOST_HEADER: "api.openai.com"}
    assert (caller(ours).session, caller(ours).host) == ("run-7", "api.openai.com")
    assert (caller(ours, trusted=False).session, caller(ours, trusted=False).host) == (None, "h")


@pytest.mark.parametrize(
    ("headers", "body", "kind"),
    [
        ({}, {}, None),
        ({"x-claude-code-session-id": "s"}, {}, None),
        ({"x-claude-code-request-class": "main"}, {}, "main"),
        ({"x-claude-code-request-class": "subagent", "x-claude-code-agent-id": "a"}, {}, "subagent"),
        ({"x-claude-code-request-class": "workflow"}, {}, "subagent"),
        ({"x-claude-code-request-class": "auxiliary"}, {}, "side"),
        ({"x-claude-code-request-class": "compaction", "x-claude-code-agent-id": "a"}, {}, "compaction"),
        ({"x-claude-code-request-class": "something new"}, {}, None),
        ({"x-claude-code-agent-id": "a"}, {}, "subagent"),
        ({"x-claude-code-compaction": "auto"}, {}, "compaction"),
        ({"x-claude-code-compaction": "0"}, {}, None),
        ({"x-openai-subagent": "review"}, {}, "subagent"),
        ({"x-openai-subagent": "compact"}, {}, "compaction"),
        ({"x-codex-turn-metadata": json.dumps({"request_kind": "compaction"})}, {}, "compaction"),
        ({"x-codex-turn-metadata": json.dumps({"subagent_kind": "thread_spawn"})}, {}, "subagent"),
        ({"x-codex-turn-metadata": "no JSON"}, {}, None),
        ({"x-codex-turn-metadata": "[1]"}, {}, None),
        ({}, {"client_metadata": {"x-openai-subagent": "collab_spawn"}}, "subagent"),
        ({}, {"client_metadata": {"x-codex-turn-metadata": '{"request_kind": "compact"}', "n": 1}}, "compaction"),
        ({}, {"client_metadata": "text"}, None),
        ({"x-parent-session-id": "ses_1", "x-session-id": "ses_2"}, {}, "subagent"),
    ],
)
def test_what_a_call_is_for(headers: dict[str, str], body: dict[str, Any], kind: str | None) -> None:
    assert caller(headers, body).kind == kind


@pytest.mark.parametrize(
    ("headers", "body", "hint", "thread"),
    [
        ({}, {}, None, None),
        ({"X-Claude-Code-Session-Id": "s"}, {}, "x-claude-code-session-id:s", "s"),
        ({"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a"}, {}, "x-claude-code-session-id:s", "a"),
        ({"session-id": "s", "thread-id": "t"}, {"prompt_cache_key": "k"}, "session-id:s", "t"),
        ({"session_id": "s"}, {"client_metadata": {"thread_id": "t"}}, "session_id:s", "s"),
        ({}, {"prompt_cache_key": "k", "client_metadata": {"thread_id": "t"}}, "prompt_cache_key:k", "t"),
        ({}, {"client_metadata": {"x-codex-turn-metadata": '{"thread_id": "t"}'}}, None, "t"),
        ({"x-session-id": "ses_2", "x-parent-session-id": "ses_1"}, {}, "x-session-id:ses_1", "ses_2"),
        ({}, {"metadata": {"sessionId": "q"}}, "metadata.sessionId:q", None),
        ({}, {"metadata": {"sessionId": ""}, "prompt_cache_key": 3}, None, None),
    ],
)
def test_runs_and_conversations(
    headers: dict[str, str], body: dict[str, Any], hint: str | None, thread: str | None
) -> None:
    found = caller(headers, body)
    assert (found.hint, found.thread) == (hint, thread)


def test_the_harness_and_its_retries() -> None:
    found = caller({"user-agent": "claude-cli/2.1.0 (external, cli)", "x-stainless-retry-count": "2"})
    assert (found.harness, found.harness_version, found.retry_count) == ("claude-code", "2.1.0", 2)
    for odd in ("²", "9" * 5000):
        assert caller({"x-stainless-retry-count": odd}).retry_count == 0


def test_keys_are_told_apart_and_not_kept() -> None:
    one, same = caller({"authorization": "Bearer sk-1"}), caller({"x-api-key": "sk-1"})
    assert one.credential == same.credential
    assert one.credential not in (None, caller({"authorization": "Bearer sk-2"}).credential)
    assert b"sk-1" not in (one.credential or b"")
    assert caller().credential is None


def test_what_was_made_from_a_summary() -> None:
    assert caller({"x-claude-code-context-compacted": "manual"}).compacted
    assert not caller({"x-claude-code-context-compacted": "0"}).compacted
    assert not caller().compacted


@pytest.mark.parametrize(
    ("agent", "harness", "version"),
    [
        ("claude-cli/2.1.332 (external, sdk-cli)", "claude-code", "2.1.332"),
        ("codex_exec/0.171.0 (Debian 12.0.0; x86_64) dumb (codex_exec; 0.171.0)", "codex", "0.171.0"),
        ("opencode/1.18.33 ai-sdk/provider-utils/4.0.46 runtime/bun/1.3.14", "opencode", "1.18.33"),
        ("pi/1.6.0 (linux; node/v26.10.0; x64)", "pi", "1.6.0"),
        ("GeminiCLI-tui/0.61.0/gemini-2.5-pro (linux; x64; terminal)", "gemini-cli", "0.61.0"),
        ("QwenCode/0.24.4 (linux; x64)", "qwen-code", "0.24.4"),
        ("kimi-code-cli/2.1.0", "kimi", "2.1.0"),
        ("kilo/latest/7.7.7/cli ai-sdk/provider-utils/4.0.27 runtime/bun/1.3.14", "kilo", "7.7.7"),
        ("OpenAI/Python 3.57.0", "openai", "3.57.0"),  # mini-swe-agent and others: a library's own
        ("node-fetch", "node-fetch", None),
    ],
)
def test_harnesses_are_known_by_their_user_agents(agent: str, harness: str, version: str | None) -> None:
    found = caller({"user-agent": agent})
    assert (found.harness, found.harness_version) == (harness, version)
