"""A connection that is dropped without being closed is told to the test that dropped it, not to a later one.

Imported into the conftest of tests that open connections. What is dropped in a cycle is found by the collector alone,
in whatever test runs then; the warning is an error there.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

_frozen = False


@pytest.fixture(autouse=True)
def nothing_is_dropped() -> Iterator[None]:
    """Collect after the test: what it dropped is its own error."""
    global _frozen
    if not _frozen:
        # Modules and what is left of earlier tests: looked at once, so that each later look takes milliseconds.
        _frozen = True
        gc.collect()
        gc.freeze()
    yield
    gc.collect()
