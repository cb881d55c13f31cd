"""A launch that the cluster refuses, or no longer knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.lifecycle.world import World, auxiliary, group, kinds, lost, primary

from overspan.bridge.lifecycle.eligibility import judge
from overspan.bridge.model import events
from overspan.bridge.model.causes import CONSEQUENCES, Cause, Charge
from overspan.bridge.model.spec import Need, NeedKind, RestartScope, RetryPolicy
from overspan.bridge.model.states import State

RETRY = RetryPolicy(max_restarts_on_errors=3)
RECOVERED = [cause for cause, row in CONSEQUENCES.items() if row.charge is Charge.RECOVERIES]


def _waiting() -> World:
    return World(group(primary(retry=RETRY), auxiliary(termination_delay=60), hold_on_failure=600))


def _granted() -> World:
    world = _waiting()
    world.grant()
    return world


def _running() -> World:
    return _waiting().run()


def _between() -> World:
    world = _running()
    world.end("trainer", 1)
    return world


def _cancelling() -> World:
    world = _running()
    world.order(events.Cancel(world.now))
    return world


def _requeueing() -> World:
    world = _running()
    world.order(events.Requeue(world.now))
    return world


def _delayed() -> World:
    world = _running()
    world.end("trainer")
    return world


def _kept() -> World:
    world = _running()
    for _ in range(3):
        world.end("trainer", 1)
        world.advance(100)
    world.end("trainer", 1)
    assert world.job.reason == "HeldOnFailure"
    return world


PHASES = [_waiting, _granted, _running, _between, _cancelling, _requeueing, _delayed, _kept]


@pytest.mark.parametrize("cause", list(Cause))
@pytest.mark.parametrize("phase", PHASES)
def test_a_lost_launch_leaves_nothing_live(phase: Callable[[], World], cause: Cause) -> None:
    world = phase()
    before = world.job
    world.order(lost(world, cause, "gone"))
    job = world.job
    assert not any(task.live for task in job.tasks)
    assert job.over or (job.state is State.PENDING and job.launch == before.launch + 1)
    assert world.replayed() == job
    if phase is _cancelling:
        assert job.state is State.CANCELLED
    elif phase is _requeueing:
        assert job.state is State.PENDING
    elif phase is _delayed:
        assert job.state is State.COMPLETED
    elif phase is _kept:
        assert (job.state, job.exit_code) == (State.FAILED, 1)
    elif cause in (*RECOVERED, Cause.REQUEUE):
        assert job.state is State.PENDING
    else:
        assert (job.state, job.reason) == (CONSEQUENCES[cause].state, CONSEQUENCES[cause].reason)


@pytest.mark.parametrize("cause", RECOVERED)
def test_a_lost_launch_is_submitted_again_on_the_infrastructure_s_budget(cause: Cause) -> None:
    world = _running()
    world.order(lost(world, cause, "node n1 is down"))
    assert world.states() == "PENDING/BeginTime trainer=PENDING/None server=PENDING/None"
    assert [task.recoveries for task in world.job.tasks] == [1, 0]
    lost_attempt = world.attempt("server")
    assert (lost_attempt.state, lost_attempt.cause) == (CONSEQUENCES[cause].state, cause)
    assert lost_attempt.detail == "node n1 is down"
    begin = world.job.begin
    assert begin is not None and begin > world.now
    assert judge(world.job, world.now) == (False, "BeginTime", begin)
    assert judge(world.job, begin).now
    world.run()
    assert (world.attempt("trainer").number, world.attempt("server").number) == (1, 1)


def test_the_budget_of_lost_launches_ends() -> None:
    world = World(group(primary(retry=RetryPolicy(max_recoveries=1)), auxiliary())).run()
    world.order(lost(world, Cause.NODE))
    world.run()
    world.order(lost(world, Cause.NODE))
    assert world.states() == "NODE_FAIL/NodeDown trainer=NODE_FAIL/NodeDown server=NODE_FAIL/NodeDown"


def test_no_requeue_is_obeyed() -> None:
    world = World(group(primary(), requeue=False)).run()
    world.order(lost(world, Cause.NODE))
    assert world.job.state is State.NODE_FAIL


def test_a_task_that_a_person_cancelled_does_not_come_back() -> None:
    world = World(group(primary(), auxiliary("a"), auxiliary("b"), auxiliary("c"))).run()
    world.order(events.Cancel(world.now, "a"))
    world.stop_all()
    world.order(events.Cancel(world.now, "b"))
    world.order(lost(world, Cause.NODE))
    assert [task.state for task in world.job.tasks] == [
        State.PENDING,
        State.CANCELLED,
        State.CANCELLED,
        State.PENDING,
    ]
    assert kinds(world.grant()) == ["Launch trainer", "Launch c"]


def test_a_cancelled_primary_ends_the_job_although_its_launch_is_lost() -> None:
    world = World(group(primary(), primary("actor"))).run()
    world.order(events.Cancel(world.now, "trainer"))
    world.order(lost(world, Cause.NODE))
    assert world.job.state is State.CANCELLED


def test_a_cause_of_a_later_version_counts_as_a_lost_node() -> None:
    world = _running()
    world.order(events.LaunchLost(world.now, 0, "solar_flare"))
    assert world.task("trainer").recoveries == 1


def test_a_loss_is_of_one_launch() -> None:
    world = _running()
    report = lost(world, Cause.NODE)
    world.order(report)
    assert not world.apply(report)
    assert world.task("trainer").recoveries == 1


@pytest.mark.parametrize("phase", [_waiting, _between])
def test_a_launch_that_ended_well_unseen_is_complete(phase: Callable[[], World]) -> None:
    world = phase()
    world.order(lost(world, Cause.SUCCESS))
    assert world.job.state is State.COMPLETED
    assert world.task("trainer").state is State.COMPLETED


def test_a_refused_job_fails_before_it_starts() -> None:
    world = World(group(primary(), auxiliary()))
    world.order(events.Refused(world.now, "invalid partition"))
    assert world.states() == "FAILED/BadConstraints trainer=FAILED/BadConstraints server=FAILED/BadConstraints"
    assert world.job.exit_code == 0


def test_a_refusal_or_grant_after_the_grant_is_late() -> None:
    world = World(group(primary())).run()
    assert not world.apply(events.Refused(world.now, "x"))
    assert not world.apply(events.Granted(world.now, ()))
    world.end("trainer")
    assert not world.apply(events.Granted(world.now, ()))
    assert not world.apply(events.LaunchLost(world.now, 0, "node"))
    assert world.job.late == 4


def _second_stage(**fields: object) -> World:
    second = primary("second", needs=(Need("first", NeedKind.OK),))
    world = World(group(primary("first"), second, **fields)).run()
    world.end("first")
    world.advance(1)
    world.begin("second")
    return world


def test_a_lost_launch_does_not_repeat_what_has_succeeded() -> None:
    world = _second_stage()
    assert world.apply(lost(world, Cause.NODE))
    first, second = world.job.tasks
    assert (first.state, first.recoveries) == (State.COMPLETED, 0)
    assert (second.state, second.recoveries) == (State.PENDING, 1)


def test_a_group_that_restarts_together_repeats_all() -> None:
    world = _second_stage(restart=RestartScope.GROUP)
    assert world.apply(lost(world, Cause.NODE))
    assert [task.state for task in world.job.tasks] == [State.PENDING, State.PENDING]


def test_an_attempt_that_is_over_keeps_where_it_ran() -> None:
    world = World(group(primary(num_nodes=2, retry=RETRY))).run()
    world.apply(events.LaunchLost(world.now, 0, Cause.NODE.value))
    world.advance(3600)
    world.apply(events.Granted(world.now, (("trainer", 0, "m1", "", ()), ("trainer", 1, "", "", ()))))
    world.decide()
    world.begin()
    # A later grant may come before the end of what ran elsewhere is known, and behind it.
    world.apply(events.Granted(world.now, (("trainer", 1, "m3", "", ()),)))
    world.end("trainer", 1)
    world.apply(events.Granted(world.now, (("trainer", 0, "", "", ()),)))
    first, second = world.job.task("trainer").attempts[:2]
    assert [run.node for run in first.nodes] == ["n0", "n1"]
    assert [run.node for run in second.nodes] == ["m1", "m3"]
