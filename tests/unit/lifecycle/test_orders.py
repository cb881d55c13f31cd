"""What people may do: hold, release, cancel, requeue, restart, signal, change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.lifecycle.world import World, auxiliary, causes, group, kinds, primary

from overspan.bridge.lifecycle.eligibility import judge
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.spec import RestartScope, RetryPolicy
from overspan.bridge.model.states import State

RETRY = RetryPolicy(max_restarts_on_errors=3)


# --- hold and release ------------------------------------------------------------------------------------------------


def test_a_held_job_waits_for_its_release() -> None:
    world = World(group(primary(), hold=True))
    assert judge(world.job, world.now) == (False, "JobHeldUser", None)
    world.order(events.Release(world.now))
    assert judge(world.job, world.now).now
    world.order(events.Hold(world.now, by_admin=True))
    assert judge(world.job, world.now) == (False, "JobHeldAdmin", None)


def test_a_user_s_hold_does_not_soften_an_administrator_s() -> None:
    world = World(group(primary()))
    world.order(events.Hold(world.now, by_admin=True))
    world.order(events.Hold(world.now))
    assert world.job.reason == "JobHeldAdmin"


def test_a_held_job_keeps_its_reason() -> None:
    world = World(group(primary(), hold=True))
    assert not world.apply(events.Queued(world.now, "Resources"))
    assert world.job.reason == "JobHeldUser"


@pytest.mark.parametrize("order", [events.Hold(1000.0), events.Release(1000.0)])
def test_a_running_job_is_neither_held_nor_released(order: events.Order) -> None:
    world = World(group(primary())).run()
    assert not world.apply(order)


def test_begin_is_a_time_to_wait_for() -> None:
    world = World(group(primary(), begin=2000.0))
    assert judge(world.job, 1999.0) == (False, "BeginTime", 2000.0)
    assert judge(world.job, 2000.0) == (True, "None", None)


def test_the_cluster_s_reason_is_shown_while_waiting() -> None:
    world = World(group(primary()))
    world.order(events.Queued(world.now, "Priority"))
    assert (world.job.state, world.job.reason) == (State.PENDING, "Priority")
    world.grant()
    assert not world.apply(events.Queued(world.now, "Resources")), "it has its resources"
    assert world.job.reason == "None"


def test_a_job_that_is_granted_or_over_is_not_submitted() -> None:
    world = World(group(primary(retry=RETRY))).run()
    assert not judge(world.job, world.now).now
    world.end("trainer", 1)
    assert world.job.state is State.PENDING
    assert not judge(world.job, world.now).now
    world.order(events.Cancel(world.now))
    assert not judge(world.job, world.now).now


# --- cancel ----------------------------------------------------------------------------------------------------------


def test_a_waiting_job_is_cancelled_at_once() -> None:
    world = World(group(primary(), auxiliary(), hold=True))
    world.order(events.Cancel(world.now, by="ann"))
    assert world.states() == "CANCELLED/None trainer=CANCELLED/None server=CANCELLED/None"
    assert world.job.ending is not None and world.job.ending.by == "ann"
    assert not world.apply(events.Cancel(world.now))


def test_a_running_job_is_cancelled_without_delays() -> None:
    world = World(group(primary(), auxiliary(termination_delay=60))).run()
    assert causes(world.order(events.Cancel(world.now))) == {"trainer": "cancel", "server": "cancel"}
    assert world.job.state is State.COMPLETING
    assert not world.apply(events.Cancel(world.now)), "again, while it ends"
    world.stop_all()
    assert world.states() == "CANCELLED/None trainer=CANCELLED/None server=CANCELLED/None"
    assert (world.job.exit_code, world.job.signal) == (0, 0)
    assert (world.attempt("trainer").signal, world.attempt("trainer").cause) == (15, Cause.CANCEL)


@pytest.mark.parametrize("code", [0, 1, 130])
def test_a_cancelled_program_may_end_as_it_likes(code: int) -> None:
    world = World(group(primary(retry=RETRY))).run()
    world.order(events.Cancel(world.now))
    world.now += 1
    world.end("trainer", code)
    assert world.states() == "CANCELLED/None trainer=CANCELLED/None"
    assert world.attempt("trainer").exit_code == code


def test_a_job_between_attempts_is_cancelled_at_once() -> None:
    world = World(group(primary(retry=RETRY))).run()
    world.end("trainer", 1)
    world.order(events.Cancel(world.now))
    assert world.states() == "CANCELLED/None trainer=CANCELLED/None"
    assert world.advance(1000) == []


def test_a_cancel_during_the_delay_only_ends_the_wait() -> None:
    world = World(group(primary(), auxiliary(termination_delay=600))).run()
    world.end("trainer")
    assert causes(world.order(events.Cancel(world.now))) == {"server": "primaries_done"}
    world.stop_all()
    assert world.states() == "COMPLETED/None trainer=COMPLETED/None server=COMPLETED/PrimariesDone"


def test_a_cancel_while_the_job_fails_changes_nothing_of_the_outcome() -> None:
    world = World(group(primary(), auxiliary())).run()
    world.end("trainer", 3)
    assert world.job.state is State.COMPLETING
    assert world.order(events.Cancel(world.now)) == []
    world.stop_all()
    assert (world.job.state, world.job.exit_code) == (State.FAILED, 3)


def test_a_cancelled_primary_ends_the_job_as_cancelled() -> None:
    world = World(group(primary(), primary("actor"), auxiliary())).run()
    assert causes(world.order(events.Cancel(world.now, "trainer"))) == {"trainer": "cancel"}
    world.stop_all()
    world.stop_all()
    assert world.states() == (
        "CANCELLED/None trainer=CANCELLED/None actor=CANCELLED/PrimaryFailed server=CANCELLED/PrimaryFailed"
    )
    assert (world.job.exit_code, world.job.signal) == (0, 0)


def test_a_cancelled_auxiliary_ends_alone() -> None:
    world = World(group(primary(), auxiliary(retry=RETRY))).run()
    assert causes(world.order(events.Cancel(world.now, "server"))) == {"server": "cancel"}
    assert not world.apply(events.Cancel(world.now, "server"))
    world.stop_all()
    assert world.states() == "RUNNING/None trainer=RUNNING/None server=CANCELLED/None"
    assert not world.apply(events.Cancel(world.now, "server"))
    assert not world.apply(events.Cancel(world.now, "nobody"))


def test_an_auxiliary_can_be_cancelled_in_its_delay_and_while_its_job_is_kept() -> None:
    world = World(group(primary(), auxiliary(termination_delay=600))).run()
    world.end("trainer")
    assert causes(world.order(events.Cancel(world.now, "server"))) == {"server": "cancel"}
    world.stop_all()
    assert world.states() == "COMPLETED/None trainer=COMPLETED/None server=CANCELLED/None"
    world = World(group(primary(), auxiliary(), hold_on_failure=600)).run()
    world.end("trainer", 1)
    assert causes(world.order(events.Cancel(world.now, "server"))) == {"server": "cancel"}


def test_a_waiting_task_is_cancelled_at_once() -> None:
    world = World(group(primary(), auxiliary(retry=RETRY))).run()
    world.end("server", 1)
    world.order(events.Cancel(world.now, "server"))
    assert world.task("server").state is State.CANCELLED
    assert world.advance(1000) == []


def _fails_first(world: World) -> None:
    world.apply(events.Cancel(world.now, "server"))
    world.end("server", 1)


def _is_ended_for_a_failed_node(world: World) -> None:
    world.end("server", 1, node=0)
    world.order(events.Cancel(world.now, "server"))
    world.stop_all()


def _is_ended_for_a_restart(world: World) -> None:
    world.order(events.Restart(world.now, "server"))
    world.order(events.Cancel(world.now, "server"))
    world.stop_all()


def _is_ended_with_its_group(world: World) -> None:
    world.apply(events.Cancel(world.now, "server"))
    world.end("trainer", cause=Cause.NODE.value)
    world.stop_all()


@pytest.mark.parametrize(
    "meanwhile", [_fails_first, _is_ended_for_a_failed_node, _is_ended_for_a_restart, _is_ended_with_its_group]
)
def test_a_task_s_cancel_is_never_forgotten(meanwhile: Callable[[World], None]) -> None:
    tasks = (primary(retry=RETRY), auxiliary(retry=RETRY, num_nodes=2))
    world = World(group(*tasks, restart=RestartScope.GROUP)).run()
    meanwhile(world)
    world.advance(1000)
    assert (world.task("server").state, world.task("server").reason) == (State.CANCELLED, "None")
    assert len(world.task("server").attempts) == 1


# --- requeue ---------------------------------------------------------------------------------------------------------


def test_a_running_job_goes_back_into_the_queue() -> None:
    world = World(group(primary(retry=RETRY), auxiliary(termination_delay=60))).run()
    world.end("trainer", 1)
    world.advance(10)
    world.begin()
    assert causes(world.order(events.Requeue(world.now))) == {"trainer": "requeue", "server": "requeue"}
    assert world.job.state is State.COMPLETING
    assert not world.apply(events.Requeue(world.now)), "again, while it ends"
    world.stop_all()
    assert world.states() == "PENDING/None trainer=PENDING/None server=PENDING/None"
    assert (world.job.launch, world.job.granted_at, world.job.placements) == (1, None, ())
    assert (world.job.started_at, world.job.ended_at, world.job.ending) == (None, None, None)
    assert judge(world.job, world.now).now
    world.run()
    assert (world.attempt("trainer").number, world.attempt("server").number) == (2, 1)
    assert (world.task("trainer").errors, world.task("trainer").restarts) == (1, 1), "counters are kept"


def test_a_requeue_takes_whatever_the_programs_answer() -> None:
    world = World(group(primary(), auxiliary())).run()
    world.order(events.Requeue(world.now))
    world.now += 1
    world.end("trainer", 0)
    world.end("server", 3)
    assert world.job.state is State.PENDING
    assert world.job.launch == 1


def test_a_finished_job_is_requeued() -> None:
    world = World(group(primary())).run()
    world.end("trainer", 3)
    world.order(events.Requeue(world.now))
    assert world.states() == "PENDING/None trainer=PENDING/None"
    assert (world.job.launch, world.job.exit_code, world.job.ended_at) == (1, 0, None)
    world.run()
    world.end("trainer")
    assert world.job.state is State.COMPLETED


def test_a_requeued_job_is_told_of_its_end_again() -> None:
    world = World(group(primary(), auxiliary(termination_delay=5))).run()
    for _ in range(2):
        assert kinds(world.end("trainer")) == ["Notice server"]
        world.advance(5)
        world.stop_all()
        assert world.job.state is State.COMPLETED
        world.order(events.Requeue(world.now))
        world.run()


def test_a_requeued_job_can_be_held() -> None:
    for running in (True, False):
        world = World(group(primary())).run()
        if not running:
            world.end("trainer")
        world.order(events.Requeue(world.now, hold=True))
        world.stop_all()
        assert (world.job.state, world.job.reason) == (State.PENDING, "JobHeldUser")
        assert not judge(world.job, world.now).now
        world.order(events.Release(world.now))
        assert judge(world.job, world.now).now


def test_a_held_requeue_can_be_released_before_it_is_done() -> None:
    world = World(group(primary())).run()
    world.order(events.Requeue(world.now, hold=True))
    world.order(events.Release(world.now))
    world.stop_all()
    assert judge(world.job, world.now).now


def test_a_job_between_attempts_is_requeued_at_once() -> None:
    world = World(group(primary(retry=RETRY))).run()
    world.end("trainer", 1)
    world.order(events.Requeue(world.now))
    assert (world.job.state, world.job.launch, world.task("trainer").next_start) == (State.PENDING, 1, None)


def test_a_cancel_overtakes_a_requeue() -> None:
    world = World(group(primary(), auxiliary())).run()
    world.order(events.Requeue(world.now, hold=True))
    world.order(events.Cancel(world.now))
    world.stop_all()
    assert world.states() == "CANCELLED/None trainer=CANCELLED/None server=CANCELLED/None"
    assert not world.job.requeue_held


def test_a_waiting_or_ending_job_is_not_requeued() -> None:
    world = World(group(primary()))
    assert not world.apply(events.Requeue(world.now))
    world.run()
    world.order(events.Cancel(world.now))
    assert not world.apply(events.Requeue(world.now))


def test_reports_of_an_older_launch_are_late() -> None:
    world = World(group(primary())).run()
    world.order(events.Requeue(world.now))
    world.stop_all()
    world.run()
    assert not world.apply(events.NodeEnded(world.now, "trainer", 0, 0, exit_code=1))
    assert not world.apply(events.LaunchLost(world.now, 0, "node"))
    assert world.job.state is State.RUNNING


# --- restart ---------------------------------------------------------------------------------------------------------


def test_one_task_restarts_in_place_and_at_no_cost() -> None:
    world = World(group(primary(), auxiliary())).run()
    assert causes(world.order(events.Restart(world.now, "server"))) == {"server": "restart"}
    assert world.job.state is State.RUNNING
    assert kinds(world.stop_all()) == ["Launch server"]
    world.begin()
    assert world.states() == "RUNNING/None trainer=RUNNING/None server=RUNNING/None"
    task = world.task("server")
    assert (world.attempt("server").number, task.errors, task.recoveries, task.restarts) == (1, 0, 0, 0)
    assert world.job.launch == 0


def test_all_tasks_restart_together() -> None:
    world = World(group(primary(), primary("actor"), auxiliary())).run()
    world.end("actor")
    assert len(causes(world.order(events.Restart(world.now)))) == 2
    world.now += 1
    assert world.end("trainer", signal=15) == []
    assert kinds(world.end("server", signal=15)) == ["Launch trainer", "Launch actor", "Launch server"]


def test_a_task_that_is_over_or_waits_starts_at_once() -> None:
    world = World(group(primary(), auxiliary("a"), auxiliary("b", retry=RETRY))).run()
    world.end("a", 1)
    world.end("b", 1)
    assert kinds(world.order(events.Restart(world.now, "a"))) == ["Launch a"]
    assert kinds(world.order(events.Restart(world.now, "b"))) == ["Launch b"]


def test_a_failure_before_the_restart_reaches_it_costs_nothing() -> None:
    world = World(group(primary())).run()
    world.apply(events.Restart(world.now, "trainer"))
    assert kinds(world.end("trainer", 1)) == ["Launch trainer"]
    assert world.task("trainer").errors == 0


def test_a_job_that_ends_meanwhile_is_not_restarted() -> None:
    world = World(group(primary(), auxiliary())).run()
    world.order(events.Restart(world.now, "server"))
    world.end("trainer")
    world.stop_all()
    assert world.states() == "COMPLETED/None trainer=COMPLETED/None server=COMPLETED/PrimariesDone"


def test_a_restart_is_for_jobs_that_have_their_nodes() -> None:
    world = World(group(primary()))
    assert not world.apply(events.Restart(world.now))
    world.run()
    assert not world.apply(events.Restart(world.now, "nobody"))
    world.order(events.Cancel(world.now))
    assert not world.apply(events.Restart(world.now))


# --- signals and priority --------------------------------------------------------------------------------------------


def test_a_signal_is_an_event_that_changes_no_state() -> None:
    world = World(group(primary())).run()
    before = world.job
    assert world.order(events.Signal(world.now, 10)) == []
    assert world.job == before
    assert not world.apply(events.Signal(world.now, 10, "nobody"))
    world.end("trainer")
    assert not world.apply(events.Signal(world.now, 10))


def test_the_priority_of_a_job_that_is_not_over() -> None:
    world = World(group(primary(), priority=5))
    world.order(events.SetPriority(world.now, 9))
    assert world.job.priority == 9
    world.order(events.Cancel(world.now))
    assert not world.apply(events.SetPriority(world.now, 1))
