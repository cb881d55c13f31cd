"""How a group ends: primaries, auxiliaries, notices, delays, TERM, grace and KILL."""

from __future__ import annotations

import pytest
from tests.unit.lifecycle.world import World, auxiliary, causes, group, kinds, lost, primary

from overspan.bridge.model import events
from overspan.bridge.model.causes import CONSEQUENCES, Cause
from overspan.bridge.model.spec import JobSpec, OnFailure, RestartScope, RetryPolicy
from overspan.bridge.model.states import State


def _served(delay: int = 0, **fields: int) -> World:
    return World(group(primary(), auxiliary(termination_delay=delay, grace_period=30), **fields)).run()


# --- all primaries done ----------------------------------------------------------------------------------------------


def test_a_single_job_completes() -> None:
    world = World(group(primary())).run()
    world.now = 1060.0
    world.end("trainer")
    assert world.states() == "COMPLETED/None trainer=COMPLETED/None"
    assert (world.job.exit_code, world.job.signal, world.job.ended_at) == (0, 0, 1060.0)


def test_the_job_goes_on_until_the_last_primary_is_done() -> None:
    world = World(group(primary(), primary("actor"), auxiliary())).run()
    assert world.end("trainer") == []
    assert world.states() == "RUNNING/None trainer=COMPLETED/None actor=RUNNING/None server=RUNNING/None"
    assert kinds(world.end("actor")) == ["Notice server", "Terminate server"]
    assert world.job.state is State.COMPLETING


def test_the_notice_comes_first_and_term_at_the_end_of_the_delay() -> None:
    world = _served(delay=20)
    made = world.end("trainer")
    assert made == [events.Notice(1000.0, "server", 1020.0)]
    assert world.wake_at == 1020.0
    assert world.task("server").state is State.RUNNING
    assert world.advance(19.9) == []
    assert world.advance(0.1) == [events.Terminate(1020.0, "server", 0, "primaries_done", 1050.0)]
    assert world.states() == "COMPLETING/None trainer=COMPLETED/None server=COMPLETING/None"


def test_kill_follows_the_grace_period_once() -> None:
    world = _served()
    world.end("trainer")
    assert world.wake_at == 1030.0
    assert world.advance(29) == []
    assert kinds(world.advance(1)) == ["Kill server"]
    assert world.advance(1000) == []
    world.end("server", signal=9)
    assert world.states() == "COMPLETED/None trainer=COMPLETED/None server=COMPLETED/PrimariesDone"


def test_each_auxiliary_has_its_own_delay() -> None:
    world = World(
        group(primary(), auxiliary("fast", termination_delay=2), auxiliary("slow", termination_delay=6))
    ).run()
    assert kinds(world.end("trainer")) == ["Notice fast", "Notice slow"]
    assert kinds(world.advance(4)) == ["Terminate fast"]
    assert world.task("slow").state is State.RUNNING
    assert kinds(world.advance(2)) == ["Terminate slow"]


@pytest.mark.parametrize("end", [{}, {"code": 1}, {"code": 143}, {"signal": 15}, {"signal": 9}])
def test_however_a_stopped_auxiliary_ends_all_is_well(end: dict[str, int]) -> None:
    world = _served()
    world.end("trainer")
    world.now += 1
    world.end("server", **end)
    assert world.states() == "COMPLETED/None trainer=COMPLETED/None server=COMPLETED/PrimariesDone"
    attempt = world.attempt("server")
    assert (attempt.exit_code, attempt.signal) == (end.get("code", 0), end.get("signal", 0))
    assert (world.job.exit_code, world.job.signal) == (0, 0)


@pytest.mark.parametrize(("code", "expected"), [(0, "COMPLETED/None"), (4, "FAILED/NonZeroExitCode")])
def test_an_auxiliary_that_ends_by_itself_in_its_delay_keeps_its_outcome(code: int, expected: str) -> None:
    world = _served(delay=20)
    world.end("trainer")
    world.now += 5
    world.end("server", code)
    assert world.states() == f"COMPLETED/None trainer=COMPLETED/None server={expected}"


def test_a_node_lost_in_the_delay_is_not_replaced() -> None:
    world = _served(delay=20)
    world.end("trainer")
    assert world.end("server", cause=Cause.NODE.value) == []
    assert world.states() == "COMPLETED/None trainer=COMPLETED/None server=NODE_FAIL/NodeDown"


def test_an_auxiliary_between_attempts_is_not_started_again() -> None:
    world = World(group(primary(), auxiliary(retry=RetryPolicy(max_restarts_on_errors=1)))).run()
    world.end("server", 1)
    world.end("trainer")
    assert world.states() == "COMPLETED/None trainer=COMPLETED/None server=CANCELLED/PrimariesDone"
    assert world.advance(100) == []


def test_the_delay_survives_a_replay() -> None:
    world = _served(delay=20)
    world.end("trainer")
    world.now += 5
    world.job = world.replayed()
    assert world.decide() == []
    assert world.wake_at == 1020.0


# --- a primary that fails --------------------------------------------------------------------------------------------


def test_the_first_failed_primary_ends_everything_at_once() -> None:
    world = World(group(primary(), primary("actor", termination_delay=60), auxiliary(termination_delay=60))).run()
    assert causes(world.end("trainer", 7)) == {"actor": "primary_failed", "server": "primary_failed"}
    world.stop_all()
    assert world.states() == (
        "FAILED/NonZeroExitCode trainer=FAILED/NonZeroExitCode actor=CANCELLED/PrimaryFailed "
        "server=CANCELLED/PrimaryFailed"
    )
    assert (world.job.exit_code, world.job.signal) == (7, 0)


def test_a_primary_that_fails_with_a_signal() -> None:
    world = World(group(primary())).run()
    world.end("trainer", signal=11)
    assert (world.job.state, world.job.reason) == (State.FAILED, "RaisedSignal")
    assert (world.job.exit_code, world.job.signal) == (0, 11)


def test_the_code_is_the_primary_s_and_not_an_earlier_auxiliary_s() -> None:
    world = World(group(auxiliary("a"), auxiliary("b"), primary(), primary("actor"))).run()
    world.end("a", 5)
    world.now += 1
    world.end("actor", 7)
    world.stop_all()
    assert world.job.exit_code == 7


# Slurm: only failures of the work have codes; out of memory is 0:125 (sacct).
_CODES = {
    **dict.fromkeys((Cause.EXIT, Cause.SETUP, Cause.NOT_READY), (3, 0)),
    Cause.SIGNAL: (0, 6),
    Cause.LAUNCH: (0, 53),
    Cause.MEMORY: (0, 125),
}


@pytest.mark.parametrize(
    "cause",
    [cause for cause, row in CONSEQUENCES.items() if row.charge.value in ("errors", "recoveries")],
)
def test_each_cause_has_its_state_reason_and_codes(cause: Cause) -> None:
    world = World(group(primary(retry=RetryPolicy(max_recoveries=0)))).run()
    code, signal = {Cause.LAUNCH: (0, 53), Cause.SIGNAL: (0, 6), Cause.MEMORY: (0, 9), Cause.NEVER_STARTED: (0, 0)}.get(
        cause, (3, 0)
    )
    world.end("trainer", code, signal=signal, cause=cause.value, detail="why")
    row = CONSEQUENCES[cause]
    assert (world.job.state, world.job.reason) == (row.state, row.reason)
    assert (world.task("trainer").state, world.task("trainer").reason) == (row.state, row.reason)
    assert (world.job.exit_code, world.job.signal) == _CODES.get(cause, (0, 0))
    # Of a start that did not become ready the lifecycle knows more than the cluster.
    why = "not ready within 0 s: it has no probe" if cause is Cause.NOT_READY else "why"
    assert (world.attempt("trainer").cause, world.attempt("trainer").detail) == (cause, why)


def test_codes_of_a_time_out_are_slurm_s() -> None:
    world = World(group(primary(time=60))).run()
    world.advance(60)
    world.stop_all()
    assert world.states() == "TIMEOUT/TimeLimit trainer=TIMEOUT/TimeLimit"
    assert (world.job.exit_code, world.job.signal) == (0, 0)
    assert (world.attempt("trainer").exit_code, world.attempt("trainer").signal) == (0, 15)


# --- an auxiliary that fails -----------------------------------------------------------------------------------------


def test_a_failed_auxiliary_is_ignored_by_default() -> None:
    world = World(group(primary(), auxiliary())).run()
    assert world.end("server", 1) == []
    assert world.states() == "RUNNING/None trainer=RUNNING/None server=FAILED/NonZeroExitCode"
    world.end("trainer")
    assert (world.job.state, world.job.exit_code) == (State.COMPLETED, 0)


def test_a_failed_auxiliary_can_fail_the_group() -> None:
    world = World(group(primary(), auxiliary(on_failure=OnFailure.FAIL_GROUP, termination_delay=60))).run()
    assert causes(world.end("server", 9)) == {"trainer": "auxiliary_failed"}
    world.stop_all()
    assert world.states() == ("FAILED/AuxiliaryFailed trainer=CANCELLED/AuxiliaryFailed server=FAILED/NonZeroExitCode")
    assert world.job.exit_code == 9


def test_a_failed_auxiliary_can_be_started_again_without_a_budget_of_its_own() -> None:
    retry = RetryPolicy(max_restarts=3)
    world = World(group(primary(), auxiliary(on_failure=OnFailure.RESTART, retry=retry))).run()
    for number in range(1, 4):
        world.end("server", 1)
        assert kinds(world.advance(400)) == ["Launch server"]
        world.begin()
        assert world.attempt("server").number == number
    world.end("server", 1)
    world.stop_all()
    assert (world.job.state, world.job.reason) == (State.FAILED, "AuxiliaryFailed")


@pytest.mark.parametrize("on_failure", list(OnFailure))
def test_an_auxiliary_that_ends_well_or_is_cancelled_fails_nothing(on_failure: OnFailure) -> None:
    world = World(group(primary(), auxiliary("a", on_failure=on_failure), auxiliary("b", on_failure=on_failure))).run()
    assert world.end("a") == []
    world.order(events.Cancel(world.now, "b"))
    world.stop_all()
    assert world.states() == "RUNNING/None trainer=RUNNING/None a=COMPLETED/None b=CANCELLED/None"


# --- several nodes ---------------------------------------------------------------------------------------------------


def test_one_node_s_failure_ends_the_attempt_on_all() -> None:
    world = World(group(primary(num_nodes=3))).run()
    assert kinds(world.end("trainer", 5, node=1)) == ["Terminate trainer"]
    world.now += 1
    world.end("trainer", node=0)
    assert world.attempt("trainer").live
    world.end("trainer", signal=15, node=2)
    assert (world.job.state, world.job.exit_code) == (State.FAILED, 5)
    assert world.attempt("trainer").cause is Cause.EXIT


def test_all_nodes_have_to_end_well() -> None:
    world = World(group(primary(num_nodes=2))).run()
    assert world.end("trainer", node=0) == []
    assert world.states() == "RUNNING/None trainer=RUNNING/None"
    world.end("trainer", node=1)
    assert world.job.state is State.COMPLETED


def test_a_lost_node_ends_the_attempt_and_charges_the_infrastructure() -> None:
    world = World(group(primary(num_nodes=2))).run()
    world.end("trainer", node=0, cause=Cause.NODE.value)
    world.stop_all()
    task = world.task("trainer")
    assert (task.state, task.errors, task.recoveries) == (State.PENDING, 0, 1)
    assert world.attempt("trainer").state is State.NODE_FAIL


def _independent(**fields: int) -> JobSpec:
    retry = RetryPolicy(max_restarts_on_errors=1)
    return group(primary(), auxiliary(num_nodes=2, restart=RestartScope.NODE, retry=retry), **fields)


def test_a_node_can_start_again_alone() -> None:
    world = World(_independent()).run()
    assert world.end("server", 1, node=1) == []
    due = world.attempt("server").nodes[1].next_start
    assert due is not None and world.wake_at == due
    assert world.task("server").state is State.RUNNING
    assert kinds(world.advance(5)) == ["NodeRelaunch server"]
    assert [node.run for node in world.attempt("server").nodes] == [0, 1]
    assert not world.apply(events.NodeEnded(world.now, "server", 0, 1, 0, exit_code=1)), "the first run's end again"
    world.begin()
    assert kinds(world.end("server", 1, node=1)) == ["Terminate server"], "the budget is used up"
    world.stop_all()
    assert world.task("server").state is State.FAILED
    assert len(world.task("server").attempts) == 1


def test_an_end_decided_while_nodes_wait_ends_what_lives_and_starts_nothing() -> None:
    world = World(_independent()).run()
    world.end("server", 1, node=1)
    world.end("trainer")
    assert world.attempt("server").live
    world.stop_all()
    assert world.states() == "COMPLETED/None trainer=COMPLETED/None server=COMPLETED/PrimariesDone"


def test_a_cancel_holds_although_every_node_only_waits() -> None:
    world = World(_independent()).run()
    world.end("server", 1, node=1)
    world.end("server", 0, node=0)
    assert world.attempt("server").live
    world.now += 0.1
    world.order(events.Cancel(world.now, "server"))
    assert world.states() == "RUNNING/None trainer=RUNNING/None server=CANCELLED/None"
    assert world.advance(100) == []


def test_a_node_that_fails_in_the_delay_is_not_started_again() -> None:
    retry = RetryPolicy(max_restarts_on_errors=1)
    server = auxiliary(num_nodes=2, restart=RestartScope.NODE, retry=retry, termination_delay=600)
    world = World(group(primary(), server)).run()
    world.end("trainer")
    assert kinds(world.end("server", 1, node=1)) == ["Terminate server"]
    world.stop_all()
    assert world.states() == "COMPLETED/None trainer=COMPLETED/None server=FAILED/NonZeroExitCode"


# --- what came before the stop ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "expected"),
    [((0, 0), State.COMPLETED), ((2, 0), State.FAILED), ((0, 15), State.TIMEOUT), ((143, 0), State.TIMEOUT)],
)
def test_a_late_report_of_an_end_before_the_stop(end: tuple[int, int], expected: State) -> None:
    """Only an end that TERM cannot have made is older than the stop; clusters may tell whole seconds."""
    world = World(group(primary(time=60))).run()
    world.advance(60)
    world.apply(events.NodeEnded(1059.5, "trainer", 0, 0, 0, *end))
    assert world.job.state is expected


# --- hold on failure -------------------------------------------------------------------------------------------------


def test_a_failed_job_is_kept_for_a_look() -> None:
    world = World(group(primary(), auxiliary(), hold_on_failure=600)).run()
    assert world.end("trainer", 1) == []
    assert world.states() == "COMPLETING/HeldOnFailure trainer=FAILED/NonZeroExitCode server=RUNNING/None"
    assert world.wake_at == 1600.0
    assert kinds(world.advance(600)) == ["HoldOver", "Terminate server"]
    world.stop_all()
    assert (world.job.state, world.job.exit_code) == (State.FAILED, 1)


def test_a_kept_job_without_live_tasks_ends_when_the_time_is_over() -> None:
    world = World(group(primary(), hold_on_failure=600)).run()
    world.end("trainer", 1)
    assert world.job.state is State.COMPLETING
    assert kinds(world.advance(600)) == ["HoldOver"]
    assert (world.job.state, world.job.ended_at) == (State.FAILED, 1600.0)


@pytest.mark.parametrize("how", ["cancel", "lost"])
def test_a_kept_job_can_be_ended_early(how: str) -> None:
    world = World(group(primary(), hold_on_failure=600)).run()
    world.end("trainer", 1)
    world.order(events.Cancel(world.now) if how == "cancel" else lost(world, Cause.NODE))
    assert (world.job.state, world.job.reason, world.job.exit_code) == (State.FAILED, "NonZeroExitCode", 1)


def test_nothing_is_kept_after_success_or_cancel() -> None:
    world = World(group(primary(), hold_on_failure=600)).run()
    world.end("trainer")
    assert world.job.state is State.COMPLETED
    world = World(group(primary(), hold_on_failure=600)).run()
    world.order(events.Cancel(world.now, "trainer"))
    world.stop_all()
    assert world.job.state is State.CANCELLED
