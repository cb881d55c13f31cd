"""A job in a world of its own: a clock, a decider, and an account of every event."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from overspan.bridge.lifecycle.decision import decide
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.lifecycle.stages import carry
from overspan.bridge.lifecycle.timeline import Transition, transitions
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event, event_from_document, event_to_document
from overspan.bridge.model.job import Attempt, Job, Task, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec

MANY_ROUNDS = 200
"""More rounds of decisions without news than any job of the tests can need."""


def group(*tasks: TaskSpec, **fields: Any) -> JobSpec:
    """A group of these tasks."""
    return JobSpec(name="g", tasks=tasks, group=len(tasks) > 1, **fields)


def primary(name: str = "trainer", **fields: Any) -> TaskSpec:
    """A task that decides when the job ends."""
    return TaskSpec(name=name, run="true", **fields)


def auxiliary(name: str = "server", **fields: Any) -> TaskSpec:
    """A task that serves the primaries."""
    return TaskSpec(name=name, run="true", primary=False, **fields)


class World:
    """Applies events and decisions to a job; the test plays the cluster and the people."""

    def __init__(self, spec: JobSpec, now: float = 1000.0) -> None:
        self.now = now
        self.first = new_job(7, spec, now)
        self.job = self.first
        self.journal: list[Event] = []
        self.taken: list[Event] = []
        self.rows: list[Transition] = []
        self.wake_at: float | None = None

    # --- the clock and the decider ---

    def apply(self, event: Event) -> bool:
        """Reduce one event; False when it was late."""
        before = self.job
        self.job = reduce(before, event)
        self.journal.append(event)
        self.rows += transitions(before, self.job, event)
        if self.job.late > before.late:
            return False
        self.taken.append(event)
        return True

    def decide(self) -> list[Event]:
        """Decide, reduce and ask again until nothing is due; what was decided."""
        made: list[Event] = []
        for _ in range(MANY_ROUNDS):
            found = decide(self.job, self.now)
            self.wake_at = found.wake_at
            assert found.wake_at is None or found.wake_at > self.now
            if not found.events:
                return made
            for event in found.events:
                assert self.apply(event), f"the decider's own {event} was late"
                made.append(event)
        raise AssertionError("decisions without end")

    def advance(self, seconds: float) -> list[Event]:
        """Let time pass and decide, stopping at every wake-up on the way."""
        end = self.now + seconds
        made = self.decide()
        while self.wake_at is not None and self.wake_at <= end:
            self.now = self.wake_at
            made += self.decide()
        self.now = end
        return made + self.decide()

    # --- the cluster ---

    def grant(self) -> list[Event]:
        """Give the job its nodes; what is decided at that moment."""
        members = tuple(
            (task.name, index, f"n{index}", f"127.0.0.{index + 1}", ())
            for task in self.job.spec.tasks
            for index in range(task.num_nodes)
        )
        assert self.apply(events.Granted(self.now, members))
        return self.decide()

    def begin(self, *names: str) -> list[Event]:
        """Report the start of every node of the newest attempts of these tasks, or all that live; what is decided."""
        for task in self.job.tasks:
            attempt = task.current
            if attempt is not None and attempt.live and (not names or task.name in names):
                for node in attempt.nodes:
                    if node.live and node.started_at is None:
                        self.apply(events.NodeStarted(self.now, task.name, attempt.number, node.index, node.run))
        return self.decide()

    def run(self) -> World:
        """Grant and start everything that starts at once."""
        self.grant()
        self.begin()
        return self

    def end(self, name: str, code: int = 0, *, node: int | None = None, **fields: Any) -> list[Event]:
        """Report the end of one node, or of every live one, of a task; what is decided then."""
        attempt = self.attempt(name)
        for run in attempt.nodes:
            if run.live and node in (None, run.index):
                ended = events.NodeEnded(self.now, name, attempt.number, run.index, run.run, exit_code=code, **fields)
                self.apply(ended)
        return self.decide()

    def stop_all(self) -> list[Event]:
        """A second later, every program that was sent TERM has ended by it."""
        self.now += 1
        made: list[Event] = []
        for task in self.job.tasks:
            if task.live and self.attempt(task.name).stop is not None:
                made += self.end(task.name, signal=15)
        return made

    # --- people ---

    def order(self, event: Event) -> list[Event]:
        """Give an order that has to be taken; what is decided then."""
        assert self.apply(event), f"{event} was refused"
        return self.decide()

    # --- looking ---

    def task(self, name: str) -> Task:
        """A task's facts."""
        return self.job.task(name)

    def attempt(self, name: str) -> Attempt:
        """A task's newest attempt."""
        attempt = self.job.task(name).current
        assert attempt is not None
        return attempt

    def states(self) -> str:
        """All states in one line: the job's first, then `task=STATE/reason`."""
        tasks = " ".join(f"{task.name}={task.state.value}/{task.reason}" for task in self.job.tasks)
        return f"{self.job.state.value}/{self.job.reason} {tasks}"

    def replayed(self) -> Job:
        """The job made again from the journal's lines."""
        job = self.first
        for event in self.journal:
            job = reduce(job, event_from_document(json.loads(json.dumps(event_to_document(event)))))
        return job


class StageWorld(World):
    """A world whose cluster gives the present launch what it carries."""

    def grant(self, *, node: str = "n") -> list[events.Event]:
        members = tuple((task.name, 0, f"{node}-{task.name}", "", ()) for task in carry(self.job).tasks)
        assert self.apply(events.Granted(self.now, members))
        return self.decide()


def kinds(made: Iterable[Event]) -> list[str]:
    """Decisions as `Kind task`, in their order."""
    return [f"{type(event).__name__} {getattr(event, 'task', '')}".strip() for event in made]


def causes(made: Iterable[Event]) -> dict[str, str]:
    """Why each task is ended by these decisions."""
    return {event.task: event.cause for event in made if isinstance(event, events.Terminate)}


def lost(world: World, cause: Cause, detail: str = "") -> events.LaunchLost:
    """The report that the cluster no longer knows the present launch."""
    return events.LaunchLost(world.now, world.job.launch, cause.value, detail)


def without_late(job: Job) -> Job:
    """The job's facts but for the counter of late reports."""
    return replace(job, late=0)
