"""From pods to events: what is told, once, and with which cause."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.adapters.kubernetes.pods import GO, T, ended, group, placed, pod, running

from overspan.adapters.kubernetes.observation.evidence import NOT_BEGUN
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.launch_summaries import LaunchSummary, TaskSummary
from overspan.adapters.kubernetes.observation.projection import (
    STUCK_SECONDS,
    Cursor,
    Progress,
    format_cursor,
    parse_cursor,
    project,
    read_go,
    take_snapshot,
    write_go,
)
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.events import Event, Granted, LaunchLost, NodeEnded, NodeStarted, TaskReady

NOW = T + 100
GROUP = group()
SOLO = group(TaskSummary("trainer", 1, 0))
GRANTED = Cursor(True)


def tell(
    summary: LaunchSummary, pods: list[PodRecord], cursor: Cursor = GRANTED, now: float = NOW
) -> tuple[Event, ...]:
    """The events behind a cursor; told again behind the new one there is nothing."""
    told = project(summary, take_snapshot(pods), cursor, now)
    text = format_cursor(told.cursor, summary)
    again = project(summary, take_snapshot(pods), parse_cursor(text, summary), now)
    assert again.events == () or isinstance(told.events[0], Granted)
    return told.events


def test_a_group_is_granted_when_all_have_a_place_and_not_before() -> None:
    pods = [placed(), placed("rollout", 0), pod("rollout", 1)]
    assert tell(GROUP, pods, Cursor()) == ()
    pods[2] = placed("rollout", 1, node="node-2")
    (granted,) = tell(GROUP, pods, Cursor())
    assert isinstance(granted, Granted)
    assert [member[:4] for member in granted.members] == [
        ("trainer", 0, "node-1", "10.0.0.1"),
        ("rollout", 0, "node-1", "10.0.0.1"),
        ("rollout", 1, "node-2", "10.0.0.2"),
    ]


def test_an_independent_group_is_granted_with_its_first_place() -> None:
    summary = group(together=False)
    assert tell(summary, [pod(), pod("rollout", 0), pod("rollout", 1)], Cursor()) == ()
    (granted,) = tell(summary, [pod(), placed("rollout", 0), pod("rollout", 1)], Cursor())
    assert isinstance(granted, Granted) and len(granted.members) == 3


def test_a_pod_whose_image_cannot_be_had_has_no_place() -> None:
    pods = [placed(waiting_reason="ErrImagePull", started_at=None), placed("rollout", 0), placed("rollout", 1)]
    assert tell(GROUP, pods, Cursor()) == ()
    # What prepares it has all that it needs.
    assert tell(GROUP, [pods[0]._replace(begun=True), *pods[1:]], Cursor()) != ()


def test_a_pod_alone_is_granted_by_its_start() -> None:
    bound = placed(started_at=None)
    assert tell(SOLO, [bound], Cursor()) == ()
    assert tell(SOLO, [bound._replace(started_at=T + 3)], Cursor()) != ()
    assert tell(SOLO, [bound._replace(started_at=T + 3, finished_at=T + 3, exit_code=0)], Cursor()) != ()


def test_a_deleted_pod_that_never_gets_a_place_is_granted_to_be_told_as_ended() -> None:
    unbound = pod(deleting_at=T + 50)
    assert tell(SOLO, [unbound], Cursor(), T + 50) != ()
    bound = placed(started_at=None, deleting_at=T + 50)
    assert tell(SOLO, [bound], Cursor(), T + 50 + STUCK_SECONDS - 1) == ()
    assert tell(SOLO, [bound], Cursor(), T + 50 + STUCK_SECONDS) != ()


def test_the_grant_comes_alone_although_pods_have_started() -> None:
    told = project(SOLO, take_snapshot([ended()]), Cursor(), NOW)
    assert [type(event) for event in told.events] == [Granted]
    assert told.events[0].at == T + 10
    rest = project(SOLO, take_snapshot([ended()]), told.cursor, NOW)
    assert [type(event) for event in rest.events] == [NodeStarted, NodeEnded]


def test_nothing_is_told_of_a_pod_that_may_not_start() -> None:
    assert tell(SOLO, [ended(go="")]) == ()


def test_a_start_is_not_older_than_its_decision_nor_an_end_than_its_start() -> None:
    hasty = ended(started_at=T + 2, finished_at=T + 3)
    assert tell(SOLO, [hasty]) == (NodeStarted(T + 10, "trainer", 0, 0), NodeEnded(T + 10, "trainer", 0, 0))


def test_a_program_behind_a_barrier_starts_with_its_decision() -> None:
    assert tell(SOLO, [placed()]) == ()
    assert tell(SOLO, [placed(go=GO)]) == (NodeStarted(T + 10, "trainer", 0, 0),)


def test_a_start_is_exact_of_what_waited_for_its_decision() -> None:
    """The container's start is told in whole seconds: this one may have come after the decision, but did not."""
    early = running(started_at=T + 10, go=write_go(T + 10.25))
    assert tell(SOLO, [early]) == (NodeStarted(T + 10.25, "trainer", 0, 0),)
    for later, summary in (
        # Its files were unpacked first; it was let go alone; it was made for the decision.
        (early._replace(begun=True), SOLO),
        (early, group(TaskSummary("trainer", 1, 0), together=False)),
        (early._replace(attempt=1), SOLO),
        (early._replace(run=1), SOLO),
    ):
        *_, event = tell(summary, [later])
        assert isinstance(event, NodeStarted) and event.at == T + 11


def test_a_pod_that_ended_at_its_barrier_has_started_nothing() -> None:
    left = ended(code=143, started_at=T + 5, finished_at=T + 8, message=NOT_BEGUN)
    assert tell(SOLO, [left._replace(go="")]) == ()
    (end,) = tell(SOLO, [left])
    assert isinstance(end, NodeEnded) and (end.at, end.cause, end.exit_code) == (T + 10, "node", 143)
    (end,) = tell(SOLO, [left._replace(go=write_go(T + 10, T + 10))])
    assert isinstance(end, NodeEnded) and end.cause == ""


def test_an_end_that_a_log_told_is_exact_and_told_once() -> None:
    watched = WatchedLaunch("lab/inst-7-0", SOLO, "uid", "lab", ends={running().uid: T + 19.25})
    report = watched.project(watched.snapshot([running()], ()), "1;0:0:1", NOW)
    assert report is not None and report.events == (NodeEnded(T + 19.25, "trainer", 0, 0),)
    assert watched.project(watched.snapshot([ended()], ()), report.cursor, NOW) is None
    # The status knows better, and of what somebody ends it alone tells.
    assert watched.snapshot([ended(code=7)], ()).pods["trainer", 0, 0].exit_code == 7
    for stopped in (running(deleting_at=NOW + 30), running(disruption="PreemptionByScheduler")):
        assert watched.project(watched.snapshot([stopped], ()), "1;0:0:1", NOW) is None


def test_a_group_whose_places_are_taken_back_is_lost_as_a_whole() -> None:
    watched = WatchedLaunch("lab/inst-7-0", GROUP, "uid", "lab")
    taken: dict[str, Any] = {"disruption": "WorkloadEvictedDueToPreempted", "deleting_at": NOW + 30}
    pods = [running(**taken), running("rollout", 0, **taken), running("rollout", 1, **taken)]
    cursor = "1;0:0:1;1:0:1x2"
    assert watched.project(watched.snapshot(pods, ()), cursor, NOW) is None
    # One that ends well meanwhile is no success of its task.
    over = [ended(**taken), pods[1]._replace(finished_at=NOW, exit_code=143), pods[2]]
    assert watched.project(watched.snapshot(over, ()), cursor, NOW) is None
    report = watched.project(
        watched.snapshot([*over[:2], pods[2]._replace(finished_at=NOW, exit_code=0)], ()), cursor, NOW
    )
    assert report is not None and report.cursor == cursor
    (lost,) = report.events
    assert isinstance(lost, LaunchLost) and (lost.launch, lost.cause) == (GROUP.launch, "preemption")
    # Or their nodes never end them.
    assert watched.project(watched.snapshot(pods, ()), cursor, NOW + 30 + STUCK_SECONDS) is not None


def test_what_had_succeeded_before_the_places_were_taken_back_is_told_first() -> None:
    watched = WatchedLaunch("lab/inst-7-0", GROUP, "uid", "lab")
    taken: dict[str, Any] = {"disruption": "WorkloadEvictedDueToPreempted", "deleting_at": NOW + 30}
    pods = [ended(), running("rollout", 0, **taken), ended("rollout", 1, code=143, **taken)]
    report = watched.project(watched.snapshot(pods, ()), "1;0:0:1;1:0:1x2", NOW)
    assert report is not None and report.events == (NodeEnded(T + 21, "trainer", 0, 0),)
    assert watched.project(watched.snapshot(pods, ()), report.cursor, NOW) is None
    pods[1] = ended("rollout", 0, code=143, **taken)
    report = watched.project(watched.snapshot(pods, ()), report.cursor, NOW)
    assert report is not None and [type(event) for event in report.events] == [LaunchLost]
    # Of a launch that has not started nothing else is told.
    report = watched.project(watched.snapshot(pods, ()), "", NOW)
    assert report is not None and [type(event) for event in report.events] == [LaunchLost] and report.cursor == ""


def test_a_time_that_was_cut_off_is_told_as_late_as_it_may_be() -> None:
    assert [event.at for event in tell(SOLO, [ended()])] == [T + 13, T + 21]
    # And not later than it was heard of.
    assert [event.at for event in tell(SOLO, [ended()], now=T + 20.25)] == [T + 13, T + 20.25]


def test_each_fact_comes_once_and_in_order() -> None:
    summary = group(TaskSummary("trainer", 1, 0, ready=True), TaskSummary("rollout", 2, 0))
    cursor, seen = GRANTED, []
    starting = placed(go=GO, started_at=None)
    for trainer in (starting, running(), running(ready=True), ended(code=3), ended(code=3)):
        told = project(summary, take_snapshot([trainer, running("rollout", 0), placed("rollout", 1)]), cursor, NOW)
        seen += list(told.events)
        cursor = parse_cursor(format_cursor(told.cursor, summary), summary)
    assert seen == [
        NodeStarted(T + 13, "rollout", 0, 0),
        NodeStarted(T + 13, "trainer", 0, 0),
        TaskReady(NOW, "trainer", 0),
        NodeEnded(T + 21, "trainer", 0, 0, exit_code=3),
    ]


def test_readiness_counts_for_a_task_that_has_a_probe_only() -> None:
    assert [type(event) for event in tell(SOLO, [running(ready=True)])] == [NodeStarted]


def test_the_newest_attempt_is_told_and_the_older_ones_are_over() -> None:
    cursor = Cursor(True, {"trainer": Progress(0, (3,))})
    pods = [ended(), running(attempt=1, go=write_go(T + 30), started_at=T + 31)]
    # It may have another node than the attempt before it.
    pods[1] = pods[1]._replace(node="node-2", address="10.0.0.9")
    assert tell(SOLO, pods, cursor) == (
        Granted(T + 32, (("trainer", 0, "node-2", "10.0.0.9", ()),)),
        NodeStarted(T + 32, "trainer", 1, 0),
    )
    told = project(SOLO, take_snapshot(pods), cursor, NOW).cursor
    assert told.over(pods[0]) and not told.over(pods[1])


def test_a_node_that_is_started_again_alone_is_a_run_of_its_own() -> None:
    cursor = Cursor(True, {"rollout": Progress(0, (1, 3))})
    pods = [running("rollout", 0), ended("rollout", 1), running("rollout", 1, run=1, started_at=T + 40)]
    pods[2] = pods[2]._replace(node="node-3", address="10.0.0.9")
    assert tell(GROUP, pods, cursor) == (
        Granted(T + 41, (("rollout", 1, "node-3", "10.0.0.9", ()),)),
        NodeStarted(T + 41, "rollout", 0, 1, 1),
    )
    told = project(GROUP, take_snapshot(pods), cursor, NOW).cursor
    assert told.tasks["rollout"] == Progress(0, (1, 5))
    assert told.over(pods[1]) and not told.over(pods[2])


@pytest.mark.parametrize(
    ("record", "cause", "code"),
    [
        (ended(code=7), "", 7),
        # Nobody can tell KILL from such an exit code, which programs do not have; TERM is what somebody else sends.
        (ended(code=137), "", -9),
        (ended(code=143), "", 143),
        (ended(code=139), "", 139),
        (ended(code=137, reason="OOMKilled"), "memory", -9),
        (ended(code=1, message="setup failed"), "setup", 1),
        (ended(code=143, deleting_at=T + 25), "node", -15),
        (ended(code=143, disruption="PreemptionByScheduler", deleting_at=T + 25), "preemption", -15),
        # It saved its work on TERM; or it had ended when somebody deleted it.
        (ended(deleting_at=T + 45, asked_at=T + 15), "node", 0),
        (ended(deleting_at=T + 45, asked_at=T + 15, disruption="PreemptionByScheduler"), "preemption", 0),
        (ended(deleting_at=T + 45, asked_at=T + 45), "", 0),
        (ended(code=137, status_reason="Evicted", message="low on memory"), "node", -9),
        (ended(code=137, status_reason="DeadlineExceeded"), "time", -9),
        (ended(code=143, status_reason="DeadlineExceeded", leaves_at=T + 15), "", -15),
        (running(phase="Failed", status_reason="NodeLost"), "node", 0),
    ],
)
def test_the_evidence_of_an_end_becomes_its_cause(record: PodRecord, cause: str, code: int) -> None:
    end = tell(SOLO, [record])[-1]
    assert isinstance(end, NodeEnded)
    assert (end.cause, end.exit_code or -end.signal) == (cause, code)


def test_what_was_ordered_to_end_is_no_loss() -> None:
    stopped = write_go(T + 10, T + 20.4)
    end = tell(SOLO, [ended(code=143, go=stopped, deleting_at=T + 50)])[-1]
    # The end was told in whole seconds, and did not come before the order.
    assert end == NodeEnded(T + 21, "trainer", 0, 0, signal=15)
    assert read_go(stopped) == (T + 10, T + 20.4)


def test_what_had_ended_before_the_order_is_told_as_older() -> None:
    stopped = write_go(T + 10, T + 21.5)
    assert tell(SOLO, [ended(go=stopped)])[-1].at == T + 21


def test_a_pod_that_was_removed_is_the_clusters_doing() -> None:
    told = project(SOLO, take_snapshot([], [running()]), GRANTED, NOW)
    assert [type(event) for event in told.events] == [NodeStarted, NodeEnded]
    assert isinstance(told.events[1], NodeEnded) and told.events[1].cause == "node"


def test_a_deleted_pod_that_no_node_has_is_over_at_once() -> None:
    lost = pod(go=GO, deleting_at=T + 20)
    end = tell(SOLO, [lost])[-1]
    assert isinstance(end, NodeEnded) and end.cause == "node"


def test_a_pod_that_is_stuck_is_lost_after_its_grace() -> None:
    stuck = running(deleting_at=T + 50)
    cursor = Cursor(True, {"trainer": Progress(0, (1,))})
    assert tell(SOLO, [stuck], cursor, T + 50 + STUCK_SECONDS - 1) == ()
    (end,) = tell(SOLO, [stuck], cursor, T + 50 + STUCK_SECONDS)
    assert isinstance(end, NodeEnded) and end.cause == "node"
    ordered = stuck._replace(go=write_go(T + 10, T + 45))
    (end,) = tell(SOLO, [ordered], cursor, T + 50 + STUCK_SECONDS)
    assert isinstance(end, NodeEnded) and end.cause == ""


def test_a_cursor_is_small_and_read_back() -> None:
    summary = group(TaskSummary("trainer", 1, 0), TaskSummary("rollout", 1000, 2))
    cursor = Cursor(True, {"rollout": Progress(2, (1,) * 998 + (3, 5))})
    text = format_cursor(cursor, summary)
    assert text == "1;1:2:1x998,3,5"
    assert parse_cursor(text, summary) == cursor
    assert format_cursor(Cursor(), summary) == ""
    for foreign in ("", "x", "1;9:0:1", "1;1:2:1x3", "1;1", "7:1:h:0"):
        assert parse_cursor(foreign, summary) == Cursor()
