"""The daemon's clock on a machine whose wall clock is set."""

from __future__ import annotations

import time

import pytest

from overspan.bridge.controller.core.clock import DaemonClock, describe_jump


def test_it_shows_a_set_only_when_that_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    elapsed, distance = 5000.0, 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: elapsed + distance)
    monkeypatch.setattr(time, "clock_gettime", lambda which: elapsed)
    clock = DaemonClock()
    assert clock() == 1_005_000.0
    elapsed, distance = elapsed + 10, distance - 21_600
    assert clock() == 1_005_010.0
    assert clock.take_jump() == -21_600.0
    assert (clock(), clock.take_jump()) == (time.time(), 0.0)


def test_the_log_says_it() -> None:
    text = "limits go on unchanged; begin times, deadlines and schedules follow the clock"
    assert describe_jump(-21_600.4) == f"this machine's clock was set back by 21600 s: delays and {text}"
    assert describe_jump(2.0).startswith("this machine's clock was set forward by 2 s")
