"""Timers on an event loop whose time the test moves."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any

import pytest

from overspan.bridge.controller.core.timers import LoopTimers


class Handle:
    """What a loop gives for a call that is to come."""

    def __init__(self, at: float, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.at, self.call, self.args, self.live = at, call, args, True

    def __lt__(self, other: Handle) -> bool:
        return self.at < other.at

    def cancel(self) -> None:
        self.live = False


class Loop:
    """An event loop's clock; `slept` seconds passed that it did not count, `distance` is that of the wall clock."""

    def __init__(self) -> None:
        self.now, self.slept, self.distance = 100.0, 0.0, 1_000_000.0
        self._calls: list[Handle] = []

    def time(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + self.slept + self.distance

    def call_later(self, delay: float, call: Callable[..., None], *args: Any) -> Handle:
        handle = Handle(self.now + delay, call, args)
        heapq.heappush(self._calls, handle)
        return handle

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.now + seconds
        while self._calls and self._calls[0].at <= end:
            handle = heapq.heappop(self._calls)
            self.now = max(self.now, handle.at)
            if handle.live:
                handle.call(*handle.args)
        self.now = end


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    found = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: found)
    return found


def test_timers_ring_once_in_their_order_and_one_of_a_name(loop: Loop) -> None:
    timers, count = LoopTimers(loop.wall), list[str]()
    timers.drop("never set")
    timers.set("far", 1e18, lambda: count.append("far"))
    timers.set("later", loop.wall() + 9, lambda: count.append("later"))
    timers.set("past", 5.0, lambda: count.append("past"))
    timers.set("gone", loop.wall() + 1, lambda: count.append("gone"))
    timers.drop("gone")
    timers.set("again", loop.wall() + 1, lambda: count.append("first"))
    timers.set("again", loop.wall() + 10, lambda: count.append("again"))
    loop.run(8)
    assert count == ["past"]
    loop.run(8)
    assert count == ["past", "later", "again"]
    timers.close()
    loop.run(1e19)
    assert count == ["past", "later", "again"]


def test_a_timer_may_set_itself_again(loop: Loop) -> None:
    timers, count = LoopTimers(loop.wall), list[float]()

    def wake() -> None:
        count.append(loop.now)
        timers.set("a", loop.wall() + 2, wake)

    timers.set("a", loop.wall() + 2, wake)
    loop.run(7)
    assert count == pytest.approx([102, 104, 106])


@pytest.mark.parametrize("seconds", [10_800.0, -21_600.0])
def test_a_clock_that_was_set_changes_no_distance(loop: Loop, seconds: float) -> None:
    timers, count = LoopTimers(loop.wall), list[float]()
    timers.look()
    timers.set("a", loop.wall() + 60, lambda: count.append(loop.now))
    loop.run(10)
    loop.distance += seconds
    timers.move(seconds)
    timers.look()
    loop.run(100)
    assert count == pytest.approx([160])


def test_what_was_due_while_the_machine_slept_rings_with_the_next_look(loop: Loop) -> None:
    timers, count = LoopTimers(loop.wall), list[str]()
    timers.look()
    timers.set("a", loop.wall() + 600, lambda: count.append("a"))
    timers.set("b", loop.wall() + 900, lambda: count.append("b"))
    loop.slept += 700
    loop.run(10)
    assert count == []
    timers.look()
    loop.run(1)
    assert count == ["a"]
    loop.run(200)
    assert count == ["a", "b"]


def test_none_rings_early(loop: Loop) -> None:
    timers, count = LoopTimers(loop.wall), list[float]()
    timers.set("a", loop.wall() + 60, lambda: count.append(loop.now))
    loop.slept -= 1e-3
    loop.run(60.0005)
    assert count == []
    loop.run(1)
    assert len(count) == 1
