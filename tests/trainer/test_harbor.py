"""Harbor's format without Docker: what is carried out, what is refused, and how rewards are read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainer.cli import app
from trainer.tasks import HarborTask, TaskError, load_tasks
from trainer.tasks.harbor import read_dockerfile
from trainer.tasks.sandbox import Sandbox, SandboxError

DOCKERFILE = """
FROM python:3.12-slim
# a comment
WORKDIR /workspace
ENV GREETING="good day" OTHER=x
COPY data/ ./data/
COPY start.txt renamed.txt
RUN echo "$GREETING" > greeting.txt && \\
    mkdir made
"""
TEST = """
cd /workspace
if [ "$(cat answer.txt 2>/dev/null)" = "$EXPECTED" ] && [ -f data/a.txt ]; then
  echo '{"reward": 0.75, "style": 1}' > /logs/verifier/reward.json
else
  echo 0 > /logs/verifier/reward.txt
fi
"""


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    try:
        return Sandbox.find()
    except SandboxError as error:
        pytest.skip(str(error))


def make_task(root: Path, *, dockerfile: str = DOCKERFILE, test: str = TEST) -> Path:
    folder = root / "one"
    for part in ("environment/data", "tests", "solution"):
        (folder / part).mkdir(parents=True)
    (folder / "task.toml").write_text(
        '[agent]\ntimeout_sec = 30.0\n[verifier]\ntimeout_sec = 20\nenv = { EXPECTED = "42" }\n'
    )
    (folder / "instruction.md").write_text("Write the answer.\n")
    (folder / "environment" / "Dockerfile").write_text(dockerfile)
    (folder / "environment" / "data" / "a.txt").write_text("a")
    (folder / "environment" / "start.txt").write_text("s")
    (folder / "tests" / "test.sh").write_text(test)
    (folder / "solution" / "solve.sh").write_text("echo 42 > answer.txt\n")
    return folder


def test_what_a_task_says(tmp_path: Path) -> None:
    make_task(tmp_path)
    [task] = load_tasks(tmp_path)
    assert isinstance(task, HarborTask)
    assert (task.name, task.prompt, task.inside) == ("one", "Write the answer.", "/workspace")
    assert (task.seconds, task.verify_seconds, task.needs_sandbox) == (30.0, 20.0, True)
    assert task.environment.variables == {"GREETING": "good day", "OTHER": "x"}
    assert [step for step, _ in task.environment.steps] == ["COPY", "COPY", "RUN"]


def test_a_task_is_prepared_solved_and_verified(tmp_path: Path, sandbox: Sandbox) -> None:
    make_task(tmp_path / "set")
    [task] = load_tasks(tmp_path / "set")
    workspace = tmp_path / "workspace"
    task.prepare(workspace, sandbox)
    assert (workspace / "greeting.txt").read_text() == "good day\n"
    assert (workspace / "data" / "a.txt").read_text() == "a"
    assert (workspace / "renamed.txt").read_text() == "s"
    assert (workspace / "made").is_dir()
    assert task.verify(workspace, sandbox).reward == 0.0
    assert task.solve(workspace, sandbox)
    score = task.verify(workspace, sandbox)
    assert (score.reward, score.parts) == (0.75, {"style": 1.0})
    with pytest.raises(TaskError, match="needs a sandbox"):
        task.verify(workspace)


@pytest.mark.parametrize(
    ("written", "reward", "told"),
    [
        ("echo 0.5 > /logs/verifier/reward.txt", 0.5, ""),
        ("echo 0.5 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json", 1.0, ""),
        ("echo '{\"accuracy\": 0.25}' > /logs/verifier/reward.json", 0.25, ""),
        ('echo \'{"a": 1, "b": 0}\' > /logs/verifier/reward.json', None, "none of them `reward`"),
        ('echo \'{"reward": "high"}\' > /logs/verifier/reward.json', None, "no object of numbers"),
        ("echo nan > /logs/verifier/reward.txt", None, "no number"),
        ("echo nothing", None, "neither reward.json nor reward.txt"),
        ("exit 3", None, "neither"),
    ],
)
def test_rewards_are_read_as_harbor_does(
    tmp_path: Path, sandbox: Sandbox, written: str, reward: float | None, told: str
) -> None:
    make_task(tmp_path / "set", test=written)
    [task] = load_tasks(tmp_path / "set")
    (tmp_path / "workspace").mkdir()
    score = task.verify(tmp_path / "workspace", sandbox)
    assert score.reward == reward
    assert told in score.log


@pytest.mark.parametrize(
    ("dockerfile", "complaint"),
    [
        ("FROM x\nVOLUME /data", "`VOLUME /data` cannot be carried out"),
        ("FROM x\nCOPY start.txt /etc/start.txt", "lies outside /app"),
        ("FROM x\nCOPY ../secret.txt .", "not in"),
        ("FROM x\nRUN exit 9", "`RUN exit 9` does not work without a container"),
    ],
)
def test_what_needs_a_container_is_refused(tmp_path: Path, sandbox: Sandbox, dockerfile: str, complaint: str) -> None:
    make_task(tmp_path / "set", dockerfile=dockerfile)
    (tmp_path / "set" / "one" / "secret.txt").write_text("s")
    with pytest.raises(TaskError, match=complaint):
        load_tasks(tmp_path / "set")[0].prepare(tmp_path / "workspace", sandbox)


def test_compose_and_faulty_settings_are_refused(tmp_path: Path) -> None:
    folder = make_task(tmp_path)
    (folder / "task.toml").write_text("[agent]\ntimeout_sec = -1\n")
    with pytest.raises(TaskError, match=r"timeout_sec must be a positive number, not -1"):
        load_tasks(tmp_path)
    (folder / "task.toml").write_text("")
    (folder / "environment" / "docker-compose.yaml").write_text("")
    with pytest.raises(TaskError, match="needs containers"):
        load_tasks(tmp_path)
    assert read_dockerfile(folder / "environment" / "Dockerfile").workdir == "/workspace"


def test_the_sandbox_shows_nothing_else(tmp_path: Path, sandbox: Sandbox) -> None:
    home, workspace, other = tmp_path / "home", tmp_path / "workspace", tmp_path / "other"
    for folder in (home, workspace, other):
        folder.mkdir()
    (other / "key").write_text("secret")
    script = (
        f"cat {other}/key; ls ~root /home; touch /usr/x; touch in-workspace; touch {home}/in-home; id -u; ps | wc -l"
    )
    argv = sandbox.wrap(["bash", "-c", script], workspace=workspace, home=home)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "secret" not in done.stdout
    assert "Read-only file system" in done.stderr
    assert [p.name for p in workspace.iterdir()] == ["in-workspace"]
    assert [p.name for p in home.iterdir()] == ["in-home"]


def test_check_tells_which_tasks_are_faulty(tmp_path: Path, sandbox: Sandbox) -> None:
    make_task(tmp_path)
    given = tmp_path / "given"
    given.mkdir()
    (given / "prompt.md").write_text("nothing to do")
    (given / "verify.sh").write_text("exit 0")
    result = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert result.exit_code == 1
    text = " ".join(result.output.split())
    assert "is solved without doing anything" in text
    assert "1 tasks are faulty" in text
    assert CliRunner().invoke(app, ["check", str(tmp_path), "--task", "one"]).exit_code == 0
