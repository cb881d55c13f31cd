"""What a job file asks for that is accepted without effect, in sentences for the submitter."""

from __future__ import annotations

from overspan.adapters.contract import Notes
from overspan.bridge.controller.clusters import LOCAL, Cluster, Clusters
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.job import Job


def list_notes(job: Job, clusters: Clusters, cluster: Cluster) -> tuple[str, ...]:
    """The readers' notes, those of this version and those of the cluster."""
    spec = job.spec
    notes = list(spec.notes)
    if spec.race:
        notes.append("race has no effect in this version: the clusters are tried in order")
    if spec.failover_after is not None and len(spec.clusters) > 1:
        if spec.array is not None:
            notes.append("failover_after has no effect on an array: its cluster is chosen at the submission")
        else:
            notes += _note_keepers(spec.clusters, clusters)
    if spec.start_timeout is not None and cluster.config.kind == LOCAL:
        notes.append("start_timeout has no effect on this machine, which gives a job all it needs at once")
    try:
        adapter = cluster.adapter
    except OverspanError:
        return tuple(notes)
    if isinstance(adapter, Notes):
        notes += adapter.notes(job)
    return tuple(notes)


def _note_keepers(names: tuple[str, ...], clusters: Clusters) -> list[str]:
    """The clusters that a job is not had back from, but for the last, which keeps it anyway."""
    found = [clusters.find(name) for name in names[:-1]]
    keepers = [cluster.name for cluster in found if cluster is not None and not cluster.gives_back]
    return [f"failover_after has no effect once {name} has queued the job" for name in keepers]
