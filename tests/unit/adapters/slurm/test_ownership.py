"""Whose a record is: numbers that are given again, tokens of earlier launches, comments that others have changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.adapters.slurm.records import mark, record, run
from tests.unit.adapters.slurm.samples import NOW

from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.groups.handles import NativeJob
from overspan.adapters.slurm.handles import Handle
from overspan.adapters.slurm.observation.outcomes import Phase
from overspan.adapters.slurm.observation.ownership import is_another, list_own
from overspan.adapters.slurm.observation.snapshot import AccountingSnapshot, QueueSnapshot, take_view
from overspan.adapters.slurm.submission.arrays import Lookup
from overspan.bridge.model.causes import Cause

FIRST = Handle(42, run=0, job=7, launch=0, attempt=0, nodes=1, grace=30, task="main")
LATER = replace(FIRST, launch=1, attempt=1)
ELEMENT = replace(FIRST, job=9, index=3, array=5)


class TestRecords:
    @pytest.mark.parametrize(
        ("handle", "comment", "another"),
        [
            (FIRST, "mine overspan=inst-7-0", False),
            (FIRST, "overspan=inst-70-0", True),
            (FIRST, "overspan=inst-7-1", True),
            # What a user or the site has written over it tells nothing.
            (FIRST, "another comment", False),
            (FIRST, "", False),
            (FIRST, "overspan=whatever", False),
            # A submit_plugin that has put something in front or behind.
            (FIRST, "overspan=other-8-0 overspan=inst-7-0", False),
            # Slurm was killed before it had written down that it had requeued the job: it runs on as it was.
            (LATER, "overspan=inst-7-0", False),
            (LATER, "overspan=inst-7-2", True),
            (NativeJob(42, 7, 0, "/r"), "overspan=inst-7-0/trainer/2", False),
            (NativeJob(42, 7, 0, "/r"), "overspan=inst-8-0/trainer/2", True),
            # Elements have the token of their array, or one of their own from where each is an allocation.
            (ELEMENT, "overspan=inst-5-0", False),
            (ELEMENT, "overspan=inst-9-0", False),
            (ELEMENT, "overspan=inst-6-0", True),
        ],
    )
    def test_the_token_tells(self, handle: Handle | NativeJob, comment: str, another: bool) -> None:
        assert is_another(handle, comment) == another


class TestRuns:
    def test_requeued_runs_have_the_token_of_the_first(self) -> None:
        runs = [run(mark("inst-7-0"), "NODE_FAIL"), run(mark("inst-7-0"), at=NOW + 9)]
        assert list_own(replace(LATER, run=1), runs) == runs

    def test_a_number_that_was_anothers_before_the_numbers_were_reset(self) -> None:
        before = [run("", "FAILED", NOW - 9e7), run("sbatch x.sh", "FAILED", NOW - 8e7)]
        own = run(mark("inst-7-0"))
        assert list_own(FIRST, [*before, own]) == [own]

    def test_a_number_that_is_anothers_since(self) -> None:
        own, after = run(mark("inst-7-0")), run("sbatch x.sh", "RUNNING", NOW + 9)
        assert list_own(FIRST, [own, after]) == [own]

    def test_a_launch_whose_number_an_earlier_one_of_the_job_had(self) -> None:
        # The first was lost with slurmctld's state; its record waits in the accounting for ever.
        runs = [run(mark("inst-7-0"), "PENDING"), run(mark("inst-7-1"), at=NOW + 9)]
        assert list_own(LATER, runs) == runs[1:]
        assert list_own(FIRST, runs) == runs[:1]

    def test_a_release_that_keeps_no_lines_tells_by_comments_alone(self) -> None:
        # Comments come with the end, and not everywhere.
        runs = [run("", "NODE_FAIL"), run("", at=NOW + 9, comment="overspan=inst-7-0")]
        assert list_own(FIRST, runs) == runs
        assert list_own(FIRST, [run("", comment="overspan=inst-8-0"), *runs]) == runs

    def test_jobs_of_others_have_no_token(self) -> None:
        runs = [run("sbatch x.sh", "NODE_FAIL"), run("sbatch x.sh", at=NOW + 9)]
        assert list_own(FIRST, runs) == runs


def answer(queue: Sequence[QueueRecord], runs: Sequence[AccountingRecord] = (), name: str = "42") -> QueueSnapshot:
    return QueueSnapshot(Lookup(queue), NOW, AccountingSnapshot({name: list(runs)}))


class TestViews:
    def test_a_number_that_is_anothers_leaves_no_job_behind(self) -> None:
        # slurmctld has lost the job; nobody will ever end what the accounting has of it.
        taken = record(42, "inst-8-0", "RUNNING", 0)
        for state in ("PENDING", "RUNNING"):
            assert answer([taken], [run(mark("inst-7-0"), state)]).view(FIRST, None) is None
            view = answer([], [run(mark("inst-7-0"), state)]).view(FIRST, None)
            assert view is not None and view.outcome.phase.value in ("queued", "running")
        ended = answer([taken], [run(mark("inst-7-0"))]).view(FIRST, None)
        assert ended is not None and ended.outcome.phase is Phase.ENDED

    @pytest.mark.parametrize(
        ("states", "cause", "began"),
        [
            (["NODE_FAIL"], Cause.NODE, True),
            (["NODE_FAIL", "PENDING"], Cause.NODE, True),
            # It does not know of the end yet.
            (["RUNNING"], Cause.REQUEUE, True),
            ([], Cause.REQUEUE, False),
        ],
    )
    def test_why_a_job_is_queued_again_is_known_before_its_next_run_is(
        self, states: list[str], cause: Cause, began: bool
    ) -> None:
        runs = [run(mark("inst-7-0"), state, NOW + 20 * place) for place, state in enumerate(states)]
        waits = replace(record(42, "inst-7-0", "PENDING", 1), submit=NOW + 20)
        view = answer([waits], runs).view(FIRST, None)
        assert view is not None and (view.why, view.start is not None) == (cause, began)

    def test_a_second_run_says_nothing_of_the_first(self) -> None:
        waits = replace(record(42, "inst-7-0", "PENDING", 1), submit=NOW + 20)
        view = answer([waits], [run(mark("inst-7-0"), "NODE_FAIL", NOW + 20)]).view(FIRST, None)
        assert view is not None and (view.why, view.start) == (Cause.REQUEUE, None)

    def test_an_array_that_has_an_elements_number_now_does_not_end_it(self) -> None:
        whole = replace(record(42, "inst-6-0", "CANCELLED", 0), array_job=None)
        assert answer([whole], name="42_3").view(ELEMENT, None) is None
        own = replace(record(42, "inst-5-0", "CANCELLED", 0), array_job=None)
        view = answer([own], name="42_3").view(ELEMENT, None)
        assert view is not None and view.outcome.phase is Phase.ENDED

    def test_an_element_of_another_array_is_another(self) -> None:
        element = replace(record(43, "inst-6-0", "RUNNING", 0), array_job=42, array_index=3)
        assert answer([element], name="42_3").view(ELEMENT, None) is None
        own = replace(element, comment="overspan=inst-5-0")
        assert answer([own], name="42_3").view(ELEMENT, None) is not None

    def test_an_end_was_heard_when_it_was_heard_first(self) -> None:
        ended, running = (
            answer([record(42, "inst-7-0", state, 0)]).view(FIRST, None) for state in ("FAILED", "RUNNING")
        )
        assert ended is not None and running is not None
        first = take_view(take_view(None, running, NOW + 1), ended, NOW + 2)
        assert first.known_at == NOW + 2
        assert take_view(first, replace(ended, asked=NOW + 5), NOW + 6).known_at == NOW + 2
        # An answer of before, from a cache say: the end is to come.
        assert take_view(take_view(first, running, NOW + 7), ended, NOW + 8).known_at == NOW + 8
