"""The ways into a cluster: a login on the user's terminal, and jobs that somebody gave to the cluster itself."""

from __future__ import annotations

from dataclasses import replace

from overspan.adapters.contract import Import, Invitation, Login
from overspan.bridge.controller.book import Entry
from overspan.bridge.controller.clusters import Cluster, Clusters
from overspan.bridge.controller.recording import Recorder
from overspan.bridge.controller.verdicts import await_verdict
from overspan.bridge.model.errors import Conflict, InvalidRequest, Rejected
from overspan.bridge.model.job import new_job

TAKE_SECONDS = 10.0
"""How long an import waits until the cluster has said that the job is watched."""


class Access:
    """Opens clusters for their users, and takes in what is there already."""

    def __init__(self, recorder: Recorder, clusters: Clusters) -> None:
        self._recorder = recorder
        self._clusters = clusters

    async def login(self, name: str) -> Invitation:
        """What opens the way to a cluster. NotFound for no such cluster."""
        adapter = self._clusters.get(name).adapter
        if not isinstance(adapter, Login):
            return Invitation(f"{name}: there is nothing to log in to")
        invitation: Invitation = await adapter.login()
        return invitation

    async def take_in(self, name: str, native: str, user: str) -> Entry:
        """Make a job of one that the cluster has: it is watched from now on, and never submitted.

        Raises NotFound, InvalidRequest, Denied, Conflict for one that is watched already, Rejected, Unreachable.
        """
        cluster = self._clusters.get(name)
        adapter = cluster.adapter
        if not isinstance(adapter, Import):
            raise InvalidRequest(
                f"the cluster {cluster.name} cannot watch jobs of others",
                remedy="clusters of the kind slurm can",
            )
        foreign = await adapter.find_job(native)
        spec = replace(foreign.spec, clusters=(cluster.name,))
        self._check_new(cluster, spec.adopted)
        number = await self._recorder.ledger.next_ids(1)
        submitted = self._recorder.clock() if foreign.submitted_at is None else foreign.submitted_at
        entry = Entry(new_job(number, spec, submitted), cluster.name, user)
        await self._recorder.insert([entry])
        refusal = await await_verdict(self._recorder, self._clusters, entry, TAKE_SECONDS)
        if refusal is not None:
            raise Rejected(refusal)
        return entry

    def _check_new(self, cluster: Cluster, native: str) -> None:
        for entry in self._recorder.book:
            if entry.cluster == cluster.name and native in (entry.native_id, entry.job.spec.adopted):
                raise Conflict(
                    f"{cluster.name}:{native} is job {entry.job.id}", remedy=f"`span show {entry.job.id}` shows it"
                )
