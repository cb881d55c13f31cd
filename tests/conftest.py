"""Fixtures for all tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.waiting import WaitUntil


@pytest.fixture(scope="session")
def wait_until() -> WaitUntil:
    """Wait for a fact: `wait_until(predicate, timeout, what)`."""
    # Test folders are no packages: the module is loaded by its path.
    spec = importlib.util.spec_from_file_location("waiting", Path(__file__).with_name("waiting.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    waiting: WaitUntil = module.wait_until
    return waiting
