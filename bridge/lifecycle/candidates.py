"""The candidates of a waiting job: clusters, each with what the job asks for there."""

from __future__ import annotations

from typing import Optional

from overspan.bridge.model.job import Job
from overspan.bridge.model.records import NamedTuple, replace


class CandidateRef(NamedTuple):
    """A candidate: its number in the list, and its cluster. A cluster may have several candidates."""

    candidate: int
    cluster: str


def list_candidates(job: Job) -> tuple[CandidateRef, ...]:
    """All candidates; empty for a job of the default cluster."""
    return tuple(CandidateRef(number, candidate.cluster) for number, candidate in enumerate(job.spec.places))


def find_candidate(job: Job) -> Optional[CandidateRef]:
    """The candidate that has the job now; None where the job has no list."""
    places = list_candidates(job)
    if job.candidate < len(places) and places[job.candidate].cluster == job.cluster:
        return places[job.candidate]
    return next((place for place in places if place.cluster == job.cluster), None)


def list_open(job: Job, cluster: str) -> tuple[CandidateRef, ...]:
    """The candidates on a cluster that it has not refused."""
    refused = {_number_of(job, departure.cluster, departure.candidate) for departure in job.passed if departure.refused}
    return tuple(place for place in list_candidates(job) if place.cluster == cluster and place.candidate not in refused)


def take_candidate(job: Job, place: CandidateRef) -> Job:
    """The job on that candidate's cluster, asking for what the candidate says."""
    spec = job.spec.take(job.spec.places[place.candidate])
    return replace(job, cluster=place.cluster, candidate=place.candidate, spec=spec, partition="")


def _number_of(job: Job, cluster: str, candidate: Optional[int]) -> Optional[int]:
    if candidate is not None:
        return candidate
    return next((place.candidate for place in list_candidates(job) if place.cluster == cluster), None)
