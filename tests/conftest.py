"""Fixtures for all tests."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.waiting import WaitUntil


# A machine that had something else to do is no failure of an example.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_configure() -> None:
    """Let programs that tests start be interrupted: a shell in the background has its commands ignore that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


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
