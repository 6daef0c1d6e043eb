from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from addons.backend import SILENCE, Backend, load_model
from addons.engine import Engine
from addons.errors import EngineMismatch, EngineUnavailable
from addons.model import ModelError, ModelFiles
from addons.prompts import ReasoningPolicy
from addons.replies import UnknownParser
from tests.addons.kit import CHATML, chatml
from tests.scripted_engine import ScriptedEngine


@asynccontextmanager
async def backend_of(engine: ScriptedEngine, reasoning: ReasoningPolicy = "keep") -> AsyncIterator[Backend]:
    async for running in engine.run():
        async with aiohttp.ClientSession() as http:
            yield Backend(Engine(running.url, http), reasoning=reasoning)


def silence(backend: Backend) -> None:
    """Let the time pass in which a vLLM could restart."""
    backend.engine.heard_at -= SILENCE


async def refusal(engine: ScriptedEngine) -> str:
    async with backend_of(engine) as backend:
        with pytest.raises(EngineMismatch) as refused:
            await backend.model()
    return refused.value.message


async def test_facts_are_joined_with_the_files(tmp_path: Path) -> None:
    engine = ScriptedEngine(chatml(tmp_path), window=4096)
    async with backend_of(engine) as backend:
        model = await backend.model()
    assert (model.facts.model, model.facts.window, model.facts.reports_weights) == ("scripted", 4096, True)
    assert [model.files.token_text(number) for number in model.files.stop_ids] == ["<|im_end|>"]
    assert model.prompts.probe().way == "stand-in"


async def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    engine = ScriptedEngine(chatml(tmp_path / "served", "unigram"))
    engine.root = str(chatml(tmp_path / "ours").path)
    message = await refusal(engine)
    assert "the tokenizer of" in message
    assert "set the model option to the folder or hub id that vLLM loaded" in message


async def test_another_template_is_refused(tmp_path: Path) -> None:
    """By what a conversation becomes, also where the server does not show its template; by the text where it does."""
    other = CHATML.replace(
        "'<|im_end|>\\n' }}\n{%- endif %}\n{%- endfor", "'<|im_end|> \\n' }}\n{%- endif %}\n{%- endfor"
    )
    assert other != CHATML
    message = await refusal(ScriptedEngine(chatml(tmp_path), template=other))
    assert "a test conversation has '" in message
    assert "Start vLLM without --chat-template" in message
    unseen = CHATML.replace("<tool_response>\\n", "<tool_response>")
    assert "they differ in line 6" in await refusal(
        ScriptedEngine(chatml(tmp_path), template=unseen, shows_template=True)
    )
    async with backend_of(ScriptedEngine(chatml(tmp_path), shows_template=True)) as backend:
        assert (await backend.model()).files.template == CHATML


async def test_the_date_in_a_template_may_be_another(tmp_path: Path) -> None:
    """The two machines' clocks need not agree on it."""
    dated = "{{- strftime_now('%d %b %Y') }}" + CHATML
    tomorrow = "{{- '01 Jan 2031' }}" + CHATML
    async with backend_of(ScriptedEngine(chatml(tmp_path, template=dated), template=tomorrow)) as backend:
        await backend.model()
    undated = ScriptedEngine(chatml(tmp_path / "undated"), template=tomorrow)
    assert "01 Jan 2031" in await refusal(undated)


async def test_a_server_without_a_template_uses_ours(tmp_path: Path) -> None:
    async with backend_of(ScriptedEngine(chatml(tmp_path), template="")) as backend:
        await backend.model()


async def test_raw_logprobs_are_refused(tmp_path: Path) -> None:
    assert "--logprobs-mode processed_logprobs" in await refusal(ScriptedEngine(chatml(tmp_path), raw_logprobs=True))


async def test_calls_that_follow_each_other_ask_for_no_facts(tmp_path: Path) -> None:
    engine = ScriptedEngine(chatml(tmp_path))
    async with backend_of(engine) as backend:
        model = await backend.model()
        asked = engine.asked
        assert await backend.model() is model
        assert engine.asked == asked
        silence(backend)
        assert await backend.model() is model
        assert engine.asked > asked


async def test_another_model_under_the_same_name_is_noticed_after_a_silence(tmp_path: Path) -> None:
    """A vLLM that was restarted with another tokenizer, template or logprobs before anybody asked it again."""
    ours = chatml(tmp_path / "ours")
    engine = ScriptedEngine(ours)
    engine.root = str(ours.path)
    async with backend_of(engine) as backend:
        await backend.model()
        engine.model = chatml(tmp_path / "other", "byte_fallback")
        silence(backend)
        for _ in range(2):  # it stays refused, though vLLM was heard meanwhile
            with pytest.raises(EngineMismatch, match="the tokenizer of"):
                await backend.model()
        engine.model, engine.raw_logprobs = ours, True
        with pytest.raises(EngineMismatch, match="raw logprobs"):
            await backend.model()
        engine.raw_logprobs = False
        await backend.model()


async def test_files_that_changed_with_vllm_are_read_again(tmp_path: Path) -> None:
    engine = ScriptedEngine(chatml(tmp_path))
    async with backend_of(engine) as backend:
        before = await backend.model()
        engine.model = chatml(tmp_path, "byte_fallback")
        silence(backend)
        after = await backend.model()
    assert after.files.template_hash != before.files.template_hash


async def test_a_vllm_that_is_away_is_asked_again(tmp_path: Path) -> None:
    engine = ScriptedEngine(chatml(tmp_path))
    async with backend_of(engine) as backend:
        url, backend.engine.url = backend.engine.url, "http://127.0.0.1:9"
        with pytest.raises(EngineUnavailable):
            await backend.model()
        backend.engine.url = url
        await backend.model()


async def test_the_reasoning_policy_reaches_the_prompts(tmp_path: Path) -> None:
    async with backend_of(ScriptedEngine(chatml(tmp_path)), "template") as backend:
        assert (await backend.model()).prompts.reasoning == "template"


def test_files_are_checked_without_a_vllm(tiny: ModelFiles, tmp_path: Path) -> None:
    files, _, _ = load_model(str(tiny.path))
    assert files.template_hash == tiny.template_hash
    with pytest.raises(ModelError, match="no such folder"):
        load_model(str(tmp_path / "nowhere"))
    with pytest.raises(UnknownParser, match="no parser 'nope'"):
        load_model(str(tiny.path), "nope")
