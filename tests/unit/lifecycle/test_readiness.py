"""A task that waits until another one is ready: what people are told of it, and what ends the waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from overspan.bridge.lifecycle.decision import decide
from overspan.bridge.lifecycle.readiness import describe_wait, reason_of
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.lifecycle.timeline import transitions
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, Need, NeedKind, OnFailure, Ready, ReadyKind, RetryPolicy, TaskSpec
from overspan.bridge.model.states import State

T = 1000.0
GRANTED = events.Granted(T, (("t", 0, "n", "127.0.0.1", ()), ("s", 0, "n", "127.0.0.2", ())))
STARTED = (events.Launch(T, "s", 0), events.NodeStarted(T + 5, "s", 0, 0))
REFUSED = events.Probed(T + 8, "s", 0, 8, "connection refused")


def make_job(*told: Event, ready: Ready | None = None, **more: object) -> Job:
    """A trainer that waits for a server, after these events."""
    server = TaskSpec("s", run="x", primary=False, ready=ready or Ready(ReadyKind.TCP, "9999"), **more)  # type: ignore[arg-type]
    trainer = TaskSpec("t", run="x", needs=(Need("s", NeedKind.READY),))
    job = new_job(1, JobSpec("g", (trainer, server), group=True), T)
    for event in (GRANTED, *told):
        job = reduce(job, event)
    return job


def wait_of(job: Job) -> str:
    return describe_wait(job, job.task("t"))


def run(job: Job, now: float) -> Job:
    """The job when all that is due was decided."""
    while decisions := decide(job, now).events:
        for decision in decisions:
            job = reduce(job, decision)
    return job


def test_whoever_waits_says_for_whom_and_why() -> None:
    assert reason_of(make_job(), make_job().task("t")) == "Dependency"
    assert wait_of(make_job()) == "t waits for s to start and become ready"
    assert wait_of(make_job(*STARTED)) == "t waits for s: tcp s-0:9999"
    job = make_job(*STARTED, REFUSED)
    assert wait_of(job) == "t waits for s: tcp s-0:9999, 8 tries, connection refused"
    assert (reason_of(job, job.task("t")), reason_of(job, job.task("s"))) == ("Dependency", "None")
    ready = reduce(job, events.TaskReady(T + 9, "s", 0))
    assert wait_of(ready) == "" and reason_of(ready, ready.task("t")) == "None"


@pytest.mark.parametrize(
    ("ready", "words"),
    [
        (Ready(ReadyKind.HTTP, "80/health"), "http s-0:80/health, 1 try, HTTP status 503"),
        (Ready(ReadyKind.FILE, "up"), "file up, 1 try, HTTP status 503"),
        (Ready(ReadyKind.COMMAND, "true\n" * 99), "command true true"),
    ],
)
def test_each_kind_of_probe_is_named(ready: Ready, words: str) -> None:
    job = make_job(*STARTED, events.Probed(T + 8, "s", 0, 1, "HTTP status 503"), ready=ready)
    assert wait_of(job).startswith(f"t waits for s: {words}") and "\n" not in wait_of(job)


def test_the_timeline_tells_it_too() -> None:
    before = make_job(*STARTED)
    (row,) = transitions(before, reduce(before, REFUSED), REFUSED)
    assert (row.task, row.text) == ("s", "t waits for s: tcp s-0:9999, 8 tries, connection refused")


def test_an_answer_cannot_write_on_a_terminal() -> None:
    evil = events.Probed(T + 8, "s", 0, 2, "\x1b[2J\x9b31m\r\nPENDING  root\u202e" + "x" * 9999)
    job = reduce(make_job(*STARTED), evil)
    words = wait_of(job)
    assert words.isprintable() and len(words) < 200 and "?[2J?31m PENDING root?" in words


def test_answers_of_another_attempt_or_after_it_is_ready_change_nothing() -> None:
    job = make_job(*STARTED)
    assert reduce(job, REFUSED._replace(attempt=1)).task("s").probe is None
    ready = reduce(job, events.TaskReady(T + 7, "s", 0))
    assert reduce(ready, REFUSED).late == ready.late + 1


def test_other_needs_are_told_as_well() -> None:
    tasks = (TaskSpec("a", run="x"), TaskSpec("b", run="x", needs=(Need("a", NeedKind.OK),)))
    job = reduce(new_job(1, JobSpec("p", tasks), T), events.Granted(T, (("a", 0, "n", "", ()), ("b", 0, "n", "", ()))))
    assert describe_wait(job, job.task("b")) == "b waits for a to succeed"
    assert reason_of(job, job.task("b")) == "Dependency"


def test_a_server_that_is_not_ready_in_time_fails_and_says_why() -> None:
    job = make_job(*STARTED, REFUSED, on_failure=OnFailure.FAIL_GROUP)
    deadline = T + 5 + Ready.timeout
    assert decide(job, deadline - 1).events == () and decide(job, T + 9).wake_at == deadline
    job = run(job, deadline)
    stop = job.task("s").attempts[0].stop
    assert stop is not None and stop.cause is Cause.NOT_READY
    job = run(reduce(job, events.NodeEnded(deadline + 1, "s", 0, 0, signal=15)), deadline + 1)
    (attempt,) = job.task("s").attempts
    assert attempt.detail == "not ready within 1800 s: tcp s-0:9999, 8 tries, connection refused"
    assert (job.task("s").state, job.task("s").reason, job.state) == (State.FAILED, "NotReady", State.FAILED)


def test_it_starts_again_on_the_budget_for_errors() -> None:
    job = make_job(*STARTED, REFUSED, retry=RetryPolicy(max_restarts_on_errors=1))
    deadline = T + 5 + Ready.timeout
    job = reduce(run(job, deadline), events.NodeEnded(deadline + 1, "s", 0, 0, signal=15))
    task = job.task("s")
    assert (task.state, task.errors) == (State.PENDING, 1) and task.next_start is not None
    job = run(job, task.next_start)
    assert job.task("s").attempts[-1].number == 1
    # What the first attempt's probe said is not said of the second.
    assert wait_of(reduce(job, events.NodeStarted(task.next_start, "s", 1, 0))) == "t waits for s: tcp s-0:9999"


@pytest.mark.parametrize(
    "job",
    [
        make_job(*STARTED, ready=Ready(ReadyKind.TCP, "1", timeout=0)),
        make_job(*STARTED, events.TaskReady(T + 6, "s", 0)),
        make_job(events.Launch(T, "s", 0)),
    ],
    ids=["for ever", "ready", "not started"],
)
def test_what_has_no_time_limit_for_it_lives_on(job: Job) -> None:
    assert all(not isinstance(event, events.Terminate) for event in decide(job, T + 1e9).events)


def test_nobody_ends_a_server_that_nobody_waits_for() -> None:
    job = make_job(*STARTED)
    alone = replace(job, spec=replace(job.spec, tasks=(replace(job.spec.tasks[0], needs=()), job.spec.tasks[1])))
    assert all(not isinstance(event, events.Terminate) for event in decide(alone, T + 1e9).events)


def test_time_suspended_does_not_count() -> None:
    job = make_job(*STARTED, events.Suspend(T + 10, "me"), events.Resume(T + 110, "me"))
    assert decide(job, T + 200).wake_at == T + 5 + 100 + Ready.timeout
