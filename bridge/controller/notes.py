"""What a job file asks for that is accepted without effect, in sentences for the submitter."""

from __future__ import annotations

from overspan.adapters.contract import Adapter, Notes
from overspan.bridge.model.job import Job


def list_notes(job: Job, adapter: Adapter, cluster: str) -> tuple[str, ...]:
    """The readers' notes, those of this version and those of the cluster."""
    spec = job.spec
    notes = list(spec.notes)
    if len(spec.clusters) > 1:
        notes.append(f"of several clusters this version uses the first: {cluster}")
    if spec.race:
        notes.append("race has no effect in this version")
    if spec.failover_after is not None:
        notes.append("failover_after has no effect in this version")
    if spec.start_timeout is not None:
        notes.append("start_timeout has no effect in this version")
    if isinstance(adapter, Notes):
        notes += adapter.notes(job)
    return tuple(notes)
