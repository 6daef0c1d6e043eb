"""Two processes on the CPU, as `accelerate launch` starts them: the update of one, and no hang where one fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sqlalchemy import func, select, update
from typer.testing import CliRunner

from replay.schema import Batch, Turn
from replay.store import Store
from replay.writer import Recorder
from tests.trainer import rank_steps
from tests.trainer.recording import record_session, record_turn
from trainer import ranks
from trainer.cli import app
from trainer.grpo import Learner, Settings
from trainer.policy import load_policy, token_logprobs
from trainer.sft import SftSettings
from trainer.students import fingerprint

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MODULE = ("-m", "trainer.cli")
TOGETHER = ("--multi_gpu",)  # by which it starts two on a CPU, too


def launch(*words: str, timeout: float = 400) -> subprocess.CompletedProcess[str]:
    """`accelerate launch` of two processes."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2", "--main_process_port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    return subprocess.run(
        [*command, *words],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def splitting(way: str) -> tuple[str, ...]:
    """How `accelerate launch` starts `trainer` that way; skips the test without DeepSpeed where that is asked for."""
    if way.startswith("zero"):
        pytest.importorskip("deepspeed")
        return ("--use_deepspeed", "--zero_stage", way[-1], *MODULE)
    if way == "fsdp2":
        layers = ("--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP")
        layers += ("--fsdp_transformer_layer_cls_to_wrap", "LlamaDecoderLayer")
        return ("--use_fsdp", "--fsdp_version", "2", *layers, "-m", "tests.trainer.fsdp_on_cpu")
    return (*TOGETHER, *MODULE)


def fill(store: Path, checkpoint: Path) -> str:
    """Two groups of three two-turn sessions, with the logprobs of `checkpoint`; the URL of the store."""
    policy, url = load_policy(checkpoint), f"sqlite:///{store}"
    with Store.open(url) as opened, Recorder(opened) as recorder:
        for group in ("a", "b"):
            for index, reward in enumerate((1.0, 0.0, 0.25)):
                session = record_session(recorder, f"{group}.{index}", group=group, reward=reward)
                parent, ids = None, []
                for turn in range(2):
                    suffix = [5 + turn, 6 + ord(group), *range(7, 8 + 3 * index)]
                    sampled = [20 + index, 30 + turn, 40, 50 + index]
                    ids += suffix
                    logprobs = token_logprobs(policy.model, [*ids, *sampled], len(ids))
                    parent = record_turn(recorder, session, suffix, sampled, logprobs, parent=parent)
                    ids += sampled
        with opened.write() as connection:
            connection.execute(update(Turn).values(template_hash=fingerprint(policy)))
    return url


def batches(url: str) -> int:
    """How many the record holds."""
    with Store.open(url) as opened, opened.engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(Batch)).scalar_one()


def furthest(one: Path, other: Path) -> float:
    """The largest difference between the weights of two checkpoints."""
    ours, theirs = load_policy(one).model.state_dict(), load_policy(other).model.state_dict()
    return max((ours[name] - theirs[name]).abs().max().item() for name in ours)


def test_ranks_make_the_update_of_one_process(checkpoint: Path, tmp_path: Path) -> None:
    done = launch(*TOGETHER, "-m", "tests.trainer.rank_steps", str(checkpoint), str(tmp_path / "two.pt"))
    assert done.returncode == 0, done.stderr
    two = torch.load(tmp_path / "two.pt")
    one = rank_steps.take(rank_steps.learner(checkpoint), checkpoint)
    before = load_policy(checkpoint).model.state_dict()
    for (ours, seen), (theirs, alone) in zip(two, one, strict=True):
        moved = max((theirs[name] - before[name]).abs().max().item() for name in theirs)
        gap = max((ours[name] - theirs[name]).abs().max().item() for name in theirs)
        assert moved > 1e-3
        assert gap < 1e-6, f"of {moved}"
        for name in ("micro_batches", "processes", "seconds"):
            assert seen.pop(name) != alone.pop(name) or name == "micro_batches"
        assert seen == pytest.approx(alone, rel=1e-4)
        before = theirs


def test_a_rank_that_is_killed_ends_the_others(checkpoint: Path, tmp_path: Path) -> None:
    done = launch(
        *TOGETHER, "-m", "tests.trainer.rank_steps", str(checkpoint), str(tmp_path / "two.pt"), "die", timeout=200
    )
    assert done.returncode != 0
    assert "SIGKILL" in done.stderr
    assert not (tmp_path / "two.pt").exists()


def test_a_loss_that_is_no_number_on_one_rank_stops_all(checkpoint: Path, tmp_path: Path) -> None:
    done = launch(
        *TOGETHER, "-m", "tests.trainer.rank_steps", str(checkpoint), str(tmp_path / "two.pt"), "nan", timeout=200
    )
    assert done.returncode != 0
    assert "SIGKILL" not in done.stderr
    for rank in (0, 1):
        assert f"[rank{rank}]: FloatingPointError: the loss is nan" in done.stderr


WAYS = ["ddp", "fsdp2", "zero1", "zero2", "zero3"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("more", [("--no-checkpointing",), ("--lora-rank", "4")], ids=["whole", "lora"])
def test_grpo(checkpoint: Path, tmp_path: Path, more: tuple[str, ...], way: str) -> None:
    started = splitting(way)
    if way == "fsdp2" and "--lora-rank" in more:
        started = ("--fsdp_cpu_ram_efficient_loading", "false", *started)  # each rank splits its own weights
    url = fill(tmp_path / "two.db", checkpoint)
    shutil.copy(tmp_path / "two.db", tmp_path / "one.db")
    words = ["grpo", "--model", str(checkpoint), "--steps", "3", "--groups", "1", "--lr", "1e-4", "--no-push"]
    words += ["--token-budget", "32", *more]
    done = launch(*started, *words, "--store", url, "--out", str(tmp_path / "two"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("weights: ") == 1
    assert done.stdout.count("stopped after 2 steps") == 1
    alone = [sys.executable, *MODULE, *words, "--store", f"sqlite:///{tmp_path}/one.db", "--out", str(tmp_path / "one")]
    subprocess.run(alone, cwd=ROOT, check=True, capture_output=True)
    # Adam moves a weight by up to the learning rate however small its gradient is, so rounding shows a little.
    weights = tmp_path / "two" / "weights" / "2"
    assert furthest(weights, checkpoint) > 1e-4
    assert furthest(weights, tmp_path / "one" / "weights" / "2") < 2e-6
    assert moments(tmp_path / "two") == pytest.approx(moments(tmp_path / "one"), rel=1e-3)
    lines = [json.loads(line) for line in (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["version"], line["processes"], line["tokens_trained"]) for line in lines] == [(1, 2, 24), (2, 2, 24)]
    assert batches(url) == 2
    again = launch(*started, "rebuild", "2", "--store", url, "--run", str(tmp_path / "two"))
    assert "the step made again gives the same weights to the bit" in " ".join(again.stdout.split()), again.stderr


def test_a_split_model_goes_on_where_one_process_stopped(checkpoint: Path, tmp_path: Path) -> None:
    url = fill(tmp_path / "one.db", checkpoint)
    words = ["grpo", "--model", str(checkpoint), "--groups", "1", "--lr", "1e-4", "--no-push", "--store", url]
    alone = [sys.executable, *MODULE, *words, "--out", str(tmp_path / "one")]
    subprocess.run(alone, cwd=ROOT, check=True, capture_output=True)
    shutil.copy(tmp_path / "one.db", tmp_path / "two.db")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    place = ("--store", f"sqlite:///{tmp_path}/two.db", "--out", str(tmp_path / "two"))
    done = launch(*splitting("fsdp2"), *words, *place)
    assert done.returncode == 0, done.stderr
    subprocess.run(alone, cwd=ROOT, check=True, capture_output=True)
    assert furthest(tmp_path / "two" / "weights" / "2", tmp_path / "one" / "weights" / "2") < 2e-6
    assert moments(tmp_path / "two") == pytest.approx(moments(tmp_path / "one"), rel=1e-3)


@pytest.mark.parametrize("way", ["zero2", "zero3"])
def test_small_updates_add_up_where_deepspeed_computes_in_bfloat16(checkpoint: Path, tmp_path: Path, way: str) -> None:
    options = splitting(way)[: -len(MODULE)]
    steps = ("-m", "tests.trainer.rank_steps", str(checkpoint), str(tmp_path / "steps.pt"), "bf16")
    done = launch(*options, *steps)
    assert done.returncode == 0, done.stderr
    before = load_policy(checkpoint).model.state_dict()
    last, _ = torch.load(tmp_path / "steps.pt")[-1]
    moved = [(last[name] - before[name]).abs() for name in last]
    # Three steps of 1e-6, not all in one direction; a bfloat16 of 1 has neighbours 4e-3 away.
    assert 1.5e-6 < sum(by.sum().item() for by in moved) / sum(by.numel() for by in moved) < 3e-6
    assert max(by.max().item() for by in moved) < 4e-6


def moments(run: Path) -> dict[str, float]:
    """What the optimizer of a run of two updates kept, as one figure a kind."""
    state = torch.load(run / "optimizer" / "2.pt", weights_only=True)["state"].values()
    assert {float(kept["step"]) for kept in state} == {2.0}
    return {name: sum(kept[name].double().abs().sum().item() for kept in state) for name in ("exp_avg", "exp_avg_sq")}


def test_nothing_to_train_on_ends_all_with_one_message(checkpoint: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tap.db'}"
    Store.open(url).close()
    script = str(Path(sys.executable).parent / "trainer")
    done = launch(
        *TOGETHER, script, "grpo", "--model", str(checkpoint), "--no-push", "--store", url, "--out", str(tmp_path / "x")
    )
    assert done.returncode == 1
    assert done.stderr.count("the record holds no sessions yet") == 1
    assert done.stderr.count("error:") == 1


def test_what_is_not_known_to_be_put_together_again_is_refused(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_MEGATRON_LM", "true")
    for refused in (lambda: Learner(load_policy(checkpoint), Settings()), lambda: SftSettings().arguments(Path())):
        with pytest.raises(ValueError, match="asks for MEGATRON_LM, by which TRL does not train"):
            refused()


def test_the_first_fsdp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="the launcher asks for FSDP1, whose flat"):
        ranks.check_splitting()


def test_fsdp_without_a_gpu_is_refused_before_training(checkpoint: Path, tmp_path: Path) -> None:
    url = fill(tmp_path / "tap.db", checkpoint)
    words = ("grpo", "--no-push", "--model", str(checkpoint), "--store", url, "--out", str(tmp_path / "x"))
    done = launch("--use_fsdp", "--fsdp_version", "2", *MODULE, *words)
    assert done.returncode == 1
    assert "accelerate does on GPUs only" in " ".join(done.stderr.split())
    assert batches(url) == 0


def test_processes_that_do_not_know_of_each_other_are_refused(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="started as 2"):
        Learner(load_policy(checkpoint), Settings())
    with pytest.raises(ValueError, match="started as 2"):
        SftSettings().arguments(Path())
    ran = CliRunner().invoke(app, ["run", "recipe.toml"])
    assert ran.exit_code == 1
    assert "this command is one process: started as 2" in " ".join(ran.output.split())


def test_a_precision_that_the_launcher_would_force_is_refused(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    with pytest.raises(ValueError, match="the launcher asks for bf16"):
        Learner(load_policy(checkpoint), Settings(bf16=False))
    with pytest.raises(ValueError, match="the launcher asks for bf16"):
        SftSettings(bf16=False).arguments(Path())
    assert SftSettings(bf16=True).arguments(Path())["bf16"]


def test_a_batch_that_cannot_be_dealt_out_is_refused(checkpoint: Path) -> None:
    with pytest.raises(ValueError, match="batch_size 8 is not a multiple of 3: micro_batch 3 on 1"):
        SftSettings(micro_batch=3).arguments(Path())


SFT = ("sft", "--epochs", "2", "--rerender", "never")
DPO = ("dpo", "--margin", "0.2")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("more", [(), ("--lora-rank", "4")], ids=["whole", "lora"])
@pytest.mark.parametrize("words", [SFT, DPO], ids=["sft", "dpo"])
def test_offline(checkpoint: Path, tmp_path: Path, words: tuple[str, ...], more: tuple[str, ...], way: str) -> None:
    started = splitting(way)
    url = fill(tmp_path / "tap.db", checkpoint)
    words = (*words, *more, "--model", str(checkpoint), "--store", url, "--lr", "1e-4", "--batch-size", "2")
    done = launch(*started, *words, "--out", str(tmp_path / "two"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("weights: ") == 1
    assert batches(url) == 1
    alone = [sys.executable, *MODULE, *words, "--out", str(tmp_path / "one")]
    subprocess.run(alone, cwd=ROOT, check=True, capture_output=True)
    assert furthest(tmp_path / "two" / "weights", checkpoint) > 1e-5
    assert furthest(tmp_path / "two" / "weights", tmp_path / "one" / "weights") < 2e-6
