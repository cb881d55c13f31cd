"""Lists a job's candidates: a cluster with a demand for each task, in order of preference."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from overspan.bridge.model.spec import Candidate
from overspan.bridge.readers.task_document import TaskCandidate
from overspan.bridge.validation.diagnostics import Diagnostics

MOST = 64
"""Combinations of the tasks' alternatives that are tried on one cluster."""

_Ranked = tuple[tuple[int, ...], int, Candidate]


def list_candidates(
    clusters: Sequence[str], tasks: Sequence[Sequence[TaskCandidate]], partition: str, found: Diagnostics
) -> tuple[Candidate, ...]:
    """Every cluster with every combination of the tasks' alternatives there, in the order of the alternatives.

    No clusters: the default one, under an empty name. `partition` is the header's; it wins over those of `infra`.
    """
    ranked: list[_Ranked] = []
    for order, cluster in enumerate(clusters or ("",)):
        rows = [_alternatives_on(cluster, alternatives) for alternatives in tasks]
        combined = list(itertools.islice(itertools.product(*rows), MOST + 1))
        if len(combined) > MOST:
            found.note(f"of the combinations of the tasks' alternatives, {MOST} are tried on each cluster")
        for combination in combined[:MOST]:
            ranks = tuple(rank for rank, _ in combination)
            ranked.append((ranks, order, _combine(cluster, [alternative for _, alternative in combination], partition)))
    ranked.sort(key=lambda item: item[:2])
    return tuple(candidate for _, _, candidate in ranked)


def differ(candidates: Sequence[Candidate]) -> bool:
    """Whether the demands differ between candidates; else the list of clusters is enough."""
    names = [candidate.cluster for candidate in candidates]
    first = candidates[0]
    return len(set(names)) < len(names) or any(
        (candidate.demands, candidate.partition) != (first.demands, first.partition) for candidate in candidates
    )


def _alternatives_on(cluster: str, alternatives: Sequence[TaskCandidate]) -> list[tuple[int, TaskCandidate]]:
    """A task's alternatives on a cluster, with their ranks; all of them where none is for that cluster."""
    ranked = list(enumerate(alternatives))
    return [(rank, alternative) for rank, alternative in ranked if alternative.cluster in ("", cluster)] or ranked


def _combine(cluster: str, alternatives: Sequence[TaskCandidate], partition: str) -> Candidate:
    named = {alternative.partition for alternative in alternatives}
    return Candidate(
        cluster,
        tuple(alternative.demand for alternative in alternatives),
        partition or (named.pop() if len(named) == 1 else ""),
    )
