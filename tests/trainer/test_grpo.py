"""TRL as the loss engine: the gradient is the one of the formula, and it reaches exactly the sampled tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from trainer.batches import Credited, MixedTemperatures
from trainer.grpo import Learner, Settings
from trainer.policy import load_policy, token_logprobs
from trainer.sequences import Row, Span

pytestmark = pytest.mark.slow


def row(session: int, spans: list[tuple[int, int]], length: int, *, temperature: float = 1.0, seed: int = 0) -> Row:
    """A row of random ids; logprobs are filled in by :func:`recorded`."""
    ids = np.random.default_rng(seed + 1000 * session).integers(4, 260, length).astype(np.int32)
    mask = np.zeros(length, dtype=np.bool_)
    for start, end in spans:
        mask[start:end] = True
    return Row(
        session=session,
        turns=(session,),
        ids=ids,
        mask=mask,
        logprobs=np.zeros(length, dtype=np.float32),
        spans=tuple(Span(turn=session, start=a, end=b, weight_version="0", temperature=temperature) for a, b in spans),
    )


def recorded(model: torch.nn.Module, item: Row, *, noise: float = 0.0) -> Row:
    """`item` with the logprobs `model` gives its trained tokens, as vLLM would have recorded them."""
    temperature = item.spans[0].temperature
    found = np.array([0.0, *token_logprobs(model, item.ids.tolist(), 1, temperature=temperature)], dtype=np.float32)
    shift = np.random.default_rng(7).normal(0, noise, len(found)).astype(np.float32)
    return Row(
        session=item.session,
        turns=item.turns,
        ids=item.ids,
        mask=item.mask,
        logprobs=np.where(item.mask, found + shift, 0.0).astype(np.float32),
        spans=item.spans,
    )


def gradient_by_hand(
    model: torch.nn.Module, rows: list[Credited], low: float, high: float, temperature: float
) -> dict[str, torch.Tensor]:
    """Of -sum over trained tokens of min(ratio * A, clip(ratio) * A), divided by their number; row by row, unpadded."""
    model.zero_grad()
    total = sum(item.row.trained for item in rows)
    for item in rows:
        ids = torch.tensor(item.row.ids.astype(np.int64))[None]
        logits = model(input_ids=ids).logits[0, :-1] / temperature
        now = logits.log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
        mask = torch.tensor(item.row.mask[1:])
        ratio = (now - torch.tensor(item.row.logprobs[1:])).exp()
        gain = torch.minimum(ratio * item.advantage, ratio.clamp(1 - low, 1 + high) * item.advantage)
        (-(gain * mask).sum() / total).backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return found


def step_and_gradient(
    checkpoint: Path, rows: list[Credited], settings: Settings
) -> tuple[object, dict[str, torch.Tensor]]:
    """Take a step with plain SGD in place of Adam: the weights then move by exactly the gradient."""
    learner = Learner(load_policy(checkpoint), settings)
    model = learner.policy.model
    learner.optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    metrics = learner.step(rows)
    return metrics, {name: before[name] - p.detach() for name, p in model.named_parameters()}


def example(checkpoint: Path, *, noise: float, temperature: float = 1.0) -> list[Credited]:
    model = load_policy(checkpoint).model
    shapes = [([(10, 20), (30, 34)], 34), ([(5, 9)], 9), ([(40, 60)], 60), ([(12, 13), (20, 31)], 31)]
    rows = [row(i, spans, length, temperature=temperature) for i, (spans, length) in enumerate(shapes)]
    gains = [1.5, -0.5, 0.7, -1.7]
    return [Credited(recorded(model, r, noise=noise), g) for r, g in zip(rows, gains, strict=True)]


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("budget", [64, 100_000])
def test_gradient_is_the_one_of_the_formula(checkpoint: Path, budget: int, checkpointing: bool) -> None:
    rows = example(checkpoint, noise=0.3, temperature=0.8)
    settings = Settings(token_budget=budget, max_grad_norm=1e9, gradient_checkpointing=checkpointing)
    _, moved = step_and_gradient(checkpoint, rows, settings)
    wanted = gradient_by_hand(load_policy(checkpoint).model, rows, 0.2, 0.28, 0.8)
    largest = max(g.abs().max().item() for g in wanted.values())
    for name, gradient in wanted.items():
        assert (moved[name] - gradient).abs().max().item() < 1e-4 * largest, name


def test_ratio_is_one_on_unchanged_weights(checkpoint: Path) -> None:
    rows = example(checkpoint, noise=0.0)
    metrics = Learner(load_policy(checkpoint), Settings(token_budget=64)).step(rows)
    assert metrics.logprob_gap_max < 1e-4
    assert metrics.ratio_mean == pytest.approx(1.0, abs=1e-5)
    assert metrics.clip_share == 0.0
    assert metrics.tokens_trained == 14 + 4 + 20 + 12
    assert metrics.micro_batches > 1
    expected = -sum(item.advantage * item.row.trained for item in rows) / metrics.tokens_trained
    assert metrics.loss == pytest.approx(expected, abs=1e-5)


def test_tokens_outside_the_mask_have_no_say(checkpoint: Path) -> None:
    """Only context that precedes trained tokens may matter: the last token of a row of context changes nothing."""
    rows = example(checkpoint, noise=0.1)
    longer = []
    for item in rows:
        tail = np.array([7, 8, 9], dtype=np.int32)
        longer.append(
            Credited(
                Row(
                    session=item.row.session,
                    turns=item.row.turns,
                    ids=np.concatenate([item.row.ids, tail]),
                    mask=np.concatenate([item.row.mask, np.zeros(3, dtype=np.bool_)]),
                    logprobs=np.concatenate([item.row.logprobs, np.full(3, -2.0, dtype=np.float32)]),
                    spans=item.row.spans,
                ),
                item.advantage,
            )
        )
    settings = Settings(max_grad_norm=1e9)
    _, short = step_and_gradient(checkpoint, rows, settings)
    _, long = step_and_gradient(checkpoint, longer, settings)
    for name in short:
        assert torch.allclose(short[name], long[name], atol=1e-6), name


def test_stale_rows_are_seen_and_clipped(checkpoint: Path) -> None:
    metrics = Learner(load_policy(checkpoint), Settings()).step(example(checkpoint, noise=0.5))
    assert metrics.logprob_gap_max > 0.5
    assert metrics.ratio_max > 1.5
    assert 0.0 < metrics.clip_share < 1.0


def test_steps_follow_each_other(checkpoint: Path) -> None:
    """The second step starts from the first's weights and moments, and the policy moves towards what paid."""
    learner = Learner(load_policy(checkpoint), Settings(learning_rate=1e-3))
    good, bad = row(0, [(10, 20)], 20), row(1, [(10, 20)], 20)
    gaps = []
    for _ in range(4):
        model = learner.policy.model
        rows = [Credited(recorded(model, good), 1.0), Credited(recorded(model, bad), -1.0)]
        gaps.append(sum(token_logprobs(model, good.ids, 10)) - sum(token_logprobs(model, bad.ids, 10)))
        assert learner.step(rows).logprob_gap_max < 1e-4
    assert gaps == sorted(gaps)
    assert gaps[-1] > gaps[0]
    assert "forward" not in vars(learner.policy.model)


def test_optimizer_survives_a_restart(checkpoint: Path, tmp_path: Path) -> None:
    rows = example(checkpoint, noise=0.1)
    first = Learner(load_policy(checkpoint), Settings(learning_rate=1e-3))
    first.step(rows)
    first.save_optimizer(tmp_path / "optimizer.pt")
    second = Learner(first.policy, Settings(learning_rate=1e-4))
    second.load_optimizer(tmp_path / "optimizer.pt")
    kept, loaded = first.optimizer.state_dict(), second.optimizer.state_dict()
    assert torch.equal(kept["state"][0]["exp_avg"], loaded["state"][0]["exp_avg"])
    assert loaded["param_groups"][0]["lr"] == 1e-4


def test_mixed_temperatures_are_refused(checkpoint: Path) -> None:
    rows = [
        Credited(row(0, [(3, 5)], 5, temperature=1.0), 1.0),
        Credited(row(1, [(3, 5)], 5, temperature=0.7), -1.0),
    ]
    with pytest.raises(MixedTemperatures, match=r"0\.7, 1\.0"):
        Learner(load_policy(checkpoint), Settings()).step(rows)


def test_a_loss_that_is_not_finite_never_reaches_the_weights(checkpoint: Path) -> None:
    learner = Learner(load_policy(checkpoint), Settings())
    before = {name: p.detach().clone() for name, p in learner.policy.model.named_parameters()}
    broken = row(0, [(3, 5)], 5)
    broken.logprobs[3] = np.nan
    with pytest.raises(FloatingPointError):
        learner.step([Credited(broken, 1.0)])
    assert all(torch.equal(before[name], p) for name, p in learner.policy.model.named_parameters())


def test_no_rows(checkpoint: Path) -> None:
    with pytest.raises(ValueError, match="no rows"):
        Learner(load_policy(checkpoint), Settings()).step([])
