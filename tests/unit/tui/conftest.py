"""Pilots that wait for what happens, not for time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.tui import quiet


@pytest.fixture(scope="session", autouse=True)
def wait_for_quiet() -> Iterator[None]:
    """Let a key be done with when nothing happens any more."""
    with pytest.MonkeyPatch.context() as patch:
        quiet.install(patch)
        yield
