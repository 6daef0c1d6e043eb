"""Recipes that learn from a teacher: who is asked again, who is imitated, and where it goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from certs.harnesses import Harness
from replay.reader import Reader
from replay.store import Store
from tests.trainer.recipe_parts import Local, lay_out
from tests.trainer.test_training import ModelServer
from trainer import apprentice, lab
from trainer.apprentice import Apprentice
from trainer.evaluation import Run
from trainer.local import LocalStack
from trainer.recipe import Recipe, RecipeError
from trainer.sft import SftReport

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
# Task a is solved at the first attempt, b at the second, c never; the student solves all once it has been taught.
HARNESS = f"""
import os, sys
from pathlib import Path
from urllib.parse import urlsplit
sys.path.insert(0, {str(ROOT)!r})
from replay.store import Store
from replay.writer import Recorder
from replay.records import NewSession
from tests.trainer.recording import record_turn

name = urlsplit(os.environ["HTTPS_PROXY"]).username
run, task, _, index = name.split(".")
who, _, attempt = run.split("-")
with Store.open("sqlite:///" + os.environ["STORE"]) as store, Recorder(store) as recorder:
    session = recorder.open_session(NewSession(name=name)).result()
    record_turn(recorder, session, [5, 6], [7, 8, 2])
if (task + attempt) in ("a1", "b2") if who == "teacher" else attempt == "1":
    Path("answer.txt").write_text("42")
"""
SECTIONS = {
    "rollouts": 'tasks = "tasks"\nharnesses = ["fake"]\nconcurrency = 2',
    "teacher": 'script = "teacher.py"\nattempts = 3',
    "sft": 'epochs = 6\nlearning_rate = 1e-2\nbatch_size = 2\ngradient_checkpointing = false\nrerender = "never"',
    "evaluation": 'tasks = "tasks"',
}


def write_recipe(folder: Path, **changes: str | None) -> Path:
    path = folder / "small.toml"
    sections = SECTIONS | changes
    text = "".join(f"[{name}]\n{body}\n" for name, body in sections.items() if body is not None)
    path.write_text('model = "./model"\n' + text)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return lay_out(tmp_path)


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{folder / 'tap.db'}") as store:
        yield store


@pytest.fixture
def server(folder: Path) -> ModelServer:
    return ModelServer(folder / "model")


@pytest.fixture
def tutors() -> list[int]:
    """The seed of every teacher that was started."""
    return []


@pytest.fixture
def make(folder: Path, store: Store, server: ModelServer, tutors: list[int], monkeypatch: pytest.MonkeyPatch) -> Any:
    script = folder / "harness.py"
    script.write_text(HARNESS)
    spec = Harness(name="fake", command=("python", str(script), "{task}"), env={"STORE": str(folder / "tap.db")})
    monkeypatch.setattr(lab.table, "get", lambda name: spec)
    monkeypatch.setattr(lab.table, "find", lambda *_: Path(sys.executable))
    monkeypatch.setattr(apprentice, "WeightServer", lambda _: server.client())

    def tutor(_: object, student: LocalStack, stack: ExitStack, *, seed: int) -> LocalStack:
        tutors.append(seed)
        return student

    monkeypatch.setattr(apprentice, "tutor", tutor)

    def made(recipe: Path, **known: Any) -> Apprentice:
        local = Local(
            model="m", store_url="", home=folder / "home", logs=folder / "logs", stack=ExitStack(), say=lambda _: None
        )
        return Apprentice(
            recipe=Recipe.load(recipe).seeded(5),
            directory=folder / "out",
            local=local,
            store=store,
            root=folder,
            **known,
        )

    return made


def names(store: Store, prefix: str = "") -> list[str]:
    return sorted(session.name for session in Reader(store).sessions(prefix=prefix or None))


def test_only_what_is_unsolved_is_tried_again_and_the_first_solution_is_imitated(
    folder: Path, store: Store, make: Any, server: ModelServer, tutors: list[int]
) -> None:
    heard: list[tuple[int, int, int]] = []
    reports: list[SftReport] = []
    made = make(write_recipe(folder), demonstrated=lambda *told: heard.append(told), taught=reports.append)
    made.run()
    assert names(store, "teacher-") == [
        *("teacher-small-1.a.fake.0", "teacher-small-1.b.fake.0", "teacher-small-1.c.fake.0"),
        *("teacher-small-2.b.fake.0", "teacher-small-2.c.fake.0"),
        "teacher-small-3.c.fake.0",
    ]
    assert heard == [(1, 1, 3), (2, 2, 3), (3, 2, 3)]
    assert tutors == [5], "one teacher, with the recipe's seed"
    assert [session.name for session in made.kept(3)] == ["teacher-small-1.a.fake.0", "teacher-small-2.b.fake.0"]
    [report] = reports
    assert (report.examples, report.tokens, report.steps) == (2, 6, 6)
    assert report.last_loss < report.first_loss
    assert server.version == "1"
    assert server.weights == folder / "out" / "sft" / "weights", "the student is served"
    before, after = (Run.load(Reader(store), f"eval-small-{step}").score() for step in (0, 1))
    assert (before.sessions, before.solved.value, after.sessions, after.solved.value) == (3, 0.0, 3, 1.0)
    assert not Reader(store).groups(), "neither the teacher's sessions nor evaluations are trained on by GRPO"


def test_it_goes_on_where_it_was_stopped(folder: Path, store: Store, make: Any, tutors: list[int]) -> None:
    def stop(attempt: int, *_: int) -> None:
        if attempt == 2:
            raise KeyboardInterrupt

    recipe = write_recipe(folder)
    with pytest.raises(KeyboardInterrupt):
        make(recipe, demonstrated=stop).run()
    begun = names(store)
    assert len(begun) == 3 + 3 + 2
    reports: list[SftReport] = []
    make(recipe, taught=reports.append).run()
    assert names(store) == sorted([*begun, "teacher-small-3.c.fake.0", *(f"eval-small-1.{t}.fake.0" for t in "abc")])
    make(recipe, taught=reports.append).run()
    assert len(names(store)) == len(begun) + 4, "nothing was left to do"
    assert len(reports) == 1, "it is taught once"
    assert len(tutors) == 2, "a student that was taught needs no teacher"


def test_a_server_with_other_weights_cannot_be_measured_as_the_base(
    folder: Path, make: Any, server: ModelServer
) -> None:
    server.version = "7"
    with pytest.raises(ValueError, match="serves weights 7 already: start it anew"):
        make(write_recipe(folder)).run()


def test_a_teacher_that_solves_nothing_is_said(folder: Path, make: Any) -> None:
    for name in ("a", "b"):
        (folder / "tasks" / name / "verify.sh").write_text("exit 1\n")
    with pytest.raises(ValueError, match="nothing to imitate: the teacher solved 0 tasks"):
        make(write_recipe(folder)).run()


def test_the_sections_are_read_strictly(folder: Path) -> None:
    found = Recipe.load(write_recipe(folder))
    assert found.teacher is not None
    assert found.teacher.script == folder / "teacher.py"
    assert (found.updates, found.seed, found.seeded(3).seed, found.harnesses) == (1, 0, 3, ("fake",))
    with pytest.raises(RecipeError, match="recipe small has no steps"):
        found.lasting(4)
    faults: list[tuple[dict[str, str | None], str]] = [
        ({"teacher": None}, r"\[teacher\] and \[sft\] go together"),
        ({"sft": None}, r"\[teacher\] and \[sft\] go together"),
        ({"training": "steps = 3"}, r"a recipe has one of the two"),
        ({"rollouts": 'tasks = "tasks"\ngroups = 2\nahead = 1'}, r"\[rollouts\] groups, ahead: a teacher's sessions"),
        ({"teacher": "attempts = 2"}, r"teacher: one of model, engine and script says who teaches; given: none"),
        ({"teacher": 'model = "a/b"\nengine = "http://x"'}, r"given: model, engine"),
        ({"sft": "epoch = 2"}, r"sft\.epoch: Extra inputs are not permitted \(2\)"),
    ]
    for changes, complaint in faults:
        with pytest.raises(RecipeError, match=complaint):
            Recipe.load(write_recipe(folder, **changes))
