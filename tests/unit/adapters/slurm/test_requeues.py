"""Jobs that Slurm requeues: what every state says of a run to come, and which run is the next launch."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from tests.unit.adapters.slurm.records import mark, record, run
from tests.unit.adapters.slurm.samples import NOW
from tests.unit.adapters.slurm.watch_bench import Bench

from overspan.adapters.slurm.commands.listings import ExitStatus
from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.commands.states import BASES, FLAGS, read_reason, read_state
from overspan.adapters.slurm.handles import Cursor, Handle
from overspan.adapters.slurm.observation.outcomes import Phase
from overspan.adapters.slurm.observation.projection import NativeView, project
from overspan.adapters.slurm.observation.requeues import Future, find_successor, foresee, is_unstarted, may_be_unstarted
from overspan.adapters.slurm.observation.snapshot import AccountingSnapshot, QueueSnapshot
from overspan.adapters.slurm.submission.arrays import Lookup
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause

RUNS, UNCLEAR, OVER = Future.RUNS, Future.UNCLEAR, Future.OVER
ALONE = {
    "PENDING": RUNS,
    "RUNNING": RUNS,
    "SUSPENDED": RUNS,
    "COMPLETED": OVER,
    "CANCELLED": OVER,
    "FAILED": OVER,
    "TIMEOUT": OVER,
    "NODE_FAIL": OVER,
    "PREEMPTED": OVER,
    "BOOT_FAIL": OVER,
    "DEADLINE": OVER,
    "OUT_OF_MEMORY": OVER,
    "COMPLETING": UNCLEAR,
    "STAGE_OUT": UNCLEAR,
    "CONFIGURING": RUNS,
    "POWER_UP_NODE": RUNS,
    "RESIZING": RUNS,
    "SIGNALING": RUNS,
    "UPDATE_DB": RUNS,
    "EXPEDITING": RUNS,
    "STOPPED": RUNS,
    "REQUEUED": RUNS,
    "REQUEUE_FED": RUNS,
    "REQUEUE_HOLD": RUNS,
    "SPECIAL_EXIT": RUNS,
    "RESV_DEL_HOLD": RUNS,
    # Another cluster of the federation runs it.
    "REVOKED": OVER,
    # They wait again, held; with nodes they have ended.
    "LAUNCH_FAILED": RUNS,
    "RECONFIG_FAIL": RUNS,
}
"""What a job may still do whose only word is this one: squeue shows flags in place of the base up to 26.05."""


@pytest.mark.parametrize("word", [*BASES, *FLAGS])
def test_every_state_alone(word: str) -> None:
    assert foresee(read_state(word)) is ALONE[word]
    assert set(ALONE) == {*BASES, *FLAGS}


@pytest.mark.parametrize(
    ("word", "nodes", "future"),
    [
        ("PENDING+COMPLETING", True, RUNS),
        ("COMPLETED+COMPLETING", True, UNCLEAR),
        ("FAILED+COMPLETING+REQUEUED", True, RUNS),
        ("NODE_FAIL+REQUEUED", True, RUNS),
        ("PENDING+SPECIAL_EXIT", False, RUNS),
        ("PENDING+LAUNCH_FAILED", False, RUNS),
        ("NODE_FAIL+LAUNCH_FAILED", True, OVER),
        ("LAUNCH_FAILED", True, OVER),
        ("RECONFIG_FAIL", True, OVER),
        ("RUNNING+CONFIGURING+POWER_UP_NODE", True, RUNS),
        ("A_WORD_OF_TOMORROW", True, RUNS),
    ],
)
def test_states_with_flags(word: str, nodes: bool, future: Future) -> None:
    assert foresee(read_state(word), nodes) is future


class TestSuccessor:
    def test_the_newest_launch_s_job_is_asked_first_and_what_lives_of_any_counts(self) -> None:
        first, second = record(1, "inst-7-0", "RUNNING", 0), record(2, "inst-7-1", "NODE_FAIL", 0)
        found = find_successor([(1, [second]), (2, [first])])
        assert found is not None and (found.record.raw, found.run) == (1, 0)
        second = replace(second, restarts=1)
        found = find_successor([(1, [second]), (2, [first])])
        assert found is not None and (found.record.raw, found.run) == (2, 1)

    def test_of_two_with_one_token_the_living_one_counts(self) -> None:
        two = [record(1, "inst-7-0", "FAILED", 0), record(2, "inst-7-0", "PENDING", 1)]
        found = find_successor([(1, two)])
        assert found is not None and found.record.raw == 2

    def test_one_that_is_ending_may_come_back_and_is_waited_for(self) -> None:
        found = find_successor([(1, [record(1, "inst-7-0", "COMPLETING", 0)])])
        assert found is not None and (found.record.raw, found.run) == (1, None)

    def test_nothing_lives_and_nothing_was_missed(self) -> None:
        assert find_successor([(2, [record(1, "inst-7-0", "COMPLETED", 1)])]) is None


FIRST = Handle(42, run=0, job=7, launch=0, attempt=0, nodes=1, grace=30, task="main")
NEXT = replace(FIRST, run=1, launch=1, attempt=1)


def see(handle: Handle, one: QueueRecord, *states: str) -> NativeView:
    runs = [run(mark("inst-7-0"), state, NOW + 100 * place) for place, state in enumerate(states)]
    view = QueueSnapshot(Lookup([one]), NOW + 50, AccountingSnapshot({"42": runs})).view(handle, None)
    assert view is not None
    return view


def queued(state: str, restarts: int, reason: str = "None", **changes: object) -> QueueRecord:
    return replace(record(42, "inst-7-0", state, restarts), reason=read_reason(reason), **changes)  # type: ignore[arg-type]


COMPLETING = queued("COMPLETING", 1, nodes=("n1",), start=NOW + 50, end=NOW + 650)
"""What squeue shows from a requeue to the end of the former run: its start is always now (measured on 22.05)."""


class TestViews:
    def test_a_run_is_over_with_its_times_and_cause_while_the_job_is_completing(self) -> None:
        view = see(FIRST, COMPLETING, "NODE_FAIL")
        assert (view.outcome.phase, view.why, view.nodes) == (Phase.REQUEUED, Cause.NODE, ("n1",))
        assert (view.start, view.over_at, view.waits) == (NOW + 5, NOW + 9, True)

    def test_the_next_run_has_not_begun_while_the_job_is_completing(self) -> None:
        told = project(NEXT, see(NEXT, COMPLETING), Cursor(), (), {})
        assert told.events == ()

    @pytest.mark.parametrize("state", ["SPECIAL_EXIT", "REQUEUE_HOLD", "REQUEUED", "LAUNCH_FAILED"])
    def test_the_next_run_waits_and_is_not_lost_again(self, state: str) -> None:
        for restarts in (0, 1):
            view = see(NEXT, queued(state, restarts, "job requeued in held state"))
            assert view.outcome.phase is Phase.QUEUED
            (hold,) = project(NEXT, view, Cursor(), (), {}).events
            assert isinstance(hold, events.Hold)

    @pytest.mark.parametrize(
        "reason", ["launch failed requeued held", "job_requeued_in_held_state", "JobHoldMaxRequeue", "JobHeldAdmin"]
    )
    def test_a_hold_of_slurms_is_shown_and_its_release_too(self, reason: str) -> None:
        held = project(NEXT, see(NEXT, queued("PENDING", 1, reason)), Cursor(), (), {})
        assert [type(event) for event in held.events] == [events.Hold]
        free = project(NEXT, see(NEXT, queued("PENDING", 1, "BeginTime")), held.cursor, (), {})
        assert [type(event) for event in free.events] == [events.Release]

    def test_a_hold_is_shown_of_a_job_that_still_has_the_nodes_of_its_former_run(self) -> None:
        view = see(NEXT, queued("PENDING", 1, "launch failed requeued held", nodes=("n1",)))
        assert [type(event) for event in project(NEXT, view, Cursor(), (), {}).events] == [events.Hold]

    def test_a_run_that_was_cancelled_in_the_queue_waits_no_more(self) -> None:
        assert see(FIRST, queued("PENDING", 1), "REQUEUED").waits
        assert not see(FIRST, queued("CANCELLED", 1), "REQUEUED").waits


REVOKED = queued("FAILED", 1, "NonZeroExitCode", exit=ExitStatus(1, 0), nodes=("n1",), start=NOW + 5, end=NOW + 5)
"""A run that Slurm has taken for the former one, whose credential it had revoked (measured on 22.05)."""


def step(state: str, status: ExitStatus | None, at: float = NOW + 5) -> AccountingRecord:
    return replace(run("", state), step="batch", exit=status, start=at)


class TestUnstarted:
    @pytest.mark.parametrize(
        ("found", "unstarted"),
        [
            (step("CANCELLED", None), True),
            # A program that fails at once.
            (step("FAILED", ExitStatus(1, 0)), False),
            # The former run's, one that is not over, and none.
            (step("CANCELLED", ExitStatus(0, 15), NOW), None),
            (step("RUNNING", None), None),
            (None, None),
        ],
    )
    def test_the_batch_step_tells(self, found: AccountingRecord | None, unstarted: bool | None) -> None:
        assert may_be_unstarted(REVOKED, 1)
        assert is_unstarted(REVOKED, found) is unstarted

    @pytest.mark.parametrize(
        "one",
        [
            replace(REVOKED, end=NOW + 6),
            replace(REVOKED, exit=ExitStatus(2, 0)),
            replace(REVOKED, start=None, end=None),
            replace(REVOKED, state=read_state("COMPLETED")),
        ],
    )
    def test_others_have_surely_run(self, one: QueueRecord) -> None:
        assert not may_be_unstarted(one, 1)
        assert not may_be_unstarted(REVOKED, 0)

    @pytest.mark.parametrize("unstarted", [True, False])
    def test_a_run_without_a_program_is_lost_and_no_failure_of_the_users(self, unstarted: bool) -> None:
        answer = QueueSnapshot(Lookup([REVOKED]), NOW + 50)
        assert answer.is_suspect(NEXT) and not answer.is_suspect(FIRST)
        accounts = AccountingSnapshot({"42": []}, unstarted={"42"} if unstarted else ())
        view = replace(answer, accounts=accounts).view(NEXT, None)
        assert view is not None
        told = project(NEXT, view, Cursor(), (), {}).events
        if unstarted:
            (lost,) = told
            assert isinstance(lost, events.LaunchLost)
            assert (lost.cause, lost.detail) == ("boot", "Slurm gave it back without having run anything")
        else:
            assert isinstance(told[-1], events.NodeEnded) and told[-1].exit_code == 1

    def test_the_watch_waits_for_the_step_and_tells_what_it_says(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        steps: dict[str, AccountingRecord] = {}
        bench.asked.batch_steps = AsyncMock(return_value=steps)  # type: ignore[method-assign]
        bench.asked.records[42] = REVOKED

        async def look() -> list[str]:
            return [type(event).__name__ for event in await bench.look(1, NEXT)]

        assert asyncio.run(look()) == []
        steps["42"] = step("CANCELLED", None)
        assert asyncio.run(look()) == ["LaunchLost"]
        bench.place = ""
        steps["42"] = step("FAILED", ExitStatus(1, 0))
        assert asyncio.run(look())[-1] == "NodeEnded"
