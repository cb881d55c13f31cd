"""Laws that hold for every job and any sequence of events, sensible or not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.lifecycle.strategies import ANY_EVENTS, DECISIONS, NAMES, REPORTS, SPECS
from tests.unit.lifecycle.world import World, without_late

from overspan.bridge.lifecycle.decision import decide
from overspan.bridge.lifecycle.eligibility import judge
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.lifecycle.timeline import transitions
from overspan.bridge.model import events
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.events import Event, event_from_document, event_to_document
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.model.states import LIVE, State, is_legal


class _Drive:
    """Random events with the decider's own in between, so that sequences reach far."""

    def __init__(self, spec: JobSpec) -> None:
        self.world = World(spec)

    def step(self, event: Event | None, decides: bool) -> None:
        """One event, or the news that makes the job go on; then perhaps the decisions."""
        world = self.world
        before = world.job
        world.apply(event if event is not None else self._progress())
        check_step(before, world.job, world.journal[-1])
        if decides:
            world.now = max(world.now, world.journal[-1].at)
            start = len(world.journal)
            known = world.job
            world.decide()
            for decision in world.journal[start:]:
                after = reduce(known, decision)
                check_step(known, after, decision)
                known = after

    def _progress(self) -> Event:
        world = self.world
        if world.job.granted_at is None:
            return events.Granted(world.now, (("a", 0, "n0", "127.0.0.1", ()),))
        for task in world.job.tasks:
            attempt = task.current
            if attempt is None or not attempt.live:
                continue
            for node in attempt.nodes:
                if node.live and node.started_at is None:
                    return events.NodeStarted(world.now, task.name, attempt.number, node.index, node.run)
        for task in world.job.tasks:
            attempt = task.current
            for node in attempt.nodes if attempt is not None and attempt.live else ():
                if node.live:
                    code = node.index * 42 + (attempt.number % 2 if attempt else 0)
                    return events.NodeEnded(world.now, task.name, task.attempts[-1].number, node.index, node.run, code)
        return events.Requeue(world.now)


STEPS = st.lists(st.tuples(st.one_of(st.none(), ANY_EVENTS), st.booleans()), max_size=40)


def check_step(before: Job, after: Job, event: Event) -> None:
    """What no event may break."""
    # Several moves may follow from one event (settled in one go), so chains through PENDING or CONFIGURING count.
    if before.state.terminal:
        assert after.state is before.state or (isinstance(event, events.Requeue) and after.state is State.PENDING)
    for old, new in zip(before.tasks, after.tasks, strict=True):
        if old.state.terminal and new.state is not old.state:
            back = isinstance(event, events.Requeue | events.Restart | events.LaunchLost)
            assert new.state is State.PENDING and (back or after.launch > before.launch)
        assert new.attempts[: len(old.attempts) - 1] == old.attempts[:-1], "closed attempts never change"
        assert len(new.attempts) >= len(old.attempts)
        assert new.errors >= old.errors and new.recoveries >= old.recoveries and new.restarts >= old.restarts
        for attempt in old.attempts:
            if not attempt.live:
                assert attempt in new.attempts
    assert after.launch in (before.launch, before.launch + 1)
    assert after.late in (before.late, before.late + 1)
    if after.late > before.late:
        assert without_late(after) == without_late(before)


def check_facts(job: Job) -> None:
    """What is true of every reachable job."""
    for task in job.tasks:
        spec = job.spec_of(task.name)
        assert [attempt.number for attempt in task.attempts] == list(range(len(task.attempts)))
        assert not any(attempt.live for attempt in task.attempts[:-1])
        assert task.restarts <= spec.retry.max_restarts
        assert task.recoveries <= spec.retry.max_recoveries
        keeps = not spec.primary and spec.on_failure.value == "restart"
        assert keeps or task.errors <= spec.retry.max_restarts_on_errors
        assert task.live == (task.state in LIVE)
        if task.live:
            assert task.attempts[-1].state is task.state
        if task.over:
            assert task.next_start is None and task.wanted is None and task.ended_at is not None
    if job.over:
        assert not any(task.live for task in job.tasks)
        assert all(task.over for task in job.tasks)
        assert job.ended_at is not None
        assert decide(job, 10.0**9) == ((), None)
        assert not judge(job, 10.0**9).now
    if job.state is State.PENDING:
        assert not any(task.live for task in job.tasks)


@settings(max_examples=200, deadline=None)
@given(SPECS, STEPS)
def test_any_sequence_of_events(spec: JobSpec, steps: list[tuple[Event | None, bool]]) -> None:
    drive = _Drive(spec)
    for event, decides in steps:
        drive.step(event, decides)
        check_facts(drive.world.job)
    job = drive.world.job
    assert drive.world.replayed() == job
    assert decode(Job, json.loads(json.dumps(encode(job)))) == job


@settings(max_examples=100, deadline=None)
@given(SPECS, STEPS, st.one_of(REPORTS, DECISIONS))
def test_repeated_reports_and_decisions_change_only_the_counter(
    spec: JobSpec, steps: list[tuple[Event | None, bool]], event: Event
) -> None:
    drive = _Drive(spec)
    for made, decides in steps:
        drive.step(made, decides)
    once = reduce(drive.world.job, event)
    assert without_late(reduce(once, event)) == without_late(once)
    # And all that was taken before, again and in the wrong order.
    job = once
    for old in reversed(drive.world.taken):
        if type(old) in (events.NodeStarted, events.NodeEnded, events.TaskReady, events.LaunchLost, events.Launch):
            job = reduce(job, old)
    assert without_late(job) == without_late(once)


@settings(max_examples=100, deadline=None)
@given(SPECS, STEPS, ANY_EVENTS)
def test_rows_and_documents_of_any_event(spec: JobSpec, steps: list[tuple[Event | None, bool]], event: Event) -> None:
    drive = _Drive(spec)
    for made, decides in steps:
        drive.step(made, decides)
    before = drive.world.job
    after = reduce(before, event)
    for row in transitions(before, after, event):
        assert row.text and row.at == event.at
        if row.start and row.start != row.end:
            assert is_legal(State(row.start), State(row.end)) or _steps_over(State(row.start), State(row.end))
    assert event_from_document(json.loads(json.dumps(event_to_document(event)))) == event


def _steps_over(start: State, end: State) -> bool:
    """Whether one state lies between: an event may end an attempt and close its task."""
    return any(is_legal(start, between) and is_legal(between, end) for between in State)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(SPECS, STEPS)
def test_a_cancelled_task_never_starts_again_by_itself(
    name: str, spec: JobSpec, steps: list[tuple[Event | None, bool]]
) -> None:
    """Only an operator's restart or requeue brings it back."""
    if name not in {task.name for task in spec.tasks}:
        return
    drive = _Drive(replace(spec, requeue=None))
    half = len(steps) // 2
    for event, decides in steps[:half]:
        drive.step(event, decides)
    world = drive.world
    if not world.apply(events.Cancel(world.now, name)):
        return
    attempts = len(world.task(name).attempts)
    for event, decides in steps[half:]:
        if isinstance(event, events.Requeue | events.Restart | events.Launch) or event is None:
            continue
        if isinstance(event, events.LaunchLost | events.Terminate) and event.cause == "requeue":
            continue
        drive.step(event, decides)
    assert len(world.task(name).attempts) == attempts


def test_a_new_job_decodes_from_nothing_but_its_spec() -> None:
    job = new_job(1, JobSpec(name="x", tasks=()), 5.0)
    assert encode(job) == {"id": 1, "spec": {"name": "x", "tasks": []}, "tasks": [], "submitted_at": 5.0}
