"""The facts of a task whose decisions come from the daemon."""

from __future__ import annotations

from overspan.bridge.lifecycle.execution import execute, place_members
from overspan.bridge.lifecycle.rules import RULES
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.deciders import Decider
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job, Placement, new_job
from overspan.bridge.model.spec import JobSpec, RetryPolicy, TaskSpec
from overspan.bridge.model.states import State

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
        job = execute(job, event)
    return job


def is_live(job: Job, task: str) -> bool:
    return job.task(task).live


def ended(*codes: int, attempt: int = 3) -> list[Event]:
    return [events.NodeEnded(20.0 + node, "a", attempt, node, exit_code=code) for node, code in enumerate(codes)]


def test_any_attempt_may_be_the_first_here() -> None:
    job = play(LAUNCH)
    attempt = job.task("a").current
    assert attempt is not None and attempt.number == 3 and len(attempt.nodes) == 2
    assert is_live(job, "a") and not is_live(job, "b")


def test_the_task_is_idle_when_all_its_nodes_have_ended() -> None:
    job = play(LAUNCH, *ended(0))
    assert is_live(job, "a")
    job = play(*ended(0, 0)[1:], job=job)
    assert not is_live(job, "a") and job.over is False


def test_nothing_is_decided_whatever_happens() -> None:
    for happened in ((), (LAUNCH,), (LAUNCH, *ended(0, 1))):
        assert RULES[Decider.DAEMON].decide(play(*happened), 1e9) == ((), None)


def test_a_node_that_starts_again_is_not_idle() -> None:
    job = play(LAUNCH, *ended(1, 0), events.NodeRelaunch(30.0, "a", 3, 0, 1))
    assert is_live(job, "a")
    assert not is_live(play(events.NodeEnded(40.0, "a", 3, 0, 1), job=job), "a")


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


def test_a_start_and_an_end_are_what_the_deciding_reducer_makes_of_them() -> None:
    started = [events.NodeStarted(11.0 + node, "a", 3, node) for node in (0, 1)]
    attempt = play(LAUNCH, *started).task("a").current
    assert attempt is not None and (attempt.state, attempt.started_at) == (State.RUNNING, 12.0)
    lost = play(LAUNCH, *started, events.NodeEnded(20.0, "a", 3, 0, cause="of a later version")).task("a").current
    assert lost is not None and lost.nodes[0].cause is Cause.NODE


def test_a_later_end_of_a_lost_run_does_not_end_its_successor() -> None:
    job = play(LAUNCH, *ended(1)[:1], events.NodeRelaunch(30.0, "a", 3, 0, 1), *ended(1)[:1])
    attempt = job.task("a").current
    assert attempt is not None and attempt.nodes[0].live
