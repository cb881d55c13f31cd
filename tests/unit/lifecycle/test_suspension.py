"""Jobs that are stopped for a while, and jobs whose resources another one needs more."""

from __future__ import annotations

import pytest
from tests.unit.lifecycle.world import World, auxiliary, causes, group, kinds, primary

from overspan.bridge.lifecycle.timeline import describe
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.spec import RetryPolicy, TaskSpec
from overspan.bridge.model.states import State


def test_a_suspended_job_and_its_tasks_say_so_and_go_on() -> None:
    world = World(group(primary(), auxiliary())).run()
    world.order(events.Suspend(world.now))
    assert world.states() == "SUSPENDED/None trainer=SUSPENDED/None server=SUSPENDED/None"
    assert world.attempt("trainer").state is State.SUSPENDED
    world.now += 5
    world.order(events.Resume(world.now))
    assert world.states() == "RUNNING/None trainer=RUNNING/None server=RUNNING/None"
    assert (world.job.suspended, world.job.suspended_at) == (5.0, None)
    assert world.replayed() == world.job


def test_only_a_running_job_is_suspended_and_only_a_suspended_one_resumed() -> None:
    world = World(group(primary()))
    assert not world.apply(events.Suspend(world.now))
    world.run()
    assert not world.apply(events.Resume(world.now))
    world.order(events.Suspend(world.now))
    assert not world.apply(events.Suspend(world.now))
    world.order(events.Cancel(world.now))
    assert not world.apply(events.Resume(world.now))
    assert not World(group(primary())).run().apply(events.Resume(0.0))


def test_wall_time_stands_still_while_suspended() -> None:
    world = World(group(primary(time=100))).run()
    world.advance(60)
    world.order(events.Suspend(world.now))
    assert kinds(world.advance(1000)) == []
    world.order(events.Resume(world.now))
    assert "Terminate trainer" not in kinds(world.advance(39))
    assert causes(world.advance(1)) == {"trainer": "time"}
    assert world.attempt("trainer").suspended == 1000.0


def test_each_attempt_counts_its_own_suspension() -> None:
    world = World(group(primary(time=100), retry_free())).run()
    world.order(events.Suspend(world.now))
    world.now += 10
    world.end("helper", 1)
    assert world.task("helper").state is State.PENDING
    assert kinds(world.advance(1000)) == [], "nothing starts while the job is suspended"
    assert "Launch helper" in kinds(world.order(events.Resume(world.now)))
    world.begin()
    assert world.attempt("helper").suspended == 0.0
    assert world.task("helper").attempts[0].suspended == 0.0
    assert world.attempt("trainer").suspended == world.job.suspended == 1010.0


def retry_free() -> TaskSpec:
    return auxiliary("helper", retry=RetryPolicy(max_restarts_on_errors=3))


def test_a_suspended_job_can_be_cancelled() -> None:
    world = World(group(primary(grace_period=7))).run()
    world.order(events.Suspend(world.now))
    world.now += 3
    made = world.order(events.Cancel(world.now))
    assert causes(made) == {"trainer": "cancel"}
    assert (world.job.state, world.job.suspended) == (State.COMPLETING, 3.0)
    assert kinds(world.advance(7)) == ["Kill trainer"]
    world.end("trainer", signal=9)
    assert world.job.state is State.CANCELLED
    assert world.replayed() == world.job


def test_a_suspended_job_can_be_requeued_and_begins_anew() -> None:
    world = World(group(primary(time=50))).run()
    world.order(events.Suspend(world.now))
    world.order(events.Requeue(world.now))
    world.stop_all()
    assert (world.job.state, world.job.suspended, world.job.suspended_at) == (State.PENDING, 0.0, None)


def test_what_dies_while_suspended_ends_the_job() -> None:
    world = World(group(primary())).run()
    world.order(events.Suspend(world.now))
    world.end("trainer", signal=9)
    assert (world.job.state, world.job.suspended_at) == (State.FAILED, None)


def test_a_lost_launch_ends_the_suspension() -> None:
    world = World(group(primary(retry=RetryPolicy(max_recoveries=1)))).run()
    world.order(events.Suspend(world.now))
    world.apply(events.LaunchLost(world.now, 0, Cause.NODE.value))
    assert (world.job.state, world.job.suspended_at) == (State.PENDING, None)


def test_a_resumed_job_between_two_attempts_waits_for_the_next() -> None:
    world = World(group(primary(retry=RetryPolicy(max_restarts_on_errors=1)))).run()
    world.order(events.Suspend(world.now))
    world.end("trainer", 1)
    assert world.job.state is State.SUSPENDED
    world.order(events.Resume(world.now))
    assert world.states() == "PENDING/BeginTime trainer=PENDING/BeginTime"


# --- preemption -------------------------------------------------------------------------------------------------------


def test_a_preempted_job_goes_back_into_the_queue_at_nobodys_cost() -> None:
    world = World(group(primary(grace_period=30), auxiliary(termination_delay=60))).run()
    made = world.order(events.Preempt(world.now, True, 4, "job 12"))
    assert causes(made) == {"trainer": "preemption", "server": "preemption"}
    assert all(event.kill_at == world.now + 4 for event in made if isinstance(event, events.Terminate))
    world.stop_all()
    assert (world.job.state, world.job.launch, world.task("trainer").recoveries) == (State.PENDING, 1, 0)
    assert [attempt.state for attempt in world.task("trainer").attempts] == [State.PREEMPTED]
    assert any(row.text == "PREEMPTED by job 12" for row in world.rows)
    world.run()
    assert len(world.task("trainer").attempts) == 2
    assert world.replayed() == world.job


@pytest.mark.parametrize(("requeue", "allowed"), [(False, None), (True, False)])
def test_a_preempted_job_that_may_not_come_back_ends_preempted(requeue: bool, allowed: bool | None) -> None:
    world = World(group(primary(grace_period=9), requeue=allowed)).run()
    made = world.order(events.Preempt(world.now, requeue))
    assert [event.kill_at - event.at for event in made if isinstance(event, events.Terminate)] == [9.0]
    world.stop_all()
    assert world.states() == "PREEMPTED/Preempted trainer=PREEMPTED/Preempted"


def test_nobody_is_preempted_twice_or_without_resources() -> None:
    world = World(group(primary()))
    assert not world.apply(events.Preempt(world.now))
    world.run()
    world.order(events.Preempt(world.now))
    assert not world.apply(events.Preempt(world.now))
    assert describe(events.Preempt(0.0)) == "PREEMPTED"


def test_a_cancel_beats_a_preemption() -> None:
    world = World(group(primary())).run()
    world.order(events.Preempt(world.now))
    world.order(events.Cancel(world.now))
    world.stop_all()
    assert world.job.state is State.CANCELLED
