"""Pilots that wait for what happens, not for time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.tui import quiet

from overspan.tui.app import TopApp


@pytest.fixture(scope="session", autouse=True)
def wait_for_quiet() -> Iterator[None]:
    """Let a key be done with when nothing happens any more."""
    with pytest.MonkeyPatch.context() as patch:
        quiet.install(patch)
        # On a machine that stands still a note would be gone before it is read.
        patch.setattr(TopApp, "NOTIFICATION_TIMEOUT", 600.0)
        yield
