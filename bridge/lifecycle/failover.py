"""Which cluster of a list a waiting job goes to next, and when; the effect of its going there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Callable, Optional

from overspan.bridge.lifecycle.eligibility import merely_waits
from overspan.bridge.lifecycle.settlement import reset
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Departure, Job


def list_next(job: Job) -> tuple[str, ...]:
    """The clusters that may have the job after the present one, in order; none while it does not merely wait.

    A job that races waits on them already.
    """
    names = job.spec.clusters
    if job.cluster not in names or job.racers or not merely_waits(job):
        return ()
    return names[names.index(job.cluster) + 1 :]


def failover_time(job: Job) -> Optional[float]:
    """When the job is to leave its cluster for not having been started; None: it stays.

    Where only the cluster says how long, a job stays that has no reason to wait: it has its nodes and is being started.
    """
    after: Optional[float] = job.spec.failover_after
    if after is None and job.reason != "None":
        after = job.patience
    if job.held or job.offered_at is None or after is None or not list_next(job):
        return None
    return job.offered_at + after


def is_withdrawal(event: Event) -> bool:
    """Whether an event takes a waiting launch back, for another cluster."""
    return isinstance(event, events.Expire) and event.cause == Cause.FAILOVER.value


def read_withdrawal(job: Job, event: Event, orders: Iterable[Event]) -> Event:
    """What the end of a launch means that was cancelled while its withdrawal is owed: that, if it never started.

    So a job is not lost when whoever took it back dies before telling it.
    """
    if not isinstance(event, events.LaunchLost) or event.launch != job.launch or event.cause != Cause.CANCEL.value:
        return event
    for order in orders:
        if isinstance(order, events.Expire) and is_withdrawal(order) and order.cluster in list_next(job):
            return order._replace(at=max(order.at, event.at))
    return event


def word_refusals(job: Job, message: str) -> str:
    """The words of every cluster that has refused the job, the last one's being `message`; each named if several."""
    words = [f"{departure.cluster}: {departure.text}" for departure in job.passed if departure.refused]
    return "\n".join([*words, f"{job.cluster}: {message}"]) if words else message


def withdraw(job: Job, event: events.Expire) -> Optional[Job]:
    """The job with the next cluster, after its launch on the present one was ended without having started."""
    if event.cluster not in list_next(job):
        return None
    text = f"not started within {event.at - (job.offered_at or event.at):.0f} s"
    return _relocate(job, event.cluster, Departure(event.at, job.cluster, text, launch=job.launch))


def _offer(job: Job, event: events.Offer) -> Optional[Job]:
    if event.cluster != job.cluster or not merely_waits(job):
        return None
    return replace(job, offered_at=event.at, patience=event.patience)


def _move(job: Job, event: events.Move) -> Optional[Job]:
    if event.cluster not in list_next(job):
        return None
    return _relocate(job, event.cluster, Departure(event.at, job.cluster, event.text, event.refused, job.launch))


def _relocate(job: Job, cluster: str, departure: Departure) -> Job:
    """The job in the queue again, as its next launch; what was ordered of it while it waited still counts."""
    again = reset(replace(job, requeue_held=job.held))
    reason = job.reason if job.held else "None"
    return replace(
        again, begin=job.begin, reason=reason, cluster=cluster, offered_at=None, passed=(*job.passed, departure)
    )


HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {events.Offer: _offer, events.Move: _move}
"""Each gives the job after the event; None where the event is late or makes no sense."""
