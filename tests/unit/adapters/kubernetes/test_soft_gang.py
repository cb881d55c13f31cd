"""When a group that gathers gives its pods back, and when it makes them again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.adapters.kubernetes.pods import GO, T, group, placed, pod, running

from overspan.adapters.kubernetes.launches.soft_gang import (
    LONGEST_ABSENCE,
    MissingPods,
    WaitAction,
    WaitingLaunch,
    choose_action,
    choose_wait,
    list_missing,
)
from overspan.adapters.kubernetes.launches.withdrawal import HELD
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.projection import STUCK_SECONDS, PodSnapshot, take_snapshot
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.events import Granted, Queued

LIMIT = 60.0


def waiting(*pods: PodRecord, oldest: bool = False, gives_back: bool = True, again_at: float = 0.0) -> WaitingLaunch:
    return WaitingLaunch(group(), take_snapshot(pods), gives_back, oldest, again_at, given_back=True)


HALF = (placed(), placed("rollout", 0), pod("rollout", 1))


@pytest.mark.parametrize(
    ("case", "age", "move"),
    [
        (waiting(*HALF), 59, WaitAction.WAIT),
        (waiting(*HALF), 60, WaitAction.GIVE_BACK),
        (waiting(*HALF, oldest=True), 60, WaitAction.WAIT),
        (waiting(*HALF, oldest=True), 120, WaitAction.GIVE_BACK),
        # Another gathers them: Kueue, or the scheduler.
        (waiting(*HALF, gives_back=False), 600, WaitAction.WAIT),
        # What holds nothing has nothing to give.
        (waiting(pod(), pod("rollout", 0), pod("rollout", 1)), 600, WaitAction.WAIT),
        # All are there: the grant is on its way.
        (waiting(placed(), placed("rollout", 0), placed("rollout", 1)), 600, WaitAction.WAIT),
    ],
)
def test_what_is_held_without_being_whole_is_given_back_in_time(
    case: WaitingLaunch, age: float, move: WaitAction
) -> None:
    assert choose_action(case, LIMIT, T + age) is move


def test_pods_are_made_again_after_the_wait_and_once_the_old_ones_are_gone() -> None:
    again_at = T + 100
    assert choose_action(waiting(pod(deleting_at=T), again_at=again_at), LIMIT, T + 200) is WaitAction.WAIT
    assert choose_action(waiting(again_at=again_at), LIMIT, T + 99) is WaitAction.WAIT
    assert choose_action(waiting(again_at=again_at), LIMIT, T + 100) is WaitAction.MAKE
    # Nobody older waits any more.
    assert choose_action(waiting(again_at=again_at, oldest=True), LIMIT, T + 50) is WaitAction.MAKE
    assert list_missing(waiting(again_at=again_at)) == [
        MissingPods("trainer", 0, (0,)),
        MissingPods("rollout", 0, (0, 1)),
    ]


def test_what_is_there_while_nothing_is_to_be_is_given_back_too() -> None:
    assert choose_action(waiting(pod(), again_at=T), LIMIT, T + 200) is WaitAction.GIVE_BACK
    begun = replace(waiting(pod(deleting_at=T), again_at=T), given_back=False)
    assert choose_action(begun, LIMIT, T + 200) is WaitAction.GIVE_BACK


def test_a_pod_that_a_dead_node_keeps_is_removed_where_its_barrier_never_opened() -> None:
    kept = waiting(placed(deleting_at=T), again_at=T + 100)
    late = T + STUCK_SECONDS
    assert choose_action(replace(kept, at_start_gate=True), LIMIT, late - 1) is WaitAction.WAIT
    assert choose_action(replace(kept, at_start_gate=True), LIMIT, late) is WaitAction.DROP
    # Without a start gate its program may run there.
    assert choose_action(kept, LIMIT, late) is WaitAction.WAIT


def test_a_held_launch_is_not_made_again() -> None:
    assert choose_action(waiting(again_at=HELD, oldest=True), LIMIT, T + 10**9) is WaitAction.WAIT


def test_a_clock_that_was_set_back_keeps_no_launch_away() -> None:
    case = waiting(again_at=T + LONGEST_ABSENCE)
    assert choose_action(case, LIMIT, T) is WaitAction.WAIT
    assert choose_action(case, LIMIT, T - 6 * 3600) is WaitAction.MAKE


def test_a_pod_that_is_missing_is_made() -> None:
    case = waiting(placed(), placed("rollout", 1))
    assert choose_action(case, LIMIT, T) is WaitAction.MAKE
    assert list_missing(case) == [MissingPods("rollout", 0, (0,))]


def test_a_pod_that_somebody_removed_is_not_made_again() -> None:
    snapshot = PodSnapshot(
        take_snapshot([placed(), placed("rollout", 1)]).pods, take_snapshot([placed("rollout", 0)]).pods
    )
    assert list_missing(WaitingLaunch(group(), snapshot, True, False)) == []


def test_the_oldest_asks_again_first() -> None:
    for _ in range(50):
        assert choose_wait(LIMIT, oldest=True) <= LIMIT / 10 < LIMIT / 2 <= choose_wait(LIMIT, oldest=False) <= LIMIT


def test_what_does_not_fit_is_away_for_longer_each_time() -> None:
    for oldest in (True, False):
        waits = [choose_wait(300.0, oldest, returns) for returns in range(12)]
        bounds = [min((30.0 if oldest else 300.0) * 2**returns, LONGEST_ABSENCE) for returns in range(12)]
        assert all(bound / 2 <= wait <= bound for wait, bound in zip(waits, bounds, strict=True))
        assert waits[-1] == LONGEST_ABSENCE
    # The oldest that has had its chance waits as the others do.
    tried = replace(waiting(again_at=T + 100, oldest=True), was_oldest=True)
    assert choose_action(tried, LIMIT, T + 99) is WaitAction.WAIT
    assert choose_action(tried, LIMIT, T + 100) is WaitAction.MAKE


@pytest.mark.parametrize("soft", [True, False])
def test_the_reason_says_how_many_have_a_place_and_what_the_scheduler_says_of_the_rest(soft: bool) -> None:
    words = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available"
    last = pod("rollout", 1, waiting_reason="Unschedulable", waiting_message=words)
    story = WatchedLaunch("lab/inst-7-0", group(), "uid", "lab", soft=soft)
    snapshot = take_snapshot([placed(started_at=None), placed("rollout", 0, started_at=None), last])
    report = story.project(snapshot, "", T + 10)
    assert report is not None and report.events == (Queued(T + 10, "Resources"),)
    report = story.project(snapshot, "", T + 20)
    facts = "Resources: 2 of 3 have a place: 0/2 nodes are available: 2 Insufficient cpu."
    assert report is not None and report.events == (Queued(T + 20, facts),)
    # It is still the reason while its pods are given back, and said once.
    story.again_at = T + 100
    assert story.project(take_snapshot([]), "", T + 50) is None


def test_what_was_given_back_is_no_trace_of_an_end() -> None:
    gone = [placed(), placed("rollout", 0), placed("rollout", 1)]
    story = WatchedLaunch("lab/inst-7-0", group(), "uid", "lab", again_at=T + 100)
    report = story.project(story.snapshot([], gone), "", T + 50)
    assert report is not None and report.events == (Queued(T + 50, "Resources"),)
    story.again_at = 0.0
    report = story.project(story.snapshot([], gone), "", T + 50)
    assert report is not None and isinstance(report.events[0], Granted)


def test_an_attempt_that_does_not_start_after_the_grant_says_why_once() -> None:
    story = WatchedLaunch("lab/inst-7-0", group(), "uid", "lab")
    known = "1;0:1:0;1:0:1x2"
    stuck = placed(attempt=1, go=GO, started_at=None, waiting_reason="ErrImagePull", waiting_message="no such image")
    snapshot = take_snapshot([stuck, running("rollout", 0), running("rollout", 1)])
    report = story.project(snapshot, known, T + 50)
    assert report is not None
    (event,) = report.events
    assert isinstance(event, Queued) and event.task == "trainer" and "no such image" in event.reason
    assert story.project(snapshot, report.cursor, T + 51) is None
    cured = take_snapshot([stuck._replace(waiting_reason="", waiting_message=""), *snapshot.pods.values()][:1])
    report = story.project(cured._replace(pods={**snapshot.pods, **cured.pods}), known, T + 52)
    assert report is not None and report.events == (Queued(T + 52, "None", task="trainer"),)


def test_mounts_are_told_by_events_after_the_grant_too() -> None:
    story = WatchedLaunch("lab/inst-7-0", group(), "uid", "lab")
    stuck = placed(attempt=1, go=GO, started_at=None)
    story.troubles = {stuck.uid: "a volume cannot be mounted (FailedMount): no such claim"}
    report = story.project(
        take_snapshot([stuck, running("rollout", 0), running("rollout", 1)]), "1;0:1:0;1:0:1x2", T + 50
    )
    assert report is not None
    (event,) = report.events
    assert isinstance(event, Queued) and event.reason.startswith("JobLaunchFailure: a volume cannot be mounted")
