"""What `span fsck` finds on a Slurm cluster."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.adapters.slurm.records import record

from overspan.adapters.contract import Decider
from overspan.adapters.slurm.access.inventory import index_handles, list_natives, list_traces
from overspan.adapters.slurm.groups.handles import GroupHandle, GroupPart
from overspan.adapters.slurm.handles import Handle
from overspan.bridge.model.ids import parse_array

SINGLE = Handle(42, run=1, job=7, launch=1, attempt=1, nodes=1, grace=30, task="main")
ELEMENT = Handle(50, 0, 9, 0, 0, 1, 30, "main", index=3, array=8)
GROUP = GroupHandle(11, 0, 30, "/r/runs/x-11", (GroupPart(60),))


def test_every_native_job_that_is_not_over_is_listed_with_its_state() -> None:
    states = ["PENDING", "COMPLETING", "SPECIAL_EXIT", "RUNNING", "COMPLETED"]
    traces = list_traces([record(70 + n, f"inst-{n}-0", state, 0) for n, state in enumerate(states)], {})
    assert [trace.objects for trace in traces] == [
        (f"job {70 + n} {state}",) for n, state in enumerate(states) if state != "COMPLETED"
    ]
    assert [trace.running for trace in traces] == [0, 1, 0, 1]


def test_what_is_watched_has_its_handle_and_is_listed_when_it_has_ended() -> None:
    natives = index_handles(map(str, (SINGLE, ELEMENT, GROUP)))
    element = replace(record(51, "inst-8-0", "RUNNING", 0), array_job=50, array_index=3, shown="50_3")
    component = replace(record(61, "inst-11-0", "RUNNING", 0), het_job=60, het_offset=1)
    records = [record(42, "inst-7-0", "COMPLETED", 1), element, record(60, "inst-11-0", "RUNNING", 0), component]
    assert {trace.handle for trace in list_traces(records, natives)} == {str(SINGLE), str(ELEMENT), str(GROUP)}


def test_a_deferred_task_that_was_not_submitted_is_no_native_job() -> None:
    handle = GroupHandle(11, 0, 30, "/r/runs/x-11", (GroupPart(60, "a", 1), GroupPart(0, "b", 1)), Decider.DAEMON)
    assert index_handles([str(handle)]) == {(60, None): str(handle)}


def test_of_several_runs_of_a_native_job_the_latest_has_it() -> None:
    first, second = replace(SINGLE, run=0, launch=0, attempt=0), SINGLE
    for handles in ((first, second), (second, first)):
        assert index_handles(map(str, handles)) == {(42, None): str(second)}


def test_two_native_jobs_of_one_job_are_two_and_others_tokens_are_told_apart() -> None:
    records = [record(42, "inst-7-0", "PENDING", 1), record(43, "inst-7-1", "RUNNING", 0), record(9, "x", "RUNNING", 0)]
    records += [record(44, "other-7-0/trainer/2", "RUNNING", 0), replace(record(45, "", "RUNNING", 0), comment="mine")]
    traces = list_traces(records, index_handles([str(SINGLE)]))
    assert [(trace.installation, trace.job, trace.launch) for trace in traces] == [
        ("inst", 7, 0),
        ("inst", 7, 1),
        ("other", 7, 0),
    ]


def test_what_is_removed_is_cancelled_by_its_name() -> None:
    rest = replace(record(50, "inst-8-0", "PENDING", 0), array_job=50, waiting=parse_array("4-9"), shown="50_[4-9]")
    traces = list_traces([rest, record(42, "inst-7-0", "SPECIAL_EXIT", 1)], {})
    assert list_natives(traces) == ["42", "50"]
