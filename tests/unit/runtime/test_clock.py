"""The wall clock is set while time passes."""

from __future__ import annotations

import time

import pytest

from overspan.bridge.runtime.core.clock_jumps import JumpDetector


class Machine:
    """The two clocks of a machine; each look at the time since boot may take a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.elapsed = 5000.0
        self.distance = 1_000_000.0
        self.pauses: list[float] = []
        monkeypatch.setattr(time, "time", lambda: self.elapsed + self.distance)
        monkeypatch.setattr(time, "clock_gettime", self.look)

    def look(self, which: int) -> float:
        assert which == time.CLOCK_BOOTTIME
        found = self.elapsed
        if self.pauses:
            self.elapsed += self.pauses.pop(0)
        return found


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize("seconds", [10_800.0, -21_600.0, 1.5])
def test_a_clock_that_was_set_is_told_once(machine: Machine, seconds: float) -> None:
    clock = JumpDetector()
    machine.elapsed += 100
    assert clock.take_jump() == 0.0
    machine.distance += seconds
    assert clock.take_jump() == pytest.approx(seconds)
    assert clock.take_jump() == 0.0


def test_small_steps_are_told_when_they_have_come_to_a_second(machine: Machine) -> None:
    clock = JumpDetector()
    told = []
    for _ in range(8):
        machine.distance += 0.3
        told.append(clock.take_jump())
    assert [round(seconds, 1) for seconds in told if seconds] == [1.2, 1.2]


def test_a_process_that_pauses_between_two_looks_has_seen_no_jump(machine: Machine) -> None:
    clock = JumpDetector()
    machine.pauses = [30.0, 0.0, 30.0]
    assert clock.take_jump() == 0.0
    machine.pauses = [30.0] * 10
    assert clock.take_jump() == 0.0
