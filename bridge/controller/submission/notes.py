"""Notes for the submitter: what a job asks for that has no effect, in sentences."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from overspan.adapters.abilities import Notes
from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.controller.submission.node_capacity import find_misfit
from overspan.bridge.lifecycle.stages import split_stages
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.job import Job

AGAIN_SECONDS = 86400.0
"""After which a standing note is shown to the same user again."""
MOST = 10_000
"""The most notes that are remembered; the oldest are shown again."""


def list_standing(job: Job, cluster: Cluster) -> tuple[str, ...]:
    """The cluster's own notes, which hold for each job of that kind."""
    try:
        adapter = cluster.adapter
    except OverspanError:
        return ()
    if not isinstance(adapter, Notes):
        return ()
    return tuple(dict.fromkeys(note for stage in split_stages(job) for note in adapter.notes(stage)))


def note_size(job: Job, cluster: Cluster) -> tuple[str, ...]:
    """A sentence where no node that is known is large enough, on a cluster that takes such a job and lets it wait."""
    known_nodes = cluster.traits.known_nodes
    misfit = find_misfit(job, known_nodes()) if known_nodes is not None else ""
    return (f"{misfit}; the job waits until there is such a node",) if misfit else ()


def list_notes(job: Job, clusters: Clusters, cluster: Cluster) -> tuple[str, ...]:
    """The readers' notes and those of this version."""
    spec = job.spec
    notes = list(spec.notes)
    if spec.race:
        notes += _note_race(job, clusters)
    if spec.failover_after is not None and spec.choice:
        if spec.array is not None:
            notes.append("failover_after has no effect on an array: its cluster is chosen at the submission")
        else:
            notes += _note_keepers(spec.clusters, clusters)
    if spec.start_timeout is not None and cluster.traits.this_machine and not spec.across:
        notes.append("start_timeout has no effect on this machine, which gives a job all it needs at once")
    if any(task.on_preemption for task in spec.tasks) and not cluster.traits.warns_of_preemption:
        notes.append(f"on_preemption has no effect on {cluster.name}: what is preempted there is told by TERM")
    return tuple(notes)


def _note_race(job: Job, clusters: Clusters) -> list[str]:
    """Who takes no part in a race, and why."""
    if job.spec.array is not None:
        return ["race has no effect on an array: its cluster is chosen at the submission"]
    obstacles = {name: clusters.find_obstacle(name, job) for name in job.spec.clusters}
    notes = [f"{name} takes no part in the race: {obstacle}" for name, obstacle in obstacles.items() if obstacle]
    return notes if job.racers else [*notes, "race has no effect with fewer than two clusters: they are tried in order"]


def _note_keepers(names: tuple[str, ...], clusters: Clusters) -> list[str]:
    """The clusters, except the last of the list, from which a queued job cannot be withdrawn for failover."""
    found = [clusters.find(name) for name in names[:-1]]
    keepers = [cluster.name for cluster in found if cluster is not None and not cluster.gives_back]
    return [f"failover_after has no effect once {name} has queued the job" for name in keepers]


class StandingNotes:
    """Remembers which user was shown which note, in memory only; a new daemon shows them again."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], float] = {}

    def choose(self, user: str, notes: Sequence[str], standing: Collection[str], now: float) -> tuple[str, ...]:
        """The `notes` to show now (epoch seconds): all, except standing ones that were shown within a day."""
        chosen = []
        for note in notes:
            key = user, note
            if note in standing:
                if now - self._told.get(key, float("-inf")) < AGAIN_SECONDS:
                    continue
                self._told.pop(key, None)
                self._told[key] = now
            chosen.append(note)
        while len(self._told) > MOST:
            del self._told[next(iter(self._told))]
        return tuple(chosen)
