"""Flushes: an attempt with MOUNT_CACHED folders has ended when its programs have, and its data is in the store. Pure.

Until then it is COMPLETING. `flush.timeout` bounds the time for that, also where the data mover hangs.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from overspan.bridge.lifecycle.lookup import find_attempt
from overspan.bridge.lifecycle.outcomes import end_attempt, put_attempt, put_task
from overspan.bridge.model import events
from overspan.bridge.model.durations import format_elapsed, format_timestamp
from overspan.bridge.model.job import Attempt, Flush, Job, Task
from overspan.bridge.model.records import replace
from overspan.bridge.model.sizes import format_bytes
from overspan.bridge.model.states import State, move

FLUSHING = "Flushing"
"""The reason of what is COMPLETING only because data is on its way."""


_UNSENT = "not in the store"
"""What the detail of an attempt says that could not send all."""


def end_programs(job: Job, task: Task, attempt: Attempt, at: float) -> Job:
    """The job when the last program of an attempt has ended: the attempt has, too, or its data is on its way."""
    spec = job.spec_of(task.name)
    began = any(node.started_at is not None for node in attempt.nodes)
    if not (spec.flushes and began):
        return end_attempt(job, task, attempt, at)
    attempt = replace(attempt, state=State.COMPLETING, flush=Flush(at, at + spec.flush.timeout))
    return put_task(job, put_attempt(replace(task, state=move(task.state, State.COMPLETING), reason=FLUSHING), attempt))


def find_flush(job: Job, name: str, number: int) -> Optional[tuple[Task, Attempt, Flush]]:
    """The task, its attempt of that number and the flush of that; None where no data of it is on its way."""
    found = find_attempt(job, name, number)
    if found is None or found[1].flush is None:
        return None
    return (*found, found[1].flush)


def has_sent_all(attempt: Attempt) -> bool:
    """Whether the flush of an ended attempt confirmed that all its data is in the stores."""
    return attempt.flush is not None and attempt.flush.sent


def describe_flush(flush: Flush) -> str:
    """How much is left, until when it is tried, and what keeps it."""
    left = "" if flush.left is None else f"{format_bytes(flush.left)} left, "
    trouble = f"; {flush.trouble}" if flush.trouble else ""
    return f"{left}until {format_timestamp(flush.until)}{trouble}"


def _flushing(job: Job, event: events.Flushing) -> Optional[Job]:
    found = find_flush(job, event.task, event.attempt)
    if found is None:
        return None
    task, attempt, flush = found
    return put_task(
        job, put_attempt(task, replace(attempt, flush=replace(flush, left=event.left, trouble=event.trouble)))
    )


def _flushed(job: Job, event: events.Flushed) -> Optional[Job]:
    found = find_flush(job, event.task, event.attempt)
    if found is None:
        return None
    task, attempt, flush = found
    attempt = replace(attempt, flush=replace(flush, left=event.left, sent=not (event.error or event.left)))
    unsent = f"{_word_left(event.left)} {_UNSENT}: {event.error}" if event.error else ""
    return end_attempt(job, task, attempt, event.at, unsent)


def _abandon(job: Job, event: events.AbandonFlush) -> Optional[Job]:
    found = find_flush(job, event.task, event.attempt)
    if found is None:
        return None
    task, attempt, flush = found
    over = f"flush.timeout ({format_elapsed(flush.until - flush.at)}) is over"
    if flush.trouble:
        over = f"{over}: {flush.trouble}"
    why = "cancelled without it" if task.unflushed else over
    return end_attempt(job, task, attempt, event.at, f"{_word_left(flush.left)} {_UNSENT}: {why}")


def _word_left(left: Optional[int]) -> str:
    """How much is missing, as a subject with its verb."""
    return f"{format_bytes(left)} are" if left else "some data is"


HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {
    events.Flushing: _flushing,
    events.Flushed: _flushed,
    events.AbandonFlush: _abandon,
}
"""Each gives the job after the event; None where the event is late or makes no sense."""
