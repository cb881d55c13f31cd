"""The rows that people read."""

from __future__ import annotations

import pytest
from tests.unit.lifecycle.world import World, auxiliary, group, lost, primary

from overspan.bridge.lifecycle.timeline import Transition, describe
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import EVENTS, Event
from overspan.bridge.model.spec import Backoff, Need, NeedKind, RetryPolicy


def _read(rows: list[Transition]) -> list[str]:
    return [f"{row.task or 'job'} {row.start}>{row.end} {row.reason} {row.cause}: {row.text}" for row in rows]


def test_a_served_job_from_grant_to_end() -> None:
    world = World(group(primary(), auxiliary(termination_delay=5))).run()
    world.now += 60
    world.end("trainer")
    world.advance(5)
    world.advance(30)
    world.end("server", signal=9)
    assert _read(world.rows) == [
        "job PENDING>CONFIGURING None Granted: resources granted on 1 node(s)",
        "trainer PENDING>CONFIGURING None Launch: attempt 0",
        "server PENDING>CONFIGURING None Launch: attempt 0",
        "trainer CONFIGURING>RUNNING None NodeStarted: node 0 started",
        "job CONFIGURING>RUNNING None NodeStarted: trainer: node 0 started",
        "server CONFIGURING>RUNNING None NodeStarted: node 0 started",
        "trainer RUNNING>COMPLETED None NodeEnded: node 0 ended with exit code 0",
        "job RUNNING>COMPLETING None NodeEnded: trainer: node 0 ended with exit code 0",
        "server > None Notice: told that the primaries are done",
        "server RUNNING>COMPLETING None Terminate: TERM sent (primaries_done), KILL in 30 s",
        "server > None Kill: KILL sent, the grace period is over",
        "server COMPLETING>COMPLETED PrimariesDone NodeEnded: node 0 ended with signal 9",
        "job COMPLETING>COMPLETED None NodeEnded: server: node 0 ended with signal 9",
    ]


def test_a_retry_tells_its_next_time() -> None:
    retry = RetryPolicy(max_restarts_on_errors=1, backoff=Backoff(first=10, jitter=0))
    world = World(group(primary(retry=retry))).run()
    world.rows.clear()
    world.end("trainer", 2, detail="no such file")
    assert _read(world.rows) == [
        "trainer RUNNING>PENDING BeginTime NodeEnded: node 0 ended with exit code 2: no such file; "
        "next attempt in 10.0 s",
        "job RUNNING>PENDING BeginTime NodeEnded: node 0 ended with exit code 2: no such file",
    ]


def test_orders_name_who_gave_them() -> None:
    world = World(group(primary(), auxiliary())).run()
    world.rows.clear()
    world.order(events.Signal(world.now, 10, by="ann"))
    world.order(events.Cancel(world.now, "server", by="ann"))
    assert _read(world.rows) == [
        "job > None Signal: signal by ann",
        "server > None Cancel: cancel by ann",
        "server RUNNING>COMPLETING None Terminate: TERM sent (cancel), KILL in 30 s",
    ]


def test_a_hold_is_a_change_of_reason() -> None:
    world = World(group(primary()))
    world.order(events.Hold(world.now, by="ann"))
    world.order(events.Hold(world.now, by="ann"))
    assert _read(world.rows) == [
        "job PENDING>PENDING JobHeldUser Hold: hold by ann",
        "job > JobHeldUser Hold: hold by ann",
    ]


def test_a_loss_tells_its_detail() -> None:
    world = World(group(primary())).run()
    world.rows.clear()
    world.order(lost(world, Cause.NODE, "node n1 is down"))
    assert _read(world.rows) == [
        "trainer RUNNING>PENDING None LaunchLost: node n1 is down",
        "job RUNNING>PENDING BeginTime LaunchLost: node n1 is down",
    ]


@pytest.mark.parametrize(
    ("code", "signal", "cause", "words"),
    [
        (0, 0, Cause.NODE, "node 1 is lost: its shim was killed"),
        (0, 9, Cause.NODE, "node 1 ended with signal 9: its shim was killed"),
        (0, 53, Cause.LAUNCH, "node 1 could not start: its shim was killed"),
        (3, 0, Cause.EXIT, "node 1 ended with exit code 3: its shim was killed"),
    ],
)
def test_an_end_that_nobody_saw_has_no_exit_code(code: int, signal: int, cause: Cause, words: str) -> None:
    assert describe(events.NodeEnded(1.0, "a", 0, 1, 0, code, signal, cause.value, "its shim was killed")) == words


def test_what_another_task_s_end_does_to_a_task_names_that_other() -> None:
    world = World(group(auxiliary("s"), primary("t", needs=(Need("s", NeedKind.READY),)))).run()
    world.rows.clear()
    world.end("s", 1)
    ended = "node 0 ended with exit code 1"
    assert _read(world.rows) == [
        f"s RUNNING>FAILED NonZeroExitCode NodeEnded: {ended}",
        f"t PENDING>CANCELLED DependencyNeverSatisfied NodeEnded: s: {ended}",
        f"job RUNNING>FAILED AuxiliaryFailed NodeEnded: s: {ended}",
    ]


def test_late_reports_leave_no_row() -> None:
    world = World(group(primary())).run()
    world.rows.clear()
    for event in (events.Granted(1.0, ()), events.LaunchLost(1.0, 4, "node"), events.Release(1.0)):
        world.apply(event)
    assert world.rows == []


_SAMPLES: dict[str, object] = {
    "at": 1.0,
    "task": "a",
    "cause": "node",
    "members": (),
    "kill_at": 2.0,
    "message": "no",
    "detail": "gone",
    "answer": "refused",
    "error": "the store does not answer",
}


@pytest.mark.parametrize("kind", list(EVENTS.values()), ids=list(EVENTS))
def test_every_event_has_words(kind: type) -> None:
    fields = {name: _SAMPLES.get(name, 1) for name in kind._fields}  # type: ignore[attr-defined]
    event: Event = kind(**fields)
    words = describe(event)
    assert words and "None" not in words
    assert words != kind.__name__


def test_a_member_that_is_started_anew_elsewhere_has_given_its_node_back() -> None:
    world = World(group(primary())).run()
    world.rows.clear()
    task = world.job.tasks[0].name
    world.apply(events.Granted(1.0, ((task, 0, "", "", ()),)))
    assert [row.text for row in world.rows] == ["other nodes are asked for"]
