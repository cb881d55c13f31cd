"""A connection that is dropped without being closed is told to the test that dropped it, not to a later one.

Imported into the conftest of tests that open connections. What is dropped in a cycle is found by the collector alone,
in whatever test runs then; the warning is an error there.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

_frozen_for: Path | None = None


@pytest.fixture(autouse=True)
def nothing_is_dropped(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect after the test: what it dropped is its own error."""
    global _frozen_for
    if _frozen_for != request.path:
        # What there is before a file's first test is looked at once: each later look takes a millisecond, not 100.
        _frozen_for = request.path
        gc.collect()
        gc.freeze()
    yield
    gc.collect()
