"""Weight push: new weights into a running vLLM, by one of several ways, each push verified by a probe."""

from trainer.push.lora import HotLoad
from trainer.push.nccl import Nccl
from trainer.push.reload import Reload
from trainer.push.server import DevModeOff, PushError, WeightServer
from trainer.push.verified import (
    BF16_TOLERANCE,
    FP32_TOLERANCE,
    Probe,
    Pushed,
    PushMismatch,
    Score,
    next_version,
    push,
    swap,
)
from trainer.push.ways import Way, WayName, choose

__all__ = [
    "BF16_TOLERANCE",
    "FP32_TOLERANCE",
    "DevModeOff",
    "HotLoad",
    "Nccl",
    "Probe",
    "PushError",
    "PushMismatch",
    "Pushed",
    "Reload",
    "Score",
    "Way",
    "WayName",
    "WeightServer",
    "choose",
    "next_version",
    "push",
    "swap",
]
