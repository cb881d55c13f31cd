"""Causes and what follows from them."""

from __future__ import annotations

import pytest

from overspan.bridge.model.causes import CONSEQUENCES, Cause, Charge, find_cause, is_stopped
from overspan.bridge.model.states import State


def test_every_cause_has_a_terminal_consequence() -> None:
    assert set(CONSEQUENCES) == set(Cause)
    for row in CONSEQUENCES.values():
        assert row.state.terminal
        assert row.reason and " " not in row.reason


def test_failures_of_the_user_and_of_the_infrastructure_are_charged_apart() -> None:
    charged = {charge: {cause for cause, row in CONSEQUENCES.items() if row.charge is charge} for charge in Charge}
    assert charged[Charge.ERRORS] == {
        Cause.EXIT,
        Cause.SIGNAL,
        Cause.SETUP,
        Cause.LAUNCH,
        Cause.NOT_READY,
        Cause.MEMORY,
    }
    assert charged[Charge.RECOVERIES] == {Cause.NODE, Cause.PREEMPTION, Cause.BOOT, Cause.NEVER_STARTED}
    assert charged[Charge.OPERATOR] == {Cause.REQUEUE, Cause.RESTART, Cause.GROUP_RESTART, Cause.FAILOVER}
    assert charged[Charge.NONE] == {Cause.SUCCESS}
    assert {Cause.TIME, Cause.DEADLINE, Cause.CANCEL} <= charged[Charge.FINAL]


def test_only_success_and_a_served_end_are_complete() -> None:
    complete = {cause for cause, row in CONSEQUENCES.items() if row.state is State.COMPLETED}
    assert complete == {Cause.SUCCESS, Cause.PRIMARIES_DONE}


def test_causes_are_found_by_name() -> None:
    assert all(find_cause(cause.value) is cause for cause in Cause)
    assert find_cause("") is None
    assert find_cause("solar_flare") is None


@pytest.mark.parametrize(
    ("code", "signal", "expected"),
    [
        (0, 15, True),
        (0, 9, True),
        (143, 0, True),
        (137, 0, True),
        (0, 0, False),
        (15, 0, False),
        (9, 0, False),
        (0, 11, False),
        (139, 0, False),
    ],
)
def test_ends_by_term_and_kill(code: int, signal: int, expected: bool) -> None:
    assert is_stopped(code, signal) is expected
