"""When a group that gathers gives its pods back, and when it makes them again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.adapters.kubernetes.pods import GO, T, group, placed, pod, running

from overspan.adapters.kubernetes.launches.soft_gang import (
    LONGEST_ABSENCE,
    Absent,
    Move,
    Waiting,
    choose_move,
    choose_wait,
    list_absent,
)
from overspan.adapters.kubernetes.launches.withdrawal import HELD
from overspan.adapters.kubernetes.observation.launch_progress import Story
from overspan.adapters.kubernetes.observation.projection import STUCK_SECONDS, View, view_pods
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.events import Granted, Queued

LIMIT = 60.0


def waiting(*pods: PodRecord, oldest: bool = False, gives_back: bool = True, again_at: float = 0.0) -> Waiting:
    return Waiting(group(), view_pods(pods), gives_back, oldest, again_at, given_back=True)


HALF = (placed(), placed("rollout", 0), pod("rollout", 1))


@pytest.mark.parametrize(
    ("case", "age", "move"),
    [
        (waiting(*HALF), 59, Move.WAIT),
        (waiting(*HALF), 60, Move.GIVE_BACK),
        (waiting(*HALF, oldest=True), 60, Move.WAIT),
        (waiting(*HALF, oldest=True), 120, Move.GIVE_BACK),
        # Another gathers them: Kueue, or the scheduler.
        (waiting(*HALF, gives_back=False), 600, Move.WAIT),
        # What holds nothing has nothing to give.
        (waiting(pod(), pod("rollout", 0), pod("rollout", 1)), 600, Move.WAIT),
        # All are there: the grant is on its way.
        (waiting(placed(), placed("rollout", 0), placed("rollout", 1)), 600, Move.WAIT),
    ],
)
def test_what_is_held_without_being_whole_is_given_back_in_time(case: Waiting, age: float, move: Move) -> None:
    assert choose_move(case, LIMIT, T + age) is move


def test_pods_are_made_again_after_the_wait_and_once_the_old_ones_are_gone() -> None:
    again_at = T + 100
    assert choose_move(waiting(pod(deleting_at=T), again_at=again_at), LIMIT, T + 200) is Move.WAIT
    assert choose_move(waiting(again_at=again_at), LIMIT, T + 99) is Move.WAIT
    assert choose_move(waiting(again_at=again_at), LIMIT, T + 100) is Move.MAKE
    # Nobody older waits any more.
    assert choose_move(waiting(again_at=again_at, oldest=True), LIMIT, T + 50) is Move.MAKE
    assert list_absent(waiting(again_at=again_at)) == [Absent("trainer", 0, (0,)), Absent("rollout", 0, (0, 1))]


def test_what_is_there_while_nothing_is_to_be_is_given_back_too() -> None:
    assert choose_move(waiting(pod(), again_at=T), LIMIT, T + 200) is Move.GIVE_BACK
    begun = replace(waiting(pod(deleting_at=T), again_at=T), given_back=False)
    assert choose_move(begun, LIMIT, T + 200) is Move.GIVE_BACK


def test_a_pod_that_a_dead_node_keeps_is_removed_where_its_barrier_never_opened() -> None:
    kept = waiting(placed(deleting_at=T), again_at=T + 100)
    late = T + STUCK_SECONDS
    assert choose_move(replace(kept, barred=True), LIMIT, late - 1) is Move.WAIT
    assert choose_move(replace(kept, barred=True), LIMIT, late) is Move.DROP
    # Without a barrier its program may run there.
    assert choose_move(kept, LIMIT, late) is Move.WAIT


def test_a_held_launch_is_not_made_again() -> None:
    assert choose_move(waiting(again_at=HELD, oldest=True), LIMIT, T + 10**9) is Move.WAIT


def test_a_pod_that_is_missing_is_made() -> None:
    case = waiting(placed(), placed("rollout", 1))
    assert choose_move(case, LIMIT, T) is Move.MAKE
    assert list_absent(case) == [Absent("rollout", 0, (0,))]


def test_a_pod_that_somebody_removed_is_not_made_again() -> None:
    view = View(view_pods([placed(), placed("rollout", 1)]).pods, view_pods([placed("rollout", 0)]).pods)
    assert list_absent(Waiting(group(), view, True, False)) == []


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
    assert choose_move(tried, LIMIT, T + 99) is Move.WAIT
    assert choose_move(tried, LIMIT, T + 100) is Move.MAKE


@pytest.mark.parametrize("soft", [True, False])
def test_the_reason_says_how_many_have_a_place_and_what_the_scheduler_says_of_the_rest(soft: bool) -> None:
    words = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available"
    last = pod("rollout", 1, waiting_reason="Unschedulable", waiting_message=words)
    story = Story("lab/inst-7-0", group(), "uid", "lab", soft=soft)
    view = view_pods([placed(started_at=None), placed("rollout", 0, started_at=None), last])
    report = story.tell(view, "", T + 10)
    assert report is not None and report.events == (Queued(T + 10, "Resources"),)
    report = story.tell(view, "", T + 20)
    facts = "Resources: 2 of 3 have a place: 0/2 nodes are available: 2 Insufficient cpu."
    assert report is not None and report.events == (Queued(T + 20, facts),)
    # It is still the reason while its pods are given back, and said once.
    story.again_at = T + 100
    assert story.tell(view_pods([]), "", T + 50) is None


def test_what_was_given_back_is_no_trace_of_an_end() -> None:
    gone = [placed(), placed("rollout", 0), placed("rollout", 1)]
    story = Story("lab/inst-7-0", group(), "uid", "lab", again_at=T + 100)
    report = story.tell(story.view([], gone), "", T + 50)
    assert report is not None and report.events == (Queued(T + 50, "Resources"),)
    story.again_at = 0.0
    report = story.tell(story.view([], gone), "", T + 50)
    assert report is not None and isinstance(report.events[0], Granted)


def test_an_attempt_that_does_not_start_after_the_grant_says_why_once() -> None:
    story = Story("lab/inst-7-0", group(), "uid", "lab")
    known = "1;0:1:0;1:0:1x2"
    stuck = placed(attempt=1, go=GO, started_at=None, waiting_reason="ErrImagePull", waiting_message="no such image")
    view = view_pods([stuck, running("rollout", 0), running("rollout", 1)])
    report = story.tell(view, known, T + 50)
    assert report is not None
    (event,) = report.events
    assert isinstance(event, Queued) and event.task == "trainer" and "no such image" in event.reason
    assert story.tell(view, report.cursor, T + 51) is None
    cured = view_pods([stuck._replace(waiting_reason="", waiting_message=""), *view.pods.values()][:1])
    report = story.tell(cured._replace(pods={**view.pods, **cured.pods}), known, T + 52)
    assert report is not None and report.events == (Queued(T + 52, "None", task="trainer"),)


def test_mounts_are_told_by_events_after_the_grant_too() -> None:
    story = Story("lab/inst-7-0", group(), "uid", "lab")
    stuck = placed(attempt=1, go=GO, started_at=None)
    story.troubles = {stuck.uid: "a volume cannot be mounted (FailedMount): no such claim"}
    report = story.tell(view_pods([stuck, running("rollout", 0), running("rollout", 1)]), "1;0:1:0;1:0:1x2", T + 50)
    assert report is not None
    (event,) = report.events
    assert isinstance(event, Queued) and event.reason.startswith("JobLaunchFailure: a volume cannot be mounted")
