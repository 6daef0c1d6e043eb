"""TRL as this project uses it: imported without vLLM, telemetry off. Nothing else imports it.

Where vLLM is installed, TRL imports all of it (10 s, 200 MB) for ways of generating that are not used here.
"""

from __future__ import annotations

import sys

if "vllm" not in sys.modules:
    sys.modules["vllm"] = None  # type: ignore[assignment] # the documented way to make an import fail
    from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

    del sys.modules["vllm"]
else:
    from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

__all__ = ["DPOConfig", "DPOTrainer", "GRPOConfig", "GRPOTrainer", "SFTConfig", "SFTTrainer"]
