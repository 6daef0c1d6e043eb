"""`tap scripted`: a script behind the gateway, as its help teaches; and what it says of scripts that are none."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from typer.testing import CliRunner

from addons.cli import app
from addons.commands.scripted import load, scripted
from addons.service import Service, ServiceOptions
from tests.conftest import TINY

ROOT = Path(__file__).parents[2]
BASH: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def taught() -> str:
    """The script that the command's help shows."""
    text = inspect.getdoc(scripted) or ""
    lines = text[text.index("    def reply") :].splitlines()
    return textwrap.dedent("\n".join(lines[: lines.index("")]))


@contextlib.asynccontextmanager
async def serving(script: Path, *arguments: str) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """The command's own process, and the address that it prints."""
    command = [sys.executable, "-c", "from addons.cli import app; app()", "scripted", str(script), "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().strip(), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@contextlib.asynccontextmanager
async def gateway(engine: str, folder: Path) -> AsyncIterator[AsyncOpenAI]:
    service = Service(ServiceOptions(engine=engine, store=f"sqlite:///{folder / 'record.db'}"))
    port = await service.start()
    try:
        yield AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-nobody", max_retries=0)
    finally:
        await service.stop()


@pytest.mark.parametrize("model", ["", str(TINY)], ids=["bytes", "tiny"])
async def test_the_script_of_the_help_answers_a_harness(tmp_path: Path, model: str) -> None:
    script = tmp_path / "reply.py"
    script.write_text(taught())
    async with (
        serving(script, *(["--model", model] if model else [])) as (url, process),
        gateway(url, tmp_path) as client,
    ):
        messages: list[Any] = [{"role": "user", "content": "look"}]
        reply = (await client.chat.completions.create(model="m", messages=messages, tools=[BASH])).choices[0].message  # type: ignore[list-item]
        assert reply.tool_calls is not None
        [call] = reply.tool_calls
        assert call.type == "function"
        assert (call.function.name, json.loads(call.function.arguments)) == ("bash", {"command": "ls"})
        messages += [reply.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "a.txt"}]
        ended = await client.chat.completions.create(model="m", messages=messages, tools=[BASH])  # type: ignore[list-item]
        assert ended.choices[0].message.content == "Done."
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_what_a_script_raises_is_the_providers_error_and_is_told(tmp_path: Path) -> None:
    script = tmp_path / "reply.py"
    script.write_text("def reply(prompt):\n    raise LookupError('no idea')\n")
    async with serving(script) as (url, process), gateway(url, tmp_path) as client:
        with pytest.raises(openai.APIStatusError, match="the script raised LookupError: no idea") as raised:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "look"}])
        assert raised.value.status_code >= 500
        process.send_signal(signal.SIGINT)
        _, told = await process.communicate()
        assert b"Traceback" in told
        assert b"LookupError: no idea" in told


def test_what_is_no_script_is_named(tmp_path: Path) -> None:
    faults = {
        "": "has no function reply(prompt)",
        "reply = 3": "has no function reply(prompt)",
        "import nowhere": "cannot be loaded: ModuleNotFoundError: No module named 'nowhere'",
    }
    for text, complaint in faults.items():
        path = tmp_path / "reply.py"
        path.write_text(text)
        done = CliRunner().invoke(app, ["scripted", str(path)])
        assert done.exit_code == 1
        assert complaint in " ".join(done.stderr.split())
    with pytest.raises(ValueError, match="no script at"):
        load(tmp_path / "other.py")
    (tmp_path / "script.sh").write_text("")
    with pytest.raises(ValueError, match=r"must end in \.py"):
        load(tmp_path / "script.sh")
