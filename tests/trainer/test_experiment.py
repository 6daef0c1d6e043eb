"""Recipes: read strictly, and carried out from where they were stopped."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from certs.harnesses import Harness
from replay.reader import Reader
from replay.store import Store
from tests.trainer.recipe_parts import Local, lay_out
from tests.trainer.test_reporting import scalars
from tests.trainer.test_training import ModelServer
from trainer import experiment, lab
from trainer.evaluation import Run
from trainer.experiment import Experiment
from trainer.recipe import Recipe, RecipeError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
# Solves every other session, by two sampled tokens.
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
number = int(name.rsplit(".", 1)[1])
with Store.open("sqlite:///" + os.environ["STORE"]) as store, Recorder(store) as recorder:
    session = recorder.open_session(NewSession(name=name)).result()
    record_turn(recorder, session, [5, 6], [7 + number, 2], version=os.environ["VERSION"])
if number % 2 == 0:
    Path("answer.txt").write_text("42")
"""


def write_recipe(folder: Path, **changes: str) -> Path:
    path = folder / "small.toml"
    sections = {
        "rollouts": 'tasks = "tasks"\nharnesses = ["fake"]\ngroups = 2\ngroup_size = 2\nconcurrency = 2',
        "training": "steps = 2\nlearning_rate = 1e-3\ngradient_checkpointing = false",
        "evaluation": 'tasks = "tasks"\nsamples = 1',
    } | changes
    text = "".join(f"[{name}]\n{body}\n" for name, body in sections.items())
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
def make(folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> Any:
    server = ModelServer(folder / "model")
    script = folder / "harness.py"
    script.write_text(HARNESS)
    spec = Harness(
        name="fake",
        command=("python", str(script), "{task}"),
        env={"STORE": str(folder / "tap.db"), "VERSION": "0"},
    )
    monkeypatch.setattr(lab.table, "get", lambda name: spec)
    monkeypatch.setattr(lab.table, "find", lambda *_: Path(sys.executable))
    monkeypatch.setattr(experiment, "WeightServer", lambda _: server.client())

    def made(recipe: Path, **known: Any) -> Experiment:
        local = Local(
            model="m", store_url="", home=folder / "home", logs=folder / "logs", stack=ExitStack(), say=lambda _: None
        )
        return Experiment(
            recipe=Recipe.load(recipe), directory=folder / "out", local=local, store=store, root=folder, **known
        )

    return made


def test_a_recipe_is_carried_out_and_goes_on_where_it_was_stopped(folder: Path, store: Store, make: Any) -> None:
    training = "steps = 3\nlearning_rate = 1e-3\ngradient_checkpointing = false\nmax_lag = 9"
    recipe = write_recipe(folder, training=f'{training}\nreport_to = "tensorboard"')
    steps: list[tuple[int, str | None]] = []

    def stop_after_the_first(step: int, report: Any) -> None:
        steps.append((step, None if report is None else report.version))
        if step == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(recipe, reported=stop_after_the_first).run()
    before = {session.name for session in Reader(store).sessions()}
    evaluated: list[str] = []
    again = make(
        recipe, reported=lambda s, r: steps.append((s, r and r.version)), evaluated=lambda r: evaluated.append(r.name)
    )
    again.run()
    # Step 0 ended, but its position was not written: its groups are used up, and no session of it is run again.
    assert steps == [(0, "1"), (0, None), (1, "2"), (2, "3")]
    names = Counter(session.name for session in Reader(store).sessions())
    assert set(names.values()) == {1}
    assert before < set(names)
    assert len(names) == 3 * 2 * 2 + 2 * 3, "three steps of two groups of two, two evaluations of three tasks"
    assert evaluated == ["eval-small-0", "eval-small-3"]
    assert Run.load(Reader(store), "eval-small-3").score().sessions == 3
    reported = scalars(folder / "out" / "grpo" / "tensorboard")
    assert [step for step, _ in reported["train/loss"]] == [1, 2, 3], "one report of both"
    make(recipe).run()
    assert len(Reader(store).sessions()) == len(names), "nothing was left to do"


def test_the_order_of_tasks_goes_round_and_is_the_seeds(folder: Path, make: Any) -> None:
    made = make(write_recipe(folder))
    order = [task.name for step in range(3) for task in made.tasks_of(step)]
    assert sorted(order[:3]) == sorted(order[3:]) == ["a", "b", "c"]
    assert order[:3] == order[3:]


def test_recipes_are_read_strictly(folder: Path) -> None:
    found = Recipe.load(write_recipe(folder))
    assert found.name == "small"
    assert found.model == str(folder / "model")
    assert found.rollouts.tasks == folder / "tasks"
    faults = {
        'tasks = "tasks"\ngroups = 0': "rollouts.groups: Input should be greater than or equal to 1 (0)",
        'tasks = "tasks"\ngroop = 3': "rollouts.groop: Extra inputs are not permitted (3)",
        'tasks = "tasks"\nharnesses = []': "rollouts.harnesses",
        "groups = 2": "rollouts.tasks: Field required",
    }
    for body, complaint in faults.items():
        with pytest.raises(RecipeError) as raised:
            Recipe.load(write_recipe(folder, rollouts=body))
        assert complaint in str(raised.value)
    with pytest.raises(RecipeError, match=r"training\.loss"):
        Recipe.load(write_recipe(folder, training='loss = "grpo"'))
    with pytest.raises(RecipeError, match=r"nowhere\.toml"):
        Recipe.load(folder / "nowhere.toml")


@pytest.mark.parametrize("recipe", sorted((ROOT / "trainer" / "recipes").glob("*.toml")), ids=lambda path: path.stem)
def test_the_shipped_recipes_can_be_read(recipe: Path) -> None:
    found = Recipe.load(recipe)
    assert found.rollouts.tasks.is_dir() or not found.model.startswith("/")
