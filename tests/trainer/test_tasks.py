"""Task folders: loading, preparing, and scores that never guess."""

import os
import time
from pathlib import Path

import pytest

from trainer.tasks import FolderTask, Score, TaskError, load_tasks


def make_task(root: Path, name: str = "one", verify_script: str = "exit 0", prompt: str = "Do it.\n") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "prompt.md").write_text(prompt)
    (folder / "verify.sh").write_text(verify_script)
    return folder


def score(tmp_path: Path, script: str, timeout: float = 10.0) -> Score:
    """What `script` says of a workspace that holds `out.txt` with an odd content."""
    folder = make_task(tmp_path / "set", verify_script=script)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "out.txt").write_text("reward=1\n")
    return FolderTask("one", "Do it.", folder, verify_seconds=timeout).verify(workspace)


def test_load_sorts_and_strips(tmp_path: Path) -> None:
    make_task(tmp_path, "b")
    make_task(tmp_path, "a", prompt="\nLine one\n\nline two  \n")
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("no task")
    tasks = load_tasks(tmp_path)
    assert [(task.name, task.prompt) for task in tasks] == [("a", "Line one\n\nline two"), ("b", "Do it.")]
    assert tasks[0].path == tmp_path / "a"


def test_load_names_the_offending_path(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="nowhere: not a folder"):
        load_tasks(tmp_path / "nowhere")
    with pytest.raises(TaskError, match="holds no task"):
        load_tasks(tmp_path)
    folder = make_task(tmp_path, "good")
    with pytest.raises(TaskError, match="is a task itself"):
        load_tasks(folder)
    (folder / "verify.sh").unlink()
    with pytest.raises(TaskError, match=r"good/verify\.sh: missing"):
        load_tasks(tmp_path)


@pytest.mark.parametrize("name", ["with space", "-dash", "colon:here", "at@host"])
def test_load_refuses_names_that_do_not_fit_a_proxy_user(tmp_path: Path, name: str) -> None:
    make_task(tmp_path, name)
    with pytest.raises(TaskError, match="a task's name"):
        load_tasks(tmp_path)


@pytest.mark.parametrize("content", [b"", b"  \n", b"\xff\xfe"])
def test_load_refuses_empty_and_undecodable_prompts(tmp_path: Path, content: bytes) -> None:
    (make_task(tmp_path) / "prompt.md").write_bytes(content)
    with pytest.raises(TaskError, match=r"one/prompt\.md"):
        load_tasks(tmp_path)


def test_prepare_copies_files_then_runs_setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_task(tmp_path / "set")
    (folder / "files" / "deep").mkdir(parents=True)
    (folder / "files" / "deep" / "a.txt").write_text("a")
    (folder / "files" / "run.sh").write_text("echo\n")
    (folder / "files" / "run.sh").chmod(0o755)
    (folder / "setup.sh").write_text(
        'cp deep/a.txt b.txt; echo "$SECRET" > secret.txt; basename "$TASK_DIR" > name.txt'
    )
    monkeypatch.setenv("SECRET", "s3cret")
    workspace = tmp_path / "new" / "workspace"
    load_tasks(tmp_path / "set")[0].prepare(workspace)
    assert (workspace / "b.txt").read_text() == "a"
    assert os.access(workspace / "run.sh", os.X_OK)
    assert (workspace / "secret.txt").read_text() == "\n"
    assert (workspace / "name.txt").read_text() == "one\n"


def test_prepare_refuses_a_used_workspace_and_a_failing_setup(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "set")
    task = load_tasks(tmp_path / "set")[0]
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "left.txt").write_text("over")
    with pytest.raises(TaskError, match="workspace: not empty"):
        task.prepare(workspace)
    (folder / "setup.sh").write_text("echo no luck >&2; exit 3")
    with pytest.raises(TaskError, match=r"(?s)setup\.sh: exit status 3.*no luck"):
        task.prepare(tmp_path / "other")
    (folder / "setup.sh").write_text("sleep 30")
    with pytest.raises(TaskError, match="did not end within"):
        FolderTask(task.name, task.prompt, task.path, setup_seconds=0.2).prepare(tmp_path / "third")


@pytest.mark.parametrize(
    ("script", "reward"),
    [
        ("exit 0", 1.0),
        ("exit 1", 0.0),
        ("exit 2", None),
        ("kill -9 $$", None),
        ("no_such_command", None),
        ("echo reward=0.25", 0.25),
        ("echo reward=-1.5; echo", -1.5),
        ("echo reward=0.5; echo done", 1.0),
        ("echo reward=0.25 >&2", 1.0),
        ("echo reward=nan", None),
        ("echo reward=inf", None),
        ("echo reward=lots", None),
        ("echo reward=1; exit 2", None),
        ("cat out.txt; exit 1", 0.0),
    ],
)
def test_verify_scores(tmp_path: Path, script: str, reward: float | None) -> None:
    assert score(tmp_path, script).reward == reward


def test_verify_keeps_parts_and_log(tmp_path: Path) -> None:
    result = score(tmp_path, "echo part.speed=0.5; echo part.bad=x; echo hint >&2; echo reward=0.75")
    assert result.reward == 0.75
    assert result.parts == {"speed": 0.5}
    assert "hint" in result.log
    assert "reward=0.75" in result.log


def test_verify_times_out_to_none_and_ends_children(tmp_path: Path) -> None:
    started = time.monotonic()
    result = score(tmp_path, "sleep 60 & sleep 60", timeout=0.3)
    assert result.reward is None
    assert "0.3 s" in result.log
    assert time.monotonic() - started < 10


def test_verify_does_not_wait_for_what_it_left_behind(tmp_path: Path) -> None:
    started = time.monotonic()
    assert score(tmp_path, "sleep 60 & exit 0").reward == 1.0
    assert time.monotonic() - started < 10


def test_verify_runs_in_a_minimal_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "cmp").write_text("#!/bin/sh\nexit 0\n")
    (fake / "cmp").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "env.sh"))
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    (tmp_path / "env.sh").write_text("exit 0\n")
    result = score(tmp_path, 'env >&2; [ "$HOME" != "$PWD" ] || exit 2; cmp -s out.txt /dev/null || exit 1')
    assert result.reward == 0.0
    assert "OPENAI_API_KEY" not in result.log
    assert set(line.partition("=")[0] for line in result.log.splitlines()) <= {
        "PATH", "HOME", "TMPDIR", "LC_ALL", "LANG", "TZ", "TASK_DIR", "PWD", "SHLVL", "_", "OLDPWD",
    }  # fmt: skip


def test_verify_without_workspace_is_none(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "set")
    assert FolderTask("one", "Do it.", folder).verify(tmp_path / "gone").reward is None


def test_verify_log_is_bounded(tmp_path: Path) -> None:
    result = score(tmp_path, "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo reward=0.5")
    assert result.reward == 0.5
    assert len(result.log) <= 64 * 1024
