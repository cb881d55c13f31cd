"""Fixtures and options for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.schedule import LongestFirst, plan_units
from tests.tiers import PARTS, choose_part, read_tiers
from tests.timing import Timing
from tests.waiting import WaitUntil, wait_until

from overspan.bridge.model.records import prepare_all

# A machine that had something else to do is no failure of an example.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The runs: see `tests/gate.yaml`."""
    group = parser.getgroup("overspan")
    group.addoption("--gate", action="store_true", help="only what `make test` plays")
    group.addoption("--part", type=int, default=0, metavar="N", help=f"only part N of {PARTS} of what it leaves out")
    group.addoption("--bar", type=float, default=0, metavar="SECONDS", help="say so where the run takes longer")
    group.addoption("--record-durations", action="store_true", help="keep what each test took, to plan later runs")


def pytest_configure(config: pytest.Config) -> None:
    """Let programs that tests start be interrupted: a shell in the background has its commands ignore that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Timing(config), "overspan-timing")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what does not belong to this run; with several workers, put what is left in the order of the plan."""
    chosen = {item.nodeid for item in items}
    tiers = read_tiers()
    if config.getoption("--gate"):
        chosen = set(filter(tiers.is_in_gate, chosen))
    if part := config.getoption("--part"):
        chosen = choose_part([nodeid for nodeid in chosen if not tiers.is_in_gate(nodeid)], part)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]
    if hasattr(config, "workerinput"):
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[nodeid] for tests in plan_units(list(by_name)).values() for nodeid in tests]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Hypothesis reads signatures, which records have once they are compiled: not only after some other test."""
    prepare_all()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End a rig with the last test in a row that needs it."""
    yield
    tiers = read_tiers()
    rig = tiers.rig_of(item.nodeid.partition("::")[0])
    if rig and (nextitem is None or tiers.rig_of(nextitem.nodeid.partition("::")[0]) != rig):
        from tests.rigs.plugin import close_shared

        close_shared(item.config)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out units of work, the longest first."""
    return LongestFirst(config, log)


@pytest.fixture(scope="session", name="wait_until")
def share_wait_until() -> WaitUntil:
    """Wait for a fact: `wait_until(predicate, timeout, what)`."""
    return wait_until
