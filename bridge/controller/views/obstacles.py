"""Obstacles: why a job waits although its own facts do not tell: a call in doubt, a cluster that is stale or gone."""

from __future__ import annotations

from overspan.bridge.controller.core.cluster_locations import ClusterLocations
from overspan.bridge.controller.core.outbox import ORDER
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.unit_of_work import is_end
from overspan.bridge.model.durations import format_timestamp


class Obstacles:
    """Finds the obstacles of jobs. Nothing of it is stored."""

    def __init__(self, recorder: Recorder, locations: ClusterLocations) -> None:
        self._recorder = recorder
        self._locations = locations
        self._told: set[int] = set()
        self._absent: frozenset[str] = frozenset()
        self._counted: tuple[int, frozenset[str]] = (-1, frozenset())
        """The registry's revision and the clusters of the cached `_absent`, whose computation looks at every job."""

    def describe(self, entry: JobEntry) -> str:
        """What hinders a job now; empty where nothing does."""
        if entry.job.over:
            return ""
        rows = self._recorder.outbox.of_job(entry.job.id)
        obstacle = self.find_obstacle(entry)
        if not obstacle:
            return ""
        ends = any(row.kind == ORDER and is_end(row) for row in rows)
        return f"cancel ordered; {obstacle}" if ends else obstacle

    def find_obstacle(self, entry: JobEntry) -> str:
        """Why no call about a job is answered at the moment; empty if calls are."""
        cluster = self._locations.clusters.find(entry.cluster)
        if cluster is None:
            return f"{entry.cluster} (not configured)"
        outbox = self._recorder.outbox
        submit = outbox.submit_of(entry.job.id, entry.cluster)
        if cluster.stale_since is not None:
            return f"{cluster.name} has not answered since {format_timestamp(cluster.stale_since)}"
        since = None if submit is None else outbox.unanswered_since(submit.token)
        if since is not None:
            return f"{cluster.name} has not said since {format_timestamp(since)} whether it has the job"
        return ""

    def refresh(self) -> None:
        """Bring the listings' rows in line: of jobs that wait on a cluster that is silent or gone, or are in doubt."""
        registry, outbox = self._recorder.registry, self._recorder.outbox
        clusters = self._locations.clusters
        counted = registry.revision, frozenset(each.name for each in clusters)
        if counted != self._counted:
            self._absent, self._counted = frozenset(self._locations.count_absent()), counted
        absent, silent = self._absent, {each.name for each in clusters if each.stale_since is not None}
        found = {row.job_id for name in silent for row in outbox.of_cluster(name)} if silent else set()
        found |= {entry.job.id for entry in registry if entry.cluster in absent} if absent else set()
        found |= {row.job_id for row in outbox.unanswered()}
        for job_id in found | self._told:
            entry = registry.get(job_id)
            if entry is not None:
                registry.hinder(entry, self.describe(entry))
        self._told = found
