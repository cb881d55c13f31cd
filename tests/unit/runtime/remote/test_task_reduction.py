"""The facts of a task whose decisions come from the daemon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from overspan.bridge.model import events
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job, Placement, new_job
from overspan.bridge.model.spec import JobSpec, RetryPolicy, TaskSpec
from overspan.bridge.runtime.slurm.task_reduction import RULES, exit_of, is_idle, keep_until, place_members, reduce_task

SPEC = JobSpec(
    name="g",
    group=True,
    tasks=(
        TaskSpec(name="a", run="x", num_nodes=2, retry=RetryPolicy(max_restarts_on_errors=1)),
        TaskSpec(name="b", run="y", primary=False),
    ),
)
JOB = new_job(7, SPEC, 1.0)
LAUNCH = events.Launch(10.0, "a", 3)


def play(*happened: Event, job: Job = JOB) -> Job:
    for event in happened:
        job = reduce_task(job, event)
    return job


def ended(*codes: int, attempt: int = 3) -> list[Event]:
    return [events.NodeEnded(20.0 + node, "a", attempt, node, exit_code=code) for node, code in enumerate(codes)]


def test_any_attempt_may_be_the_first_here() -> None:
    job = play(LAUNCH)
    attempt = job.task("a").current
    assert attempt is not None and attempt.number == 3 and len(attempt.nodes) == 2
    assert not is_idle(job, "a") and is_idle(job, "b")


def test_the_task_is_idle_when_all_its_nodes_have_ended() -> None:
    job = play(LAUNCH, *ended(0))
    assert not is_idle(job, "a")
    job = play(*ended(0, 0)[1:], job=job)
    assert is_idle(job, "a") and job.over is False


def test_nothing_is_decided_whatever_happens() -> None:
    for happened in ((), (LAUNCH,), (LAUNCH, *ended(0, 1))):
        assert RULES.decide(play(*happened), 1e9) == ((), None)


@pytest.mark.parametrize(
    ("happened", "until", "status"),
    [
        ((), None, 0),
        ((LAUNCH,), None, 0),
        ((LAUNCH, *ended(0, 0)), 21.0, 0),
        ((LAUNCH, *ended(0, 4)), 51.0, 4),
        ((LAUNCH, events.Terminate(11.0, "a", 3, "primaries_done", 40.0), *ended(3, 143)), 21.0, 3),
        ((LAUNCH, events.Terminate(11.0, "a", 3, "restart", 40.0), *ended(0, 143)), 51.0, 143),
    ],
)
def test_nodes_are_kept_for_what_may_start_again(happened: Sequence[Event], until: float | None, status: int) -> None:
    job = play(*happened)
    assert keep_until(job, "a", 30) == until
    assert exit_of(job, "a") == status


@pytest.mark.parametrize(("keep", "until"), [(0, 20.0), (60, 80.0)])
def test_nodes_are_not_kept_for_what_has_no_budget(keep: int, until: float) -> None:
    job = replace(JOB, spec=replace(SPEC, hold_on_failure=keep))
    failed = play(events.Launch(10.0, "b", 0), events.NodeEnded(20.0, "b", 0, 0, exit_code=3), job=job)
    assert keep_until(failed, "b", 30) == until


def test_a_signal_tells_as_in_a_shell() -> None:
    assert exit_of(play(LAUNCH, events.NodeEnded(20.0, "a", 3, 0, signal=9)), "a") == 137


def test_a_node_that_starts_again_is_not_idle() -> None:
    job = play(LAUNCH, *ended(1, 0), events.NodeRelaunch(30.0, "a", 3, 0, 1))
    assert not is_idle(job, "a")
    assert is_idle(play(events.NodeEnded(40.0, "a", 3, 0, 1), job=job), "a")


def test_reports_and_stops_of_another_attempt_change_nothing() -> None:
    job = play(LAUNCH)
    late: list[Event] = [events.Terminate(12.0, "a", 2, "cancel", 20.0), *ended(1, attempt=2)]
    assert play(*late, job=job) == job
    assert play(events.Launch(1.0, "nobody", 0)) == JOB


def test_members_are_placed_in_the_order_of_the_file() -> None:
    server, first, second = (Placement("b", 0, "n3", "3"), Placement("a", 0, "n1", "1"), Placement("a", 1, "n2", "2"))
    job = place_members(place_members(JOB, [server]), [second, first])
    assert job.placements == (first, second, server)
    moved = Placement("b", 0, "n9", "9")
    assert place_members(job, [moved]).placements == (first, second, moved)
