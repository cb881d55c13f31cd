"""The machine's clock is set by hours while jobs run: what lasts an hour still lasts an hour."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from tests.system.runtime.clock import HOUR, SLACK, Clock

from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.spec import Need, NeedKind, Ready, ReadyKind, TaskSpec
from overspan.bridge.model.states import State

if TYPE_CHECKING:
    from tests.system.runtime.conftest import Hosts

FOREVER = "exec sleep 300"
JUMPS = pytest.mark.parametrize("jump", [3 * HOUR, -6 * HOUR], ids=["forward", "back"])


@JUMPS
def test_a_limit_is_reached_when_its_time_has_passed(hosts: Hosts, jump: int) -> None:
    clock = Clock(hosts.work)
    launched = hosts.add(TaskSpec("a", run=FOREVER, time=2 * HOUR))
    hosts.start(launched.host, clock.code)
    launched.until("NodeStarted")
    clock.jump(jump)
    (said,) = launched.until("ClockSet")
    assert said["seconds"] == pytest.approx(jump, abs=SLACK)
    assert not launched.events("Terminate")
    clock.move(2 * HOUR)
    job = hosts.finish(launched)
    (attempt,) = job.task("a").attempts
    assert (job.state, attempt.cause) == (State.TIMEOUT, Cause.TIME)
    assert attempt.started_at is not None and attempt.ended_at is not None
    assert 2 * HOUR <= attempt.ended_at - attempt.started_at < 2 * HOUR + SLACK


@JUMPS
def test_a_delay_and_a_grace_period_end_when_their_time_has_passed(hosts: Hosts, jump: int) -> None:
    stubborn = "trap '' TERM; : > up; while :; do sleep 0.02; done"
    trainer = TaskSpec("trainer", run="while [ ! -e up ]; do sleep 0.02; done")
    aux = TaskSpec("aux", run=stubborn, primary=False, termination_delay=HOUR, grace_period=HOUR)
    clock = Clock(hosts.work)
    launched = hosts.add(trainer, aux)
    hosts.start(launched.host, clock.code)
    launched.until("Notice")
    clock.jump(jump)
    launched.until("ClockSet")
    assert not launched.events("Terminate")
    clock.move(HOUR)
    launched.until("Terminate")
    clock.jump(0)
    launched.until("ClockSet", count=2)
    assert not launched.events("Kill")
    clock.move(2 * HOUR)
    job = hosts.finish(launched)
    assert (job.state, job.task("aux").attempts[0].signal) == (State.COMPLETED, signal.SIGKILL)


def test_a_cancel_in_a_delay_has_its_effect_after_the_clock_was_set_back(hosts: Hosts) -> None:
    clock = Clock(hosts.work)
    aux = TaskSpec("aux", run=FOREVER, primary=False, termination_delay=HOUR)
    launched = hosts.add(TaskSpec("trainer", run="exit 0"), aux)
    hosts.start(launched.host, clock.code)
    launched.until("Notice")
    clock.jump(-6 * HOUR)
    launched.order(events.Cancel(time.time() - 6 * HOUR))
    assert hosts.finish(launched).state is State.COMPLETED


def test_a_task_is_still_seen_to_start_and_become_ready_after_the_clock_was_set_back(hosts: Hosts) -> None:
    clock = Clock(hosts.work)
    server = TaskSpec("server", run=FOREVER, primary=False, ready=Ready(ReadyKind.FILE, "open", period=0.05))
    client = TaskSpec("client", run="exit 0", needs=(Need("server", NeedKind.READY),))
    launched = hosts.add(server, client)
    hosts.start(launched.host, clock.code)
    launched.until("Probed")
    clock.jump(-6 * HOUR)
    launched.until("ClockSet")
    (hosts.work / "open").touch()
    assert hosts.finish(launched).state is State.COMPLETED
