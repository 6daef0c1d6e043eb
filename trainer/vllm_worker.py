"""What `trainer serve --lora-rank` adds to vLLM's workers (`--worker-extension-cls`); runs inside vLLM.

Called by name through /collective_rpc, with plain strings.
"""

from __future__ import annotations

from typing import Any, Protocol

from trainer.adapters import SERVED_NAME

_ID = 1
"""vLLM numbers its adapters from 1, and ours is the only one (trainer.serve refuses others)."""


class _Worker(Protocol):
    def add_lora(self, lora_request: Any) -> bool: ...

    def list_loras(self) -> set[int]: ...


class SwapsAdapter:
    """Mixed into vLLM's own worker class."""

    def swap_adapter(self: _Worker, path: str) -> None:
        """Read the adapter in `path` and put it in the place of the served one, for every request.

        It is read first: one that does not fit raises, and the former one stays.
        """
        from vllm.lora.request import LoRARequest

        if others := self.list_loras() - {_ID}:
            raise RuntimeError(f"adapters beside the policy's are loaded ({sorted(others)}): which one is meant?")
        self.add_lora(LoRARequest(lora_name=SERVED_NAME, lora_int_id=_ID, lora_path=path, load_inplace=True))
