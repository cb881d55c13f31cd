"""From records to events, and what they make of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.adapters.slurm.samples import NOW, read_script
from tests.unit.adapters.slurm.views import END, NODES, START, view

from overspan.adapters.slurm.commands.states import read_state
from overspan.adapters.slurm.handles import ENDED, NOTHING, Cursor, Handle, make_handle, parse_cursor, parse_handle
from overspan.adapters.slurm.observation.outcomes import judge
from overspan.adapters.slurm.observation.projection import NativeView, Ordered, project, project_gone
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.events import Cancel, Event, Expire, Hold, Release, SetTime
from overspan.bridge.model.job import Job
from overspan.bridge.model.states import State

JOB = read_script("#!/bin/bash\n#SBATCH --nodes=2\nsrun hostname\n")
HANDLE = make_handle(JOB, 1234)


def follow(
    views: Sequence[NativeView], orders: Sequence[Ordered] = (), job: Job = JOB
) -> tuple[Job, list[Event], Cursor]:
    cursor, events = Cursor(), []
    for each in views:
        told = project(HANDLE, each, parse_cursor(str(cursor)), orders, {"n1": "10.0.0.1"})
        cursor = told.cursor
        for event in told.events:
            events.append(event)
            job = reduce(job, event)
    return job, events, cursor


class TestHandles:
    @given(st.integers(1, 10**9), st.integers(0, 99), st.text("ab.-9", min_size=1), st.text("a/.|% é\n"))
    def test_a_handle_is_read_as_it_was_written(self, native: int, run: int, task: str, path: str) -> None:
        handle = Handle(native, run, 7, 1, 2, 3, 30, task, path, path)
        assert parse_handle(str(handle)) == handle

    @pytest.mark.parametrize("text", ["", "7.0", "s.1.2", "g.1.0.1.0.0.1.30.main", "s.x.0.1.0.0.1.30.main"])
    def test_what_is_no_handle_names_nothing(self, text: str) -> None:
        with pytest.raises(NotFound):
            parse_handle(text)

    @given(st.builds(Cursor, st.integers(0, 3), st.integers(0, 10**18), st.booleans(), st.booleans(), st.integers(0)))
    def test_a_cursor_is_read_as_it_was_written(self, cursor: Cursor) -> None:
        assert parse_cursor(str(cursor)) == cursor


class TestStates:
    @pytest.mark.parametrize(
        ("native", "reason", "status", "state", "code", "signal"),
        [
            ("COMPLETED", "None", (0, 0), State.COMPLETED, 0, 0),
            ("FAILED", "NonZeroExitCode", (3, 0), State.FAILED, 3, 0),
            ("FAILED", "JobLaunchFailure", (0, 11), State.FAILED, 0, 11),
            ("TIMEOUT", "TimeLimit", (0, 15), State.TIMEOUT, 0, 0),
            ("CANCELLED by 1000", "None", (0, 15), State.CANCELLED, 0, 0),
            ("OUT_OF_MEMORY", "OutOfMemory", (0, 125), State.OUT_OF_MEMORY, 0, 125),
            ("DEADLINE", "DeadLine", (0, 0), State.DEADLINE, 0, 0),
        ],
    )
    def test_an_end_is_told_truly(
        self, native: str, reason: str, status: tuple[int, int], state: State, code: int, signal: int
    ) -> None:
        job, _, cursor = follow([view("PENDING", "Priority"), view("RUNNING"), view(native, reason, status)])
        assert (job.state, job.exit_code, job.signal, job.late) == (state, code, signal, 0)
        assert (job.started_at, job.ended_at) == (START, END)
        assert cursor.phase == ENDED

    def test_the_story_is_the_same_however_often_one_looks(self) -> None:
        often = [view("PENDING"), view("CONFIGURING"), view("RUNNING"), view("COMPLETING"), view("COMPLETED")]
        assert follow(often)[1] == follow(often[-1:])[1]

    def test_members_are_placed(self) -> None:
        job, _, _ = follow([view("RUNNING")])
        assert [(place.node, place.address) for place in job.placements] == [("n1", "10.0.0.1"), ("n2", "")]
        assert job.state is State.RUNNING

    @pytest.mark.parametrize(("native", "state"), [("CANCELLED", State.CANCELLED), ("DEADLINE", State.DEADLINE)])
    def test_an_end_before_the_start(self, native: str, state: State) -> None:
        job, _, _ = follow([view("PENDING"), view(native, nodes=(), start=None)])
        assert (job.state, job.started_at, job.late) == (state, None, 0)

    def test_a_failure_before_the_start(self) -> None:
        job, _, _ = follow([view("FAILED", "BadConstraints", nodes=(), start=None)])
        assert (job.state, job.late) == (State.FAILED, 0)

    def test_suspended_and_resumed(self) -> None:
        assert follow([view("RUNNING"), view("SUSPENDED")])[0].state is State.SUSPENDED
        job, _, _ = follow([view("SUSPENDED"), view("RUNNING"), view("COMPLETED")])
        assert (job.state, job.late) == (State.COMPLETED, 0)

    def test_gone_is_never_run_again(self) -> None:
        job = reduce(follow([view("RUNNING")])[0], project_gone(HANDLE, END, False))
        assert job.state is State.FAILED
        assert "keeps no accounting" in job.tasks[0].attempts[0].detail


class TestRequeue:
    @pytest.mark.parametrize("why", [Cause.NODE, Cause.REQUEUE, Cause.PREEMPTION])
    def test_slurm_has_the_job_again(self, why: Cause) -> None:
        over = view("PENDING", "BeginTime", nodes=NODES, start=START, over_at=END, why=why)
        over = NativeView(**{**over.__dict__, "outcome": judge(read_state("REQUEUED"))})
        job, _, cursor = follow([view("RUNNING"), over])
        assert (job.state, job.launch, job.late, job.held) == (State.PENDING, 1, 0, False)
        assert job.tasks[0].attempts[0].cause is why
        assert job.tasks[0].recoveries == 0
        assert cursor.phase == ENDED

    def test_a_run_that_was_never_seen(self) -> None:
        over = view("PENDING", nodes=(), start=None, over_at=END)
        over = NativeView(**{**over.__dict__, "outcome": judge(read_state("REQUEUED"))})
        job, _, _ = follow([over])
        assert (job.state, job.launch, job.late) == (State.PENDING, 1, 0)

    def test_a_cancelled_job_that_slurm_will_run_again_is_over_when_slurm_has_ended_it(self) -> None:
        over = view("PENDING", "BeginTime", nodes=NODES, start=START, over_at=END)
        over = NativeView(**{**over.__dict__, "outcome": judge(read_state("REQUEUED"))})
        cancel = Ordered(5, Cancel(END - 0.5, by="ada"), END - 0.5)
        job, _, cursor = follow([view("RUNNING"), replace(over, waits=True)], [cancel])
        assert job.state is State.COMPLETING and not cursor.over
        job, _, cursor = follow([view("RUNNING"), replace(over, waits=True), over], [cancel])
        assert (job.state, job.launch, job.late, cursor.over) == (State.CANCELLED, 0, 0, True)


class TestOrders:
    def test_a_cancel_decides_how_the_end_is_called(self) -> None:
        cancel = Ordered(5, Cancel(END - 0.5, by="ada"), END - 0.5)
        job, events, cursor = follow([view("RUNNING"), view("FAILED", "JobLaunchFailure", (0, 15))], [cancel])
        assert (job.state, job.late) == (State.CANCELLED, 0)
        assert events.count(cancel.event) == 1
        assert cursor.orders == 5

    def test_a_cancel_after_the_end_changes_nothing(self) -> None:
        cancel = Ordered(5, Cancel(END + 2), END + 2)
        job, events, _ = follow([view("FAILED", "NonZeroExitCode", (3, 0))], [cancel])
        assert job.state is State.FAILED
        assert cancel.event not in events

    def test_the_clusters_own_clock_tells_what_came_first(self) -> None:
        ended = view("FAILED", "NonZeroExitCode", (3, 0))
        # This machine's clock is an hour behind, then an hour ahead.
        late = Ordered(5, Cancel(END - 3600), END - 3600, END + 2)
        assert late.event not in follow([ended], [late])[1]
        early = Ordered(5, Cancel(END + 3600), END + 3600, END - 1)
        assert early.event in follow([ended], [early])[1]

    def test_a_cancel_sets_when_it_is_over(self) -> None:
        _, _, cursor = follow([view("RUNNING")], [Ordered(5, Cancel(NOW + 20.5), NOW + 20.5)])
        assert cursor.kill_at == int(NOW + 20) + HANDLE.grace + 1

    def test_each_order_is_told_once(self) -> None:
        orders = [Ordered(1, SetTime(NOW, 60), NOW), Ordered(2, SetTime(NOW + 1, 90), NOW + 1)]
        _, events, _ = follow([view("PENDING"), view("RUNNING"), view("COMPLETED")], orders)
        assert [event for event in events if isinstance(event, SetTime)] == [order.event for order in orders]

    def test_what_was_taken_back_is_told_when_it_is_surely_gone(self) -> None:
        expire = Ordered(5, Expire(NOW + 5, "failover", "local"), NOW + 5)
        hold = Ordered(6, Hold(NOW + 6), NOW + 6)
        _, waiting, cursor = follow([view("PENDING", "BeginTime")], [expire, hold])
        assert (waiting, cursor.orders) == ([], 0)
        gone = view("CANCELLED by 1000", nodes=(), start=None)
        _, events, cursor = follow([view("PENDING"), gone], [expire, hold])
        assert events[:2] == [hold.event, expire.event] and cursor.over

    def test_what_has_started_was_not_taken_back(self) -> None:
        expire = Ordered(5, Expire(NOW + 5, "failover", "local"), NOW + 5)
        job, events, _ = follow([view("PENDING"), view("RUNNING"), view("COMPLETED")], [expire])
        assert (job.state, job.launch) == (State.COMPLETED, 0)
        assert events.index(expire.event) > 1

    def test_a_hold_is_told_as_it_was_ordered(self) -> None:
        hold = Ordered(1, Hold(NOW, "ada"), NOW)
        job, events, cursor = follow([view("PENDING", "JobHeldUser"), view("PENDING", "JobHeldUser")], [hold])
        assert events == [hold.event]
        assert (job.held, cursor.held, cursor.phase) == (True, True, NOTHING)

    def test_holds_of_slurms_own(self) -> None:
        job, events, _ = follow([view("PENDING", "JobHeldAdmin"), view("PENDING", "JobHeldAdmin")])
        assert (len(events), job.reason) == (1, "JobHeldAdmin")
        job, events, _ = follow([view("PENDING", "JobHeldUser"), view("PENDING", "Priority")])
        assert [type(event) for event in events] == [Hold, Release]
        assert (job.held, job.late) == (False, 0)

    def test_an_answer_from_before_the_order_does_not_undo_it(self) -> None:
        hold = Ordered(1, Hold(NOW + 100), NOW + 100.5)
        _, events, cursor = follow([view("PENDING", "Priority"), view("PENDING", "Priority")], [hold])
        assert events == [hold.event]
        assert cursor.held
