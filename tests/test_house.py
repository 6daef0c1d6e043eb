"""The walls of the house: which folder may import which, and what the proxy process never loads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WINGS = {"addons", "replay", "trainer", "certs"}
MAY_IMPORT = {
    "certs": set[str](),
    "replay": set[str](),
    "addons": {"replay", "certs"},
    "trainer": {"replay", "certs"},
}
HEAVY = {"torch", "vllm", "trl", "accelerate", "datasets", "peft"}


def imports(path: Path) -> set[str]:
    """Top-level names of all imports in a file, also those inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("wing", sorted(WINGS))
def test_arrows_point_one_way(wing: str) -> None:
    wrong = {
        str(path.relative_to(ROOT)): sorted(bad)
        for path in (ROOT / wing).rglob("*.py")
        if (bad := (imports(path) & WINGS) - MAY_IMPORT[wing] - {wing})
    }
    assert wrong == {}


@pytest.mark.parametrize("wing", ["addons", "replay", "certs"])
def test_the_light_wings_import_nothing_heavy(wing: str) -> None:
    wrong = {
        str(path.relative_to(ROOT)): sorted(bad)
        for path in (ROOT / wing).rglob("*.py")
        if (bad := imports(path) & HEAVY)
    }
    assert wrong == {}


def test_the_gateway_knows_nothing_of_mitmproxy() -> None:
    knowing = {path.name for path in (ROOT / "addons").rglob("*.py") if "mitmproxy" in imports(path)}
    assert knowing <= {"intercept.py", "access.py", "let_out.py", "flowlog.py"}


def test_only_the_interceptors_side_loads_in_the_proxy() -> None:
    """Through libraries too: what is really in memory once the addon is imported and a model loaded."""
    script = (
        "import sys, addons.intercept\n"
        "from addons.model import ModelFiles\n"
        "from addons.prompts import Prompts\n"
        "from addons.replies import parser_for\n"
        f"files = ModelFiles.load({str(ROOT / 'trainer' / 'tiny' / 'checkpoint')!r})\n"
        "Prompts(files); parser_for(files)\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_tracked_files_name_no_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    path = re.compile(rb"(?<![\w.-])/(?:" + b"work" + rb"|" + b"root" + rb")/")
    wrong = [
        name.decode()
        for name in listed.stdout.split(b"\0")
        if name and (ROOT / name.decode()).is_file() and path.search((ROOT / name.decode()).read_bytes())
    ]
    assert wrong == []


def test_the_lock_is_hashed_and_names_no_host() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pinned = re.findall(r"^[a-z0-9._-]+==", lock, re.MULTILINE)
    assert len(pinned) > 100
    assert lock.count("--hash=sha256:") > len(pinned)
    assert "://" not in lock
    assert "--index-url" not in lock
