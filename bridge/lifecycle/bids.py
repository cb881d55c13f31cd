"""Races: a waiting job has a launch on one cluster and bids on others; the first cluster to grant resources runs it.

A bid waits behind a start gate that only the daemon opens, so a bid ends by decision alone: late reports of a bid that
has ended change nothing. The bids that a job should have follow from its facts.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from overspan.bridge.lifecycle.candidates import CandidateRef, list_open, take_candidate
from overspan.bridge.lifecycle.eligibility import judge, merely_waits
from overspan.bridge.lifecycle.stages import is_under_way
from overspan.bridge.model import events
from overspan.bridge.model.job import Bid, Departure, Job
from overspan.bridge.model.records import NamedTuple, replace

AGAIN_SECONDS = 60.0
"""Back-off before a lost bid is made again; it grows with each loss."""
MOST_LOSSES = 5
"""Lost bids after which a cluster is out of the race."""


class Entries(NamedTuple):
    """The clusters whose bid should end, those that should get one, and when the next bid may be made."""

    withdrawn: tuple[str, ...] = ()
    entered: tuple[str, ...] = ()
    wake_at: Optional[float] = None


def plan_bids(job: Job, now: float) -> Entries:
    """Compare a job's bids with those it should have: one on each other candidate, while the job may start."""
    if not job.racers:
        return Entries()
    times = {name: _entry_time(job, name) for name in list_rivals(job)} if judge(job, now).now else {}
    present = {bid.cluster for bid in job.bids}
    wanted = {name: at for name, at in times.items() if name not in present}
    return Entries(
        tuple(bid.cluster for bid in job.bids if bid.cluster not in times),
        tuple(name for name, at in wanted.items() if at <= now),
        min((at for at in wanted.values() if at > now), default=None),
    )


def list_rivals(job: Job) -> tuple[str, ...]:
    """The clusters that may get a bid, in the job's order; none where it does not race."""
    if job.cluster not in job.racers or is_under_way(job):
        return ()
    return tuple(
        name
        for name in job.racers
        if name != job.cluster and list_open(job, name) and len(_losses(job, name)) < MOST_LOSSES
    )


def find_bid(job: Job, cluster: str) -> Optional[Bid]:
    """The bid on that cluster."""
    return next((bid for bid in job.bids if bid.cluster == cluster), None)


def find_launch(job: Job, number: int) -> Optional[Job]:
    """The job as seen by one of its launches, the present one or a bid; None where it has no launch of that number."""
    if number == job.launch:
        return replace(job, bids=()) if job.bids else job
    bid = next((bid for bid in job.bids if bid.launch == number), None)
    return None if bid is None else _take_place(replace(job, bids=()), bid)


def note_bid(job: Job, cluster: str, **facts: Any) -> Job:
    """The job with its bid on that cluster replaced."""
    return replace(job, bids=tuple(replace(bid, **facts) if bid.cluster == cluster else bid for bid in job.bids))


def _enter(job: Job, event: events.Enter) -> Optional[Job]:
    if not merely_waits(job) or event.cluster not in list_rivals(job) or find_bid(job, event.cluster) is not None:
        return None
    number = job.next_launch
    bid = Bid(event.cluster, number, event.at, candidate=list_open(job, event.cluster)[0].candidate)
    return replace(job, bids=(*job.bids, bid), newest=number)


def _withdraw(job: Job, event: events.Withdraw) -> Optional[Job]:
    bid = find_bid(job, event.cluster)
    if bid is None:
        return None
    job = replace(job, bids=_without(job, event.cluster))
    return _depart(job, event, CandidateRef(bid.candidate, bid.cluster)) if event.text else job


def _promote(job: Job, event: events.Promote) -> Optional[Job]:
    bid = find_bid(job, event.cluster)
    if bid is None or not merely_waits(job):
        return None
    after = replace(_take_place(job, bid), bids=_without(job, event.cluster))
    return _depart(after, event, CandidateRef(job.candidate, job.cluster)) if event.text else after


def _take_place(job: Job, bid: Bid) -> Job:
    return replace(
        take_candidate(job, CandidateRef(bid.candidate, bid.cluster)),
        launch=bid.launch,
        unstarted=job.unstarted + bid.launch - job.launch,
        offered_at=bid.at,
        reason=bid.reason,
        expected_start=None,
    )


def _depart(job: Job, event: Any, place: CandidateRef) -> Job:
    departure = Departure(event.at, place.cluster, event.text, event.refused, raced=True, candidate=place.candidate)
    return replace(job, passed=(*job.passed, departure))


def _without(job: Job, cluster: str) -> tuple[Bid, ...]:
    return tuple(bid for bid in job.bids if bid.cluster != cluster)


def _losses(job: Job, cluster: str) -> list[Departure]:
    """Bids that the cluster accepted and then lost; refusals do not count."""
    return [one for one in job.passed if one.cluster == cluster and one.raced and not one.refused]


def _entry_time(job: Job, cluster: str) -> float:
    """The earliest time for a bid on that cluster."""
    losses = _losses(job, cluster)
    return losses[-1].at + AGAIN_SECONDS * len(losses) if losses else 0.0


HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {
    events.Enter: _enter,
    events.Withdraw: _withdraw,
    events.Promote: _promote,
}
"""Each gives the job after the event; None where the event is late or makes no sense."""
