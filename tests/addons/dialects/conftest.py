from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.addons.dialects.served import Served, serving


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One gateway for all tests of the dialects; each call has a session of its own."""
    with serving(tmp_path_factory.mktemp("served")) as running:
        yield running
