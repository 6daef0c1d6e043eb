from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.conftest import make_checkpoint
from trainer.adapters import Lora, blank_adapter
from trainer.policy import load_policy, token_logprobs
from trainer.push.lora import adapter_rank

pytestmark = pytest.mark.slow

IDS = [4 + (7 * i) % 250 for i in range(60)]


@pytest.mark.parametrize("tied", [False, True])
def test_a_blank_adapter_changes_nothing(tmp_path: Path, tied: bool) -> None:
    """And has every module that training adapts, or vLLM would not have been seen to take them all."""
    model = make_checkpoint(tmp_path / "model", tied=tied, layers=1)
    blank = blank_adapter(str(model), 4, tmp_path / "adapters")
    assert adapter_rank(blank) == 4
    before = token_logprobs(load_policy(model).model, IDS, 1)
    policy, trained = load_policy(model), load_policy(model)
    policy.adapt(Lora(rank=4), blank)
    trained.adapt(Lora(rank=4))
    assert token_logprobs(policy.model, IDS, 1) == before
    names = [name for name, parameter in policy.model.named_parameters() if parameter.requires_grad]
    assert names == [name for name, parameter in trained.model.named_parameters() if parameter.requires_grad]
    assert all(not parameter.any() for name, parameter in policy.model.named_parameters() if ".lora_B." in name)


def test_it_is_made_once(tmp_path: Path) -> None:
    model = make_checkpoint(tmp_path / "model", layers=1)
    blank = blank_adapter(str(model), 4, tmp_path / "adapters")
    made = (blank / "adapter_model.safetensors").stat().st_mtime_ns
    assert blank_adapter(str(model), 4, tmp_path / "adapters") == blank
    assert (blank / "adapter_model.safetensors").stat().st_mtime_ns == made
    other = blank_adapter(str(model), 8, tmp_path / "adapters")
    assert sorted(path.name for path in (tmp_path / "adapters").iterdir()) == sorted([blank.name, other.name])
