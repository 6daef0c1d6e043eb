"""TRL's asynchronous trainer on the record: on CPU, with a plain attention in place of FlashAttention 3."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from replay.batches import load_batch
from replay.reader import Reader
from replay.store import Store
from replay.writer import Recorder
from tests.trainer.conftest import make_checkpoint
from tests.trainer.recording import record_session, record_turn
from tests.trainer.test_training import ModelServer
from trainer.adapters import Lora
from trainer.asynchronous import loop as asynchronous
from trainer.asynchronous.feed import Ended, PushTransfer, RecordWorker
from trainer.asynchronous.loop import ANY_AGE, configuration, packed, samples_of
from trainer.asynchronous.run import AsyncTraining
from trainer.batches import Credited, MixedTemperatures
from trainer.cli import app
from trainer.following import Following
from trainer.grpo import Settings
from trainer.intake import Intake, Taken
from trainer.rebuild import rebuild
from trainer.training import StepReport, TrainingRun

pytestmark = pytest.mark.slow
SETTINGS = Settings(learning_rate=1e-3, gradient_checkpointing=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'tap.db'}") as store:
        yield store


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "model")


def plain_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    ends_q: Any,
    ends_k: Any,
    *_: int,
    softmax_scale: float,
    **__: Any,
) -> torch.Tensor:
    """flash_attn_varlen_func for causal segments [T, heads, size]: a query sees the keys up to its own, at the end."""
    parts = []
    for i in range(len(ends_q) - 1):
        query, key, value = (
            tensor[ends[i] : ends[i + 1]].transpose(0, 1)[None]
            for tensor, ends in ((q, ends_q), (k, ends_k), (v, ends_k))
        )
        n, total = query.shape[2], key.shape[2]
        seen = torch.arange(total)[None] <= torch.arange(n)[:, None] + (total - n)
        part = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=seen, scale=softmax_scale, enable_gqa=True
        )
        parts.append(part[0].transpose(0, 1))
    return torch.cat(parts)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take TRL's two ties to CUDA away: the attention kernel, and the name of the device."""
    from trl.experimental.async_grpo import async_grpo_trainer, packing

    monkeypatch.setattr(packing, "_flash_attn", lambda: SimpleNamespace(flash_attn_varlen_func=plain_attention))
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)


def branching(recorder: Recorder, group: str, reward: float, index: int, version: str = "0") -> None:
    """A session of two rows: two turns, the second of which was sampled twice, from the same first."""
    session = record_session(recorder, f"{group}.{index}", group=group, reward=reward)
    rng = np.random.default_rng(index)
    first = record_turn(
        recorder, session, [5, 6, 7], [8, 9 + index, 10], rng.normal(-5, 1, 3).tolist(), version=version
    )
    for branch in range(2):
        sampled = [20 + branch, 21, 22 + index]
        record_turn(
            recorder, session, [11, 12 + branch], sampled, rng.normal(-5, 1, 3).tolist(), parent=first, version=version
        )


def take(store: Store, recorder: Recorder, run: TrainingRun, **options: Any) -> Taken:
    return run.take(Reader(store), recorder, Intake(**options))


def two_groups(recorder: Recorder) -> None:
    for group, rewards in (("a", [1.0, 0.0, 0.0]), ("b", [0.0, 1.0])):
        for index, reward in enumerate(rewards):
            branching(recorder, group, reward, index)


def test_samples_are_the_record_to_the_token(tmp_path: Path, store: Store, model: Path) -> None:
    with Recorder(store) as recorder:
        two_groups(recorder)
        taken = take(store, recorder, TrainingRun.open(tmp_path / "out", str(model), SETTINGS))
    samples = samples_of(taken, 7)
    assert len(samples) == 10
    for sample, item in zip(samples, taken.selection.rows, strict=True):
        assert sample.input_ids.tolist() == item.row.ids.tolist()
        assert sample.completion_mask.tolist() == item.row.mask.astype(int).tolist()
        assert sample.old_log_probs.tolist() == item.row.logprobs.tolist()
        assert sample.advantage == item.advantage
    assert [sample.group_id for sample in samples] == [0] * 6 + [1] * 4
    assert sum(int(sample.completion_mask.sum()) for sample in samples) == 5 * 9, "each sampled token once"
    # The branches of a session share their first turn; it is trained in one row, with a hole after it.
    assert samples[0].completion_mask.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1]
    assert samples[1].completion_mask.tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert {sample.metrics["reward"] for sample in samples} == {0.0, 1.0}


def test_a_sample_is_as_old_as_its_oldest_token(tmp_path: Path, store: Store, model: Path) -> None:
    with Recorder(store) as recorder:
        for index, versions in enumerate((("4", "4"), ("2", "4"), ("default", "default"), ("night", "3"))):
            session = record_session(recorder, f"g.{index}", group="g", reward=float(index))
            first = record_turn(recorder, session, [5], [8], version=versions[0])
            record_turn(recorder, session, [6], [9], parent=first, version=versions[1])
        run = TrainingRun.open(tmp_path / "out", str(model), SETTINGS)
        run.version = 4
        assert [sample.model_version for sample in samples_of(take(store, recorder, run), 10)] == [10, 8, 6, 9]


def fed(worker: RecordWorker, count: int) -> list[Any]:
    return [worker.rollout_buffer.get(timeout=1) for _ in range(count)]


def test_a_step_begins_where_the_buffer_is_empty(tmp_path: Path, store: Store, model: Path) -> None:
    with Recorder(store) as recorder:
        two_groups(recorder)
        run = TrainingRun.open(tmp_path / "out", str(model), SETTINGS)
        asked: list[int] = []

        def next_step() -> Taken:
            asked.append(1)
            return take(store, recorder, run, max_groups=1)

        worker = RecordWorker(take=next_step, samples=samples_of, temperature=1.0)
        assert not asked
        worker.update_model_version(3)
        assert {sample.model_version for sample in fed(worker, 6)} == {3}
        assert len(asked) == 1
        # TRL asks for more although nothing was trained: it has dropped some of these.
        with pytest.raises(RuntimeError, match="dropped samples"):
            worker.rollout_buffer.get(timeout=1)
        worker.taken = None
        fed(worker, 6)
        assert len(asked) == 2
        other = RecordWorker(take=next_step, samples=samples_of, temperature=0.7)
        with pytest.raises(MixedTemperatures, match="--temperature 1"):
            fed(other, 1)


def test_a_row_that_begins_with_a_sampled_token_is_refused(tmp_path: Path, store: Store, model: Path) -> None:
    with Recorder(store) as recorder:
        two_groups(recorder)
        taken = take(store, recorder, TrainingRun.open(tmp_path / "out", str(model), SETTINGS))
    taken.selection.rows[3].row.mask[0] = True
    with pytest.raises(ValueError, match="no prompt"):
        samples_of(taken, 1)


def test_micro_batches_hold_the_budget_of_different_tokens(tmp_path: Path, store: Store, model: Path) -> None:
    with Recorder(store) as recorder:
        two_groups(recorder)
        taken = take(store, recorder, TrainingRun.open(tmp_path / "out", str(model), SETTINGS))
    samples = [
        {
            name: getattr(sample, name)
            for name in ("input_ids", "completion_mask", "old_log_probs", "advantage", "group_id")
        }
        for sample in samples_of(taken, 1)
    ]
    for budget in (20, 40, 10_000):
        rows = packed(samples, budget)
        assert [id(sample) for row in rows for sample in row.samples] == [id(sample) for sample in samples]
        assert all(len(row.tokens) <= budget for row in rows)
    assert len(rows) == 1
    assert len(rows[0].tokens) < sum(len(sample["input_ids"]) for sample in samples), "what is shared counts once"
    assert [len(row.samples) for row in packed(samples, 5)] == [1] * 10, "too long for the budget: alone"


def noisy(taken: Taken) -> Taken:
    """`taken` with logprobs that are far from any model's, so that ratios are clipped on both sides."""
    rng = np.random.default_rng(3)
    rows = []
    for item in taken.selection.rows:
        shifted = item.row.logprobs + rng.normal(0, 0.5, len(item.row.ids)).astype(np.float32)
        rows.append(Credited(replace(item.row, logprobs=np.where(item.row.mask, shifted, 0.0)), item.advantage))
    return replace(taken, selection=replace(taken.selection, rows=tuple(rows)))


def one_step(training: AsyncTraining, taken: Taken) -> None:
    """Have TRL's trainer make a step on `taken`."""
    steps = iter([taken])

    def given() -> Taken:
        for step in steps:
            return step
        raise Ended("that was all")

    def kept() -> None:
        training.worker.taken = None

    training.worker.take, training.transfer.send = given, kept
    training.trainer.train()


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("budget", [20, 10_000])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_gradient_is_that_of_the_loss_engine(
    tmp_path: Path, store: Store, model: Path, budget: int, checkpointing: bool
) -> None:
    """TRL's packing, loss and loop against `trainer.grpo`, over rows with holes, branches and clipped ratios."""
    settings = Settings(max_grad_norm=1e9, token_budget=budget, gradient_checkpointing=checkpointing)
    engine = TrainingRun.open(tmp_path / "engine", str(model), settings)
    with Recorder(store) as recorder, AsyncTraining.open(tmp_path / "trl", str(model), settings) as training:
        two_groups(recorder)
        taken = noisy(take(store, recorder, engine))
        moved, metrics = [], []
        for run, step in (
            (engine, lambda: metrics.append(engine.learner.step(taken.selection.rows))),
            (training.run, lambda: one_step(training, taken)),
        ):
            # With plain SGD the weights move by exactly the gradient.
            policy = run.learner.policy.model
            run.learner.optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
            training.trainer.optimizer = run.learner.optimizer
            before = {name: p.detach().clone() for name, p in policy.named_parameters()}
            step()
            moved.append({name: before[name] - p.detach() for name, p in policy.named_parameters()})
        ours, theirs = moved
        assert ours.keys() == theirs.keys()
        largest = max(tensor.abs().max().item() for tensor in ours.values())
        assert largest > 1e-3
        for name, tensor in ours.items():
            assert (tensor - theirs[name]).abs().max().item() < 1e-4 * largest, name
        [seen], made = metrics, training.trainer.measured
        assert made is not None
        assert made.micro_batches == 1 if budget > 20 else made.micro_batches > 2
        assert 0.1 < made.clip_share < 0.9
        for field in fields(seen):
            if field.name not in ("micro_batches", "seconds"):
                assert getattr(made, field.name) == pytest.approx(getattr(seen, field.name), rel=1e-4, abs=1e-5), field


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("tied", [False, True])
def test_a_closed_loop(tmp_path: Path, store: Store, tied: bool) -> None:
    """Two steps, pushed, verified and recorded as any other; one group too old; and gone on with after a restart."""
    model = make_checkpoint(tmp_path / "model", tied=tied, layers=1)
    server = ModelServer(model)
    out = tmp_path / "out"
    reports: list[StepReport] = []
    with Recorder(store) as recorder, server.client() as client:

        def reported(report: StepReport) -> None:
            reports.append(report)
            if len(reports) == 1:
                server.roll_out(recorder, "g2", [0.0, 1.0])

        def train(steps: int | None) -> str | None:
            with AsyncTraining.open(out, str(model), SETTINGS, max_lag=0, steps=steps) as training:
                following = Following(store, poll=0.02, idle=0.1)
                return training.train(
                    store, recorder, following=following, intake=Intake(max_lag=0), server=client, reported=reported
                )

        server.roll_out(recorder, "g1", [1.0, 0.0, 0.0])
        reason = train(None)
        assert reason is not None
        assert reason.startswith("no group was completed")
        assert [report.version for report in reports] == ["1", "2"]
        server.version = "1"  # as if a rollout had begun before the last push
        server.roll_out(recorder, "late", [1.0, 0.0])
        server.version = "2"
        server.roll_out(recorder, "g3", [1.0, 0.0])
        assert train(1) is None
    for report in reports:
        assert report.pushed is not None
        assert report.pushed.gap < 1e-3
        assert report.metrics.logprob_gap_max < 1e-4, "sampled by the very weights that are trained"
        stored = load_batch(store, report.batch_id)
        assert stored.batch.checkpoint == str(report.weights)
        assert len(rebuild(Reader(store), stored)) == report.metrics.rows
    assert server.version == "3"
    assert [report.selection.groups[0].name for report in reports] == ["g1", "g2", "g3"]
    assert [group.name for group in Reader(store).groups()] == ["late"]
    # The moments are those of three steps, and the loss engine can go on with them.
    run = TrainingRun.open(out, str(model), SETTINGS)
    assert run.version == 3
    assert run.learner.optimizer.state_dict()["state"][0]["step"].item() == 3


@pytest.mark.usefixtures("on_cpu")
def test_a_sample_that_trl_drops_is_an_error(tmp_path: Path, store: Store, model: Path) -> None:
    with Recorder(store) as recorder, AsyncTraining.open(tmp_path / "out", str(model), SETTINGS, max_lag=1) as training:
        two_groups(recorder)
        training.run.version = 5
        with pytest.raises(RuntimeError, match="dropped samples"):
            one_step(training, take(store, recorder, training.run))


@pytest.mark.usefixtures("on_cpu")
def test_a_loss_that_is_not_finite_never_reaches_the_weights(tmp_path: Path, store: Store, model: Path) -> None:
    with Recorder(store) as recorder, AsyncTraining.open(tmp_path / "out", str(model), SETTINGS) as training:
        two_groups(recorder)
        taken = take(store, recorder, training.run)
        taken.selection.rows[0].row.logprobs[3] = np.nan
        before = {name: p.detach().clone() for name, p in training.run.learner.policy.model.named_parameters()}
        with pytest.raises(FloatingPointError):
            one_step(training, taken)
        assert all(torch.equal(before[name], p) for name, p in training.run.learner.policy.model.named_parameters())


@pytest.mark.usefixtures("on_cpu")
def test_the_command(tmp_path: Path, store: Store, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.commands.grpo.check_machine", lambda: None)
    with Recorder(store) as recorder:
        two_groups(recorder)
    options = ["--model", str(model), "--store", str(store.engine.url), "--out", str(tmp_path / "out"), "--no-push"]
    result = CliRunner().invoke(app, ["grpo", *options, "--async", "--groups", "1", "--idle", "0.1"])
    assert result.exit_code == 0, result.output
    assert "ended after 2 steps: no group was completed for 0.1 s" in result.output
    assert [load_batch(store, number).batch.query["groups"] for number in (1, 2)] == [["a"], ["b"]]


def test_settings_become_trls(tmp_path: Path) -> None:
    settings = Settings(
        learning_rate=3e-6,
        epsilon=0.1,
        epsilon_high=0.4,
        max_grad_norm=0.5,
        weight_decay=0.01,
        token_budget=123,
        seed=9,
    )

    def config(settings: Settings, **changes: Any) -> Any:
        given: dict[str, Any] = {"temperature": 0.7, "max_lag": 2, "steps": 5, "tied": True} | changes
        return configuration(settings, tmp_path, **given)

    made = config(settings)
    assert isinstance(made, asynchronous.AsyncGRPOConfig)
    for name in ("learning_rate", "epsilon", "epsilon_high", "max_grad_norm", "weight_decay", "token_budget", "seed"):
        assert getattr(made, name) == getattr(settings, name), name
    assert (made.temperature, made.max_staleness, made.max_steps, made.weight_sync_steps) == (0.7, 2, 5, 1)
    assert made.model_init_kwargs == {"tie_word_embeddings": True}
    assert (made.bf16, made.dtype, str(made.lr_scheduler_type.value)) == (False, "float32", "constant")
    assert config(Settings(), max_lag=None).max_staleness == ANY_AGE
    assert config(Settings()).epsilon_high == 0.28
    with pytest.raises(ValueError, match="cispo"):
        config(Settings(loss="cispo"))
    with pytest.raises(ValueError, match="--lora-rank"):
        config(Settings(lora=Lora(rank=4)))


def parameters(callable_: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(callable_).parameters)


def test_trls_own_signatures_are_those_we_call() -> None:
    """Fails where a release of TRL renames what the adapter names."""
    from trl.experimental.async_grpo import async_grpo_trainer as theirs
    from trl.experimental.async_grpo.packing import TreeRow

    wanted = {"model", "args", "train_dataset", "processing_class", "rollout_worker", "weight_transfer"}
    assert wanted <= set(parameters(theirs.AsyncGRPOTrainer.__init__))
    assert [field.name for field in fields(theirs.RolloutSample)] == [
        *("prompt", "completion", "input_ids", "completion_mask", "old_log_probs"),
        *("advantage", "model_version", "group_id", "metrics", "enqueued_at"),
    ]
    for ours, protocol in ((RecordWorker, theirs.RolloutWorkerProtocol), (PushTransfer, theirs.WeightTransferProtocol)):
        methods = [name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"]
        for name in methods:
            assert parameters(getattr(ours, name)) == parameters(getattr(protocol, name)), name
        assert set(inspect.get_annotations(protocol)) <= {field.name for field in fields(ours)}
    assert parameters(theirs.RolloutQueueDataset.__init__)[1:7] == [
        *("rollout_queue", "model_version_fn", "check_health_fn", "stale_after_s", "metrics", "max_staleness")
    ]
    assert {"pad_token_id", "metrics"} <= {field.name for field in fields(theirs.DataCollatorForRollout)}
    assert parameters(TreeRow.fits) == ["self", "sample", "budget"]
    assert parameters(theirs.AsyncGRPOTrainer.training_step) == ["self", "model", "inputs", "num_items_in_batch"]
