"""Late, repeated and senseless reports."""

from __future__ import annotations

import pytest
from tests.unit.lifecycle.world import World, auxiliary, group, primary, without_late

from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event
from overspan.bridge.model.spec import RestartScope, RetryPolicy
from overspan.bridge.model.states import State

SENSELESS: list[Event] = [
    events.NodeStarted(1.0, "nobody", 0, 0),
    events.NodeStarted(1.0, "trainer", 0, 5),
    events.NodeStarted(1.0, "trainer", 0, -1),
    events.NodeStarted(1.0, "trainer", 1, 0),
    events.NodeStarted(1.0, "trainer", 0, 0, 1),
    events.NodeStarted(1.0, "trainer", 0, 0),
    events.NodeEnded(1.0, "trainer", 3, 0),
    events.NodeEnded(1.0, "trainer", 0, 0, 2),
    events.TaskReady(1.0, "nobody", 0),
    events.TaskReady(1.0, "trainer", 1),
    events.LaunchLost(1.0, 3, "node"),
    events.Launch(1.0, "trainer", 0),
    events.Launch(1.0, "trainer", 1),
    events.Launch(1.0, "nobody", 0),
    events.NodeRelaunch(1.0, "server", 0, 0, 1),
    events.NodeRelaunch(1.0, "server", 0, 9, 1),
    events.NodeRelaunch(1.0, "server", 0, -9, 1),
    events.NodeRelaunch(1.0, "nobody", 0, 0, 1),
    events.Notice(1.0, "nobody", 2.0),
    events.Warn(1.0, "trainer", 7, 2.0),
    events.Terminate(1.0, "trainer", 7, "cancel", 2.0),
    events.Terminate(1.0, "trainer", 0, "nonsense", 2.0),
    events.Kill(1.0, "trainer", 0),
    events.Kill(1.0, "nobody", 0),
    events.HoldOver(1.0),
]


@pytest.mark.parametrize("event", SENSELESS, ids=str)
def test_a_senseless_event_changes_only_the_counter(event: Event) -> None:
    spec = group(primary(), auxiliary(num_nodes=2, restart=RestartScope.NODE))
    world = World(spec).run()
    before = world.job
    assert not world.apply(event)
    assert world.job.late == before.late + 1
    assert without_late(world.job) == without_late(before)


@pytest.mark.parametrize("number", [-1, 0, 2])
def test_a_launch_of_another_attempt_than_the_next_is_late(number: int) -> None:
    world = World(group(primary(retry=RetryPolicy(max_restarts_on_errors=1)))).run()
    world.end("trainer", 1)
    assert not world.apply(events.Launch(world.now, "trainer", number))
    assert world.apply(events.Launch(world.now, "trainer", 1))


def test_the_last_start_may_be_reported_after_an_end() -> None:
    """The end of a node closes it; its start is late then."""
    world = World(group(primary(num_nodes=2)))
    world.grant()
    world.end("trainer", node=0)
    assert not world.apply(events.NodeStarted(world.now, "trainer", 0, 0))
    world.end("trainer", node=1)
    assert world.job.state is State.COMPLETED


def test_ends_and_starts_in_another_order_than_they_happened() -> None:
    world = World(group(primary(num_nodes=2), auxiliary()))
    world.grant()
    for node, at in ((1, 1005.0), (0, 1002.0)):
        world.apply(events.NodeStarted(at, "trainer", 0, node))
    assert world.attempt("trainer").started_at == 1005.0
    for node, at in ((1, 1020.0), (0, 1010.0)):
        world.apply(events.NodeEnded(at, "trainer", 0, node))
    assert world.attempt("trainer").ended_at == world.task("trainer").ended_at == 1020.0
    world.now = 1030.0
    world.decide()
    world.apply(events.NodeEnded(1015.0, "server", 0, 0))
    assert world.job.ended_at == 1020.0


def test_a_start_after_the_stop_leaves_the_state() -> None:
    world = World(group(primary()))
    world.grant()
    world.order(events.Cancel(world.now))
    assert world.apply(events.NodeStarted(world.now, "trainer", 0, 0))
    assert world.states() == "COMPLETING/None trainer=COMPLETING/None"
    assert world.attempt("trainer").started_at == world.now


@pytest.mark.parametrize(
    ("code", "signal", "expected"), [(0, 0, Cause.NODE), (3, 0, Cause.EXIT), (0, 11, Cause.SIGNAL)]
)
def test_an_unknown_cause_is_never_success(code: int, signal: int, expected: Cause) -> None:
    world = World(group(primary(retry=RetryPolicy(max_recoveries=0)))).run()
    world.end("trainer", code, signal=signal, cause="solar_flare")
    assert world.attempt("trainer").cause is expected
    assert world.job.state.terminal and world.job.state is not State.COMPLETED


def test_the_partition_is_the_one_that_the_cluster_told_last_of_this_launch() -> None:
    world = World(group(primary()))
    assert world.apply(events.Queued(world.now, "Priority", partition="main")) and world.job.partition == "main"
    world.apply(events.Queued(world.now, "Resources"))
    assert world.job.partition == "main"
    members = (("trainer", 0, "n1", "", ()),)
    world.apply(events.Granted(world.now, members))
    assert world.job.partition == "main"


def test_a_grant_tells_the_partition_too() -> None:
    world = World(group(primary()))
    world.apply(events.Granted(world.now, (("trainer", 0, "n1", "", ()),), "short"))
    assert world.job.partition == "short"
