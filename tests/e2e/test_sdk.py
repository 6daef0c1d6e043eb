"""The official OpenAI SDKs, Python and npm, through the proxy by environment alone, on real vLLM."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from replay.reader import Reader
from replay.store import Store
from tests.e2e.wiretap import Wiretap
from tests.proxy import Proxy

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module")]

TOOLS = """[{"type": "function", "function": {"name": "bash", "description": "Execute a bash command",
 "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}}]"""

PYTHON = f"""
import json
from openai import OpenAI
client = OpenAI(api_key="sk-nobody", max_retries=0)
tools = json.loads('''{TOOLS}''')
messages = [{{"role": "user", "content": "List the files"}}]
out = []
for stream in (False, True):
    for extra in ({{}}, {{"tools": tools}}):
        if stream:
            with client.chat.completions.stream(
                model="gpt-5.2", messages=messages, stream_options={{"include_usage": True}}, **extra) as s:
                reply = s.get_final_completion()
        else:
            reply = client.chat.completions.create(model="gpt-5.2", messages=messages, **extra)
        choice = reply.choices[0]
        out.append([choice.finish_reason, choice.message.content,
                    [c.function.arguments for c in choice.message.tool_calls or []], reply.usage.completion_tokens])
print(json.dumps(out))
"""

NODE = f"""
import OpenAI from "openai";
const client = new OpenAI({{apiKey: "sk-nobody", maxRetries: 0}});
const tools = {TOOLS};
const messages = [{{role: "user", content: "List the files"}}];
const out = [];
for (const stream of [false, true])
  for (const extra of [{{}}, {{tools}}]) {{
    const asked = {{model: "gpt-5.2", messages, ...extra}};
    const reply = stream
      ? await client.chat.completions.stream({{...asked, stream_options: {{include_usage: true}}}}).finalChatCompletion()
      : await client.chat.completions.create(asked);
    const choice = reply.choices[0];
    out.push([choice.finish_reason, choice.message.content,
              (choice.message.tool_calls ?? []).map(c => c.function.arguments), reply.usage.completion_tokens]);
  }}
console.log(JSON.stringify(out));
"""


def check(proxy: Proxy, wiretap: Wiretap, session: str, printed: str) -> None:
    replies = json.loads(printed.strip().splitlines()[-1])
    with Store.open(proxy.store) as store:
        reader = Reader(store)
        turns = reader.turns(reader.session(session))
        stored = [reader.sampled(turn) for turn in turns]
        replied = [reader.reply(turn) or {} for turn in turns]
    assert [(c.ids, c.logprobs) for c in wiretap.completions] == [
        (ids, pytest.approx(logprobs, abs=1e-6)) for ids, logprobs in stored
    ]
    assert [used for *_, used in replies] == [len(ids) for ids, _ in stored]
    for (finish, content, calls, _), reply in zip(replies, replied, strict=True):
        assert (content or "") == reply["content"]
        assert calls == [call["arguments"] for call in reply.get("tool_calls", [])]
        assert finish in ("stop", "length", "tool_calls")
        assert (finish == "tool_calls") == bool(calls)


async def test_python(proxy: Proxy, wiretap: Wiretap) -> None:
    del wiretap.completions[:]
    check(proxy, wiretap, "sdk-python", await proxy.python(PYTHON, session="sdk-python"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Node that honours HTTPS_PROXY (24 or newer) and the openai package."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "node@26", "openai@6"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    return folder


@pytest.mark.network
async def test_npm(proxy: Proxy, wiretap: Wiretap, node: Path) -> None:
    del wiretap.completions[:]
    script = node / "client.mjs"
    script.write_text(NODE)
    code, out = await proxy.run(str(node / "node_modules" / ".bin" / "node"), str(script), session="sdk-npm")
    assert code == 0, out
    check(proxy, wiretap, "sdk-npm", out)
