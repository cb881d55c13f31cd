"""Trials of the ways between clusters: the job file of one, and what its tasks have found out."""

from __future__ import annotations

from typing import NamedTuple

from overspan.adapters.abilities import HostNetwork
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.known_reach import KnownReach
from overspan.bridge.controller.core.references import Directory
from overspan.bridge.controller.features.reach.results import TrialOutcome, draw_findings, read_results
from overspan.bridge.controller.features.reach.trial_job import TASKS, TrialRequest, write_trial
from overspan.bridge.controller.submission.reach import find_side
from overspan.bridge.controller.views.logs import LogQuery, Logs
from overspan.bridge.model.errors import InvalidRequest, NotFound
from overspan.bridge.model.reach import ReachSide


class TrialFile(NamedTuple):
    """A job file for `span submit`, and whether another one with the host network would differ from it."""

    text: str
    has_host_network: bool


class ReachTrials:
    """The port of trials for the API."""

    def __init__(self, clusters: Clusters, known: KnownReach, directory: Directory, logs: Logs) -> None:
        self._clusters = clusters
        self._known = known
        self._directory = directory
        self._logs = logs
        self._clock = logs.clock

    async def prepare(self, request: TrialRequest, user: str) -> TrialFile:
        """The job file of a trial; what was known of its ways is forgotten, so that it is not refused by that.

        Raises NotFound for an unknown cluster, InvalidRequest for what are not two, and as opening a cluster does.
        """
        if len(set(request.clusters)) != len(TASKS) or len(request.clusters) != len(TASKS):
            raise InvalidRequest("a group across is over different clusters", remedy="name two of `span clusters`")
        adapters = {name: self._clusters.get(name).adapter for name in request.clusters}
        in_pods = [name for name, adapter in adapters.items() if isinstance(adapter, HostNetwork)]
        sides = [ReachSide(name, request.host_network and name in in_pods) for name in adapters]
        if not request.host_network:
            # The cluster's settings may have given its tasks the nodes' addresses then, or do so now.
            sides += [ReachSide(name, True) for name in in_pods]
        await self._known.forget(user, sides)
        return TrialFile(write_trial(request, in_pods), bool(in_pods) and not request.host_network)

    async def conclude(self, ref: str) -> TrialOutcome:
        """What a trial's tasks have found out, which is kept from now on. Raises NotFound, InvalidRequest."""
        entry = (await self._directory.find(ref)).entry
        spec = entry.job.spec
        if tuple(task.name for task in spec.tasks) != TASKS or not all(task.cluster for task in spec.tasks):
            raise InvalidRequest(f"job {ref} is no trial of the ways between clusters")
        sides = {task.name: find_side(entry.job, task, self._clusters) for task in spec.tasks}
        results = {task: read_results(await self._read(ref, task)) for task in TASKS}
        outcome = draw_findings(entry.job, sides, results, self._clock())
        await self._known.keep(entry.user, outcome.findings)
        return outcome

    async def _read(self, ref: str, task: str) -> bytes:
        try:
            return (await self._logs.read(ref, LogQuery(task=task))).part.data
        except NotFound:
            return b""
