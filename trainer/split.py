"""A model that accelerate splits over the processes: FSDP2's shards or DeepSpeed's ZeRO, and the whole that they make.

Each optimizer step of GRPO is a trainer of its own (:mod:`trainer.grpo`). So between two steps the policy and the
optimizer's moments are whole, on the CPU of rank 0, to be exported, saved and scored as ever; a step hands them out and
takes them back. That is one copy each way, seconds beside the minutes of rollouts that a step takes.

All ranks must call what is here, in the same order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, distributed
from torch.distributed.fsdp import FSDPModule
from torch.nn import Module, Parameter
from transformers import TrainerCallback
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from trainer import ranks
from trainer.policy import Policy

_MOMENTS = ("exp_avg", "exp_avg_sq")

State = dict[str, Tensor]
"""AdamW's of one parameter: `step` (a scalar) and the two moments, of the parameter's shape."""


class Parts(Protocol):
    """The parameters of a split model and what AdamW keeps of them; every tensor that comes or goes is whole."""

    def weight(self, parameter: Parameter) -> Tensor:
        """Its value, in float32, on every rank."""

    def state(self, parameter: Parameter) -> State:
        """What AdamW keeps of it after a step, on every rank."""

    def restore(self, parameter: Parameter, weight: Tensor, state: State) -> None:
        """Before the first step: what it goes on from, as rank 0 has it; `state` is empty where there was none yet."""

    def check(self) -> None:
        """Raise ValueError where :meth:`state` and :meth:`restore` do not know the optimizer."""


class Shards:
    """FSDP2: parameters and moments are DTensors."""

    def __init__(self, trainer: Any) -> None:
        self._kept = trainer.optimizer.optimizer.state
        self._broadcast = trainer.accelerator.state.fsdp_plugin.cpu_ram_efficient_loading

    def weight(self, parameter: Parameter) -> Tensor:
        """See Parts."""
        whole: Tensor = parameter.detach().full_tensor()  # type: ignore[attr-defined]
        return whole.float()

    def state(self, parameter: Parameter) -> State:
        """See Parts."""
        kept = self._kept[parameter]
        return {"step": kept["step"], **{name: kept[name].full_tensor() for name in _MOMENTS}}

    def restore(self, parameter: Parameter, weight: Tensor, state: State) -> None:
        """See Parts."""
        from torch.distributed.tensor import distribute_tensor

        mesh, placements = parameter.device_mesh, parameter.placements  # type: ignore[attr-defined]

        def part(whole: Tensor) -> Tensor:
            # FSDP may have the parameter on the CPU, and what belongs to it.
            return distribute_tensor(whole.to(mesh.device_type), mesh, placements).to(parameter.device)

        if not self._broadcast:  # by accelerate: then the shards are of what each rank has, and that may be old
            parameter.data.copy_(part(weight))
        if state:
            self._kept[parameter] = {"step": state["step"], **{name: part(state[name]) for name in _MOMENTS}}

    def check(self) -> None:
        """See Parts: it is the one that we gave."""


class Zero:
    """DeepSpeed: the moments (stage 1), gradients (2) and parameters (3) are split, and lie in flat tensors."""

    def __init__(self, trainer: Any) -> None:
        self._stage = trainer.accelerator.state.deepspeed_plugin.zero_stage
        self._zero = trainer.optimizer.optimizer
        self._device = trainer.accelerator.device

    @property
    def _kept(self) -> Any:
        return self._zero.optimizer.state

    def check(self) -> None:
        """See Parts: stage 0 splits nothing, and DeepSpeed's own optimizers keep other things in other places."""
        if self._stage == 0:
            raise ValueError("ZeRO stage 0 splits nothing: launch with --multi_gpu, or with --zero_stage 1, 2 or 3")
        if (kind := type(self._zero.optimizer)) is not torch.optim.AdamW:
            raise ValueError(
                f"DeepSpeed would train by its {kind.__name__}, whose moments are not known here: leave 'optimizer' "
                "and 'offload_optimizer' out of its configuration"
            )

    def weight(self, parameter: Parameter) -> Tensor:
        """See Parts."""
        from deepspeed.utils import safe_get_full_fp32_param  # type: ignore[import-not-found, unused-ignore]

        found: Tensor | None = safe_get_full_fp32_param(parameter)
        return parameter.float() if found is None else found  # None in stage 0

    def state(self, parameter: Parameter) -> State:
        """See Parts."""
        from deepspeed.utils import safe_get_full_optimizer_state

        step = next(iter(self._kept.values()))["step"]
        return {"step": step, **{name: safe_get_full_optimizer_state(parameter, name) for name in _MOMENTS}}

    def restore(self, parameter: Parameter, weight: Tensor, state: State) -> None:
        """See Parts. The weight is there, but where DeepSpeed computes in bfloat16, it was rounded on the way."""
        from deepspeed import utils  # type: ignore[import-not-found, unused-ignore]

        if state and not self._kept:
            self._begin(state["step"])
        weight = self._rank_0s(weight)
        moments = {name: self._rank_0s(state[name]) for name in _MOMENTS if state}
        if self._stage < 3:
            utils.safe_set_full_fp32_param(parameter, weight)
            for name, whole in moments.items():
                utils.safe_set_full_optimizer_state(parameter, whole, name)
        else:
            utils.safe_set_local_fp32_param(parameter, _part(parameter, weight))
            for name, whole in moments.items():
                utils.safe_set_local_optimizer_state(parameter, _part(parameter, whole), name)

    def _rank_0s(self, whole: Tensor) -> Tensor:
        tensor = whole.to(self._device)
        distributed.broadcast(tensor, src=0)
        return tensor

    def _begin(self, step: Tensor) -> None:
        """Moments to write to. A flat tensor has one step for all that lies in it: each step moves all parameters."""
        zero = self._zero
        for flat in zero.fp32_partitioned_groups_flat if self._stage == 3 else zero.single_partition_of_fp32_groups:
            self._kept[flat] = {"step": step.clone(), **{name: torch.zeros_like(flat) for name in _MOMENTS}}
        if self._stage < 3:
            zero._lazy_init_hp_params_optimizer_state()  # left alone, it does so after its first step


def _part(parameter: Parameter, whole: Tensor) -> Tensor:
    """This rank's part of ZeRO-3; DeepSpeed's own way to set a whole tensor does not know that the last is padded."""
    length = parameter.ds_tensor.numel()  # type: ignore[attr-defined]
    part = whole.flatten()[ranks.rank() * length :][:length]
    return torch.nn.functional.pad(part, (0, length - part.numel()))


def parts(trainer: Any) -> tuple[Parts, dict[str, Parameter]]:
    """Of a trainer that has wrapped its model: what knows its parameters, and these by name."""
    found: Parts
    if trainer.is_deepspeed_enabled:
        found = Zero(trainer)
    else:
        found = Shards(trainer)
        for module in trainer.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # what a forward pass put together is not the parameter that the optimizer moves
    return found, trainable(trainer.model)


def is_split(trainer: Any) -> bool:
    """Whether `trainer` will split its model. Raises ValueError where the launcher asks for that in vain."""
    found = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    if ranks.splits() and not found:
        raise ValueError("the launcher asks for FSDP, which accelerate does on GPUs only: launch with --multi_gpu here")
    return bool(found)


def trainable(model: Module) -> dict[str, Parameter]:
    """The parameters that are trained, under the names that they have in a model that nobody wrapped."""
    from accelerate.utils.fsdp_utils import fsdp2_canonicalize_names  # type: ignore[import-untyped, unused-ignore]

    named: dict[str, Parameter] = fsdp2_canonicalize_names(dict(model.named_parameters()))
    return {name: parameter for name, parameter in named.items() if parameter.requires_grad}


def gathered(trainer: Any) -> dict[str, Tensor]:
    """What `trainer` trained, by name, on the CPU of rank 0; other ranks get nothing."""
    (whole, split), found = parts(trainer), {}
    for name, parameter in split.items():
        weight = whole.weight(parameter)
        if ranks.rank() == 0:
            found[name] = weight.detach().cpu()
    return found


def train(policy: Policy, optimizer: torch.optim.Optimizer, trainer_of: Callable[[Module], Any]) -> Any:
    """Train a copy of `policy` by the trainer that `trainer_of` makes for it, which is returned.

    On rank 0 `policy` and `optimizer` (AdamW over its trained parameters) are then what a single process would have
    made of them. On other ranks only their shapes count, before and after.
    """
    trainer = trainer_of(copy.deepcopy(policy.model))
    is_split(trainer)
    ours = trainable(policy.model)
    trainer.add_callback(_Begun(lambda: _hand_out(trainer, ours, optimizer)))
    try:
        trainer.train()
        _take_back(trainer, ours, optimizer)
    finally:
        release(trainer)
    return trainer


def release(trainer: Any) -> None:
    """Forget how `trainer` split its model: the next trainer, or the next model that is loaded, begins anew."""
    from accelerate.state import AcceleratorState  # type: ignore[import-untyped, unused-ignore]

    if trainer.is_deepspeed_enabled:
        # Until the next of TRL's configs, models are loaded whole again, not each process its part for ZeRO-3.
        unset_hf_deepspeed_config()
        AcceleratorState._reset_state()  # its plugin has the last step's number of micro-batches
    # It is kept for its figures, and is part of cycles: the memory of the model must not wait for either.
    for owner in (trainer, trainer.callback_handler):
        owner.model = owner.optimizer = owner.lr_scheduler = None
    trainer.model_wrapped = trainer.deepspeed = None
    trainer.accelerator.free_memory()


class _Begun(TrainerCallback):  # type: ignore[misc] # transformers has no types for it
    """Calls `act` when a trainer has wrapped its model, before its first step."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """What transformers calls."""
        self._act()


def _hand_out(trainer: Any, ours: dict[str, Parameter], optimizer: torch.optim.Optimizer) -> None:
    handed, split = parts(trainer)
    handed.check()
    if split.keys() != ours.keys():
        raise RuntimeError(f"not the parameters of the policy: {sorted(split.keys() ^ ours.keys())[:3]}")
    kept = [optimizer.state.get(parameter, {}) for parameter in ours.values()]
    steps = ranks.gathered([float(state.get("step", 0)) for state in kept])[0]
    for (name, parameter), known, step in zip(ours.items(), kept, steps, strict=True):
        state = {}
        if any(steps):
            moments = {moment: known.get(moment, torch.zeros_like(parameter)) for moment in _MOMENTS}
            state = {"step": torch.tensor(step), **moments}
        handed.restore(split[name], parameter.detach(), state)


def _take_back(trainer: Any, ours: dict[str, Parameter], optimizer: torch.optim.Optimizer) -> None:
    whole, split = parts(trainer)
    for name, parameter in ours.items():
        weight, state = whole.weight(split[name]), whole.state(split[name])
        if ranks.rank() == 0:
            parameter.data.copy_(weight)
            # A copy: DeepSpeed's are views of tensors that go with it.
            optimizer.state[parameter] = {key: tensor.detach().to("cpu", copy=True) for key, tensor in state.items()}
