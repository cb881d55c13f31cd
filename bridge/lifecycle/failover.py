"""Failover: which candidate a waiting job goes on to, when, and the reducers for that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable, Optional, Union

from overspan.bridge.lifecycle.candidates import CandidateRef, find_candidate, list_candidates, take_candidate
from overspan.bridge.lifecycle.eligibility import merely_waits
from overspan.bridge.lifecycle.settlement import reset
from overspan.bridge.lifecycle.stages import is_under_way
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Departure, Job
from overspan.bridge.model.records import replace


def list_next(job: Job) -> tuple[CandidateRef, ...]:
    """The candidates left to try, in order; none once the job does more than wait in a queue.

    A racing job already waits on the other clusters, so only further candidates on its own cluster count. A pipeline
    stays where its first stage ran.
    """
    present = find_candidate(job)
    if present is None or not merely_waits(job) or is_under_way(job):
        return ()
    later = list_candidates(job)[present.candidate + 1 :]
    return tuple(place for place in later if not job.racers or place.cluster == job.cluster)


def failover_time(job: Job) -> Optional[float]:
    """When the job leaves its cluster because it was not started in time; None if it stays.

    If only the cluster sets the time, a job without a reason to wait stays: it has its nodes and is being started.
    """
    after: Optional[float] = job.spec.failover_after
    if after is None and job.reason != "None":
        after = job.patience
    if job.held or job.racers or job.offered_at is None or after is None or not list_next(job):
        return None
    return job.offered_at + after


def is_withdrawal(event: Event) -> bool:
    """Whether an event withdraws a waiting launch in favour of another cluster."""
    return isinstance(event, events.Expire) and event.cause == Cause.FAILOVER.value


def read_withdrawal(job: Job, event: Event, orders: Iterable[Event]) -> Event:
    """Read a launch's cancellation as the pending withdrawal of it, if there is one and nothing started.

    Otherwise a job would end as CANCELLED when the daemon dies after withdrawing it and before recording that.
    """
    if not isinstance(event, events.LaunchLost) or event.launch != job.launch or event.cause != Cause.CANCEL.value:
        return event
    for order in orders:
        if isinstance(order, events.Expire) and is_withdrawal(order) and _find_next(job, order) is not None:
            return order._replace(at=max(order.at, event.at))
    return event


def word_refusals(job: Job, message: str) -> str:
    """The messages of all clusters that refused the job, `message` last; several are each preceded by the cluster."""
    words = [f"{departure.cluster}: {departure.text}" for departure in job.passed if departure.refused]
    return "\n".join([*words, f"{job.cluster}: {message}"]) if words else message


def withdraw(job: Job, event: events.Expire) -> Optional[Job]:
    """Move the job to the next candidate, once its launch has ended without starting."""
    place = _find_next(job, event)
    if place is None:
        return None
    text = f"not started within {event.at - (job.offered_at or event.at):.0f} s"
    return _relocate(job, place, event.at, text)


def _offer(job: Job, event: events.Offer) -> Optional[Job]:
    if event.cluster != job.cluster or not merely_waits(job):
        return None
    return replace(job, offered_at=event.at, patience=event.patience)


def _move(job: Job, event: events.Move) -> Optional[Job]:
    place = _find_next(job, event)
    return None if place is None else _relocate(job, place, event.at, event.text, event.refused)


def _find_next(job: Job, event: Union[events.Expire, events.Move]) -> Optional[CandidateRef]:
    """The candidate that an event names; None where the job may not go there."""
    for place in list_next(job):
        if place.cluster == event.cluster and event.candidate in (None, place.candidate):
            return place
    return None


def _relocate(job: Job, place: CandidateRef, at: float, text: str, refused: bool = False) -> Job:
    """The job queued again as its next launch; orders given while it waited still hold."""
    departure = Departure(at, job.cluster, text, refused, job.launch, candidate=job.candidate)
    again = take_candidate(reset(replace(job, requeue_held=job.held)), place)
    reason = job.reason if job.held else "None"
    return replace(again, begin=job.begin, reason=reason, offered_at=None, passed=(*job.passed, departure))


HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {events.Offer: _offer, events.Move: _move}
"""Each gives the job after the event; None where the event is late or makes no sense."""
