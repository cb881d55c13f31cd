"""What one decision asks of the cluster."""

from __future__ import annotations

import pytest
from tests.unit.adapters.kubernetes.pods import GO, TOKEN, T, ended, group, placed, pod, running

from overspan.adapters.kubernetes.launches.pod_actions import (
    CreatePods,
    DeletePod,
    ExecInPod,
    LaunchFacts,
    LosePod,
    PatchPod,
    PodAction,
    kill_words,
    misses_pods,
    plan_actions,
)
from overspan.adapters.kubernetes.observation.launch_summaries import TaskSummary
from overspan.adapters.kubernetes.observation.projection import Cursor, PodSnapshot, Progress, take_snapshot, write_go
from overspan.adapters.kubernetes.observation.records import GO as MARK
from overspan.adapters.kubernetes.observation.records import MEMBER
from overspan.bridge.model import events
from overspan.bridge.model.events import Event

NOW = T + 100
GROUP = group(TaskSummary("trainer", 1, 0), TaskSummary("rollout", 2, 0, notice_signal="USR1"))


def plan(event: Event, snapshot: PodSnapshot, cursor: Cursor | None = None) -> tuple[PodAction, ...]:
    return plan_actions(event, LaunchFacts(GROUP, snapshot, cursor or Cursor(True), NOW))


def test_a_first_launch_lets_the_waiting_pods_go() -> None:
    first, second = placed("rollout", 0), placed("rollout", 1)
    actions = plan(events.Launch(T + 10, "rollout", 0), take_snapshot([placed(), first, second]))
    assert actions == (PatchPod(first, {MARK: GO}), PatchPod(second, {MARK: GO}))
    # What was let go already is left alone.
    assert plan(events.Launch(T + 10, "rollout", 0), take_snapshot([first._replace(go=GO), second])) == actions[1:]


def test_a_later_launch_frees_the_names_before_it_makes_pods() -> None:
    old = ended("rollout", 0)
    actions = plan(events.Launch(T + 30, "rollout", 1), take_snapshot([old, ended("rollout", 1, member="")]))
    assert actions == (PatchPod(old, labels={MEMBER: None}), CreatePods("rollout", 1, (0, 1), 0, write_go(T + 30)))


def test_only_pods_that_are_missing_are_made() -> None:
    made = placed("rollout", 1, attempt=1, go=write_go(T + 30))
    (create,) = plan(events.Launch(T + 30, "rollout", 1), take_snapshot([made]))
    assert create == CreatePods("rollout", 1, (0,), 0, write_go(T + 30))


def test_a_launch_that_is_over_makes_nothing() -> None:
    told = Cursor(True, {"rollout": Progress(1, (3, 3))})
    assert plan(events.Launch(T + 30, "rollout", 1), take_snapshot([]), told) == ()
    assert plan(events.Launch(T + 30, "rollout", 0), take_snapshot([]), told) == ()


def test_a_node_is_started_again_alone_under_its_name() -> None:
    old = ended("rollout", 1, code=1)
    cursor = Cursor(True, {"rollout": Progress(0, (1, 3))})
    relaunch = events.NodeRelaunch(T + 40, "rollout", 0, 1, 1)
    actions = plan(relaunch, take_snapshot([running("rollout", 0), old]), cursor)
    assert actions == (PatchPod(old, labels={MEMBER: None}), CreatePods("rollout", 0, (1,), 1, write_go(T + 40)))
    assert plan(relaunch, take_snapshot([running("rollout", 0), running("rollout", 1, run=1)]), cursor) == ()


def test_an_end_is_marked_and_given_what_is_left_of_its_grace() -> None:
    live = running("rollout", 0)
    terminate = events.Terminate(T + 90, "rollout", 0, "cancel", T + 120.2)
    actions = plan(terminate, take_snapshot([live, ended("rollout", 1)]))
    assert actions == (DeletePod(live, 21), PatchPod(live, {MARK: write_go(T + 10, T + 90)}))
    late = events.Terminate(T + 10, "rollout", 0, "cancel", T + 20)
    assert plan(late, take_snapshot([live, ended("rollout", 1)]))[0] == DeletePod(live, 1)
    again = live._replace(go=write_go(T + 10, T + 90), deleting_at=T + 121)
    assert plan(terminate, take_snapshot([again, ended("rollout", 1)])) == ()


def test_a_pod_behind_its_barrier_is_deleted_before_it_is_marked() -> None:
    waiting = placed()
    actions = plan(events.Terminate(T + 90, "trainer", 0, "cancel", T + 120), take_snapshot([waiting]))
    assert actions == (DeletePod(waiting, 20), PatchPod(waiting, {MARK: write_go(T + 90, T + 90)}))


def test_what_is_to_end_and_was_never_made_is_told_as_ended() -> None:
    terminate = events.Terminate(T + 90, "trainer", 1, "cancel", T + 120)
    facts = LaunchFacts(GROUP, take_snapshot([ended()]), Cursor(True, {"trainer": Progress(0, (3,))}), NOW)
    assert misses_pods(terminate, facts)
    assert plan_actions(terminate, facts) == (LosePod("trainer", 1, 0, write_go(T + 90, T + 90)),)


def test_a_kill_leaves_a_second() -> None:
    live = running(deleting_at=T + 400, go=write_go(T + 10, T + 90))
    assert plan(events.Kill(T + 120, "trainer", 0), take_snapshot([live])) == (DeletePod(live, 1),)


def test_a_kill_leaves_a_pod_whose_grace_is_over_to_its_kubelet() -> None:
    """It may have heard of the deletion only now, since the API server was away; its grace would become a second."""
    live = running(deleting_at=NOW + 1, go=write_go(T + 10, T + 90))
    assert plan(events.Kill(T + 120, "trainer", 0), take_snapshot([live])) == ()
    assert plan(events.Kill(T + 120, "trainer", 0), take_snapshot([running()])) == (DeletePod(running(), 1),)


def test_a_notice_is_a_line_and_a_signal() -> None:
    live = running("rollout", 0)
    mark, signal = plan(events.Notice(T + 60, "rollout", T + 70), take_snapshot([live, ended("rollout", 1), running()]))
    assert isinstance(mark, PatchPod) and mark.pod == live
    (line,) = mark.annotations.values()
    assert line == f'{{"kind": "primaries_done", "task": "rollout", "at": {T + 60}, "deadline": {T + 70}}}\n'
    assert signal == ExecInPod(live, kill_words("USR1", batch_only=False))


def test_a_warning_has_its_signal_where_one_was_asked_for() -> None:
    live = running()
    assert len(plan(events.Warn(T + 60, "trainer", 0, T + 70), take_snapshot([live]))) == 1
    actions = plan(events.Warn(T + 60, "trainer", 0, T + 70, "TERM", True), take_snapshot([live]))
    assert actions[1] == ExecInPod(live, ("/bin/sh", "-c", "kill -s TERM 1"))


def test_a_signal_reaches_what_runs() -> None:
    live = running("rollout", 1)
    pods = take_snapshot([placed(), pod("rollout", 0), live])
    assert plan(events.Signal(NOW, 10), pods) == (ExecInPod(live, kill_words("USR1", batch_only=False)),)
    assert plan(events.Signal(NOW, 10, "trainer"), pods) == ()


def test_an_order_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="Hold"):
        plan(events.Hold(NOW), take_snapshot([]))


def test_the_members_token_is_what_the_service_selects() -> None:
    assert placed().member == TOKEN
