"""Access to a cluster: logins and shells on the user's terminal, and the import of native jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from overspan.adapters.abilities import Entrance, Exec, Invitation, ShellRequest
from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.controller.core.references import Directory, JobTarget
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.submission.verdicts import await_verdict
from overspan.bridge.controller.views.logs import choose_task
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, Rejected
from overspan.bridge.model.job import Job, Task, new_job
from overspan.bridge.model.states import State

TAKE_SECONDS = 10.0
"""Seconds for which an import waits for the cluster's answer."""


_KEEP = "`hold_on_failure` keeps the nodes of a job that fails"


@dataclass(frozen=True)
class ShellParameters:
    """Where a user wants a shell: an empty task is the reference's own, else the first. No command is a shell."""

    task: str = ""
    node: int = 0
    command: tuple[str, ...] = ()
    terminal: bool = True


class Access:
    """Opens logins and shells, and imports native jobs."""

    def __init__(self, recorder: Recorder, clusters: Clusters) -> None:
        self._recorder = recorder
        self._clusters = clusters
        self._directory = Directory(recorder.registry, recorder.repository)

    async def login(self, name: str, user: str = "") -> Invitation:
        """What opens the way to a cluster, for that user where it is reached as each. NotFound for no such cluster."""
        login = self._clusters.get(name).adapter_for(user).traits.login
        return Invitation(f"{name}: there is nothing to log in to") if login is None else await login()

    async def enter(self, ref: str, parameters: ShellParameters) -> tuple[Entrance, str]:
        """What to run for a shell at a member of a job, and where that is, for the user to read.

        Raises NotFound for no such job, task or node, Conflict for one that has nothing to enter, InvalidRequest.
        """
        target = await self._directory.find(ref)
        entry = target.entry
        task = choose_task(target, parameters.task)
        check_open(target, task)
        nodes = {place.index: place.node for place in entry.job.placements if place.task == task.name}
        if parameters.node not in nodes:
            last = entry.job.spec_of(task.name).num_nodes - 1
            raise NotFound(
                f"{task.name} of job {entry.job.id} has no node {parameters.node}",
                remedy=f"its nodes are 0 to {last}" if last else "its only node is 0",
            )
        adapter = self._clusters.get(entry.cluster).adapter
        if not isinstance(adapter, Exec):
            raise InvalidRequest(f"the cluster {entry.cluster} gives no shells")
        host = nodes[parameters.node]
        request = ShellRequest(entry.handle, task.name, parameters.node, host, parameters.command, parameters.terminal)
        return await adapter.enter(request), f"{task.name}-{parameters.node} of job {entry.job.id} on {host}"

    async def take_in(self, name: str, native: str, user: str) -> JobEntry:
        """Make a job of one that the cluster has: it is watched from now on, and never submitted.

        Raises NotFound, InvalidRequest, Denied, Conflict for one that is watched already, Rejected, Unreachable.
        """
        cluster = self._clusters.get(name)
        find_job = cluster.adapter_for(user).traits.find_job
        if find_job is None:
            raise InvalidRequest(
                f"the cluster {cluster.name} cannot watch jobs of others",
                remedy="clusters of the kind slurm can",
            )
        foreign = await find_job(native)
        spec = replace(foreign.spec, clusters=(cluster.name,))
        if cluster.config.personal:
            # Whose job it is says who asks, not what commands in that user's name have printed.
            spec = replace(spec, origin=replace(spec.origin, user=user))
        self._check_new(cluster, spec.adopted)
        number = await self._recorder.repository.next_ids(1)
        submitted = self._recorder.clock() if foreign.submitted_at is None else foreign.submitted_at
        entry = JobEntry(new_job(number, spec, submitted), cluster.name, user)
        await self._recorder.insert([entry])
        refusal = await await_verdict(self._recorder, self._clusters, entry, TAKE_SECONDS)
        if refusal is not None:
            raise Rejected(refusal)
        return entry

    def _check_new(self, cluster: Cluster, native: str) -> None:
        for entry in self._recorder.registry:
            if entry.cluster == cluster.name and native in (*entry.native_id.split(","), entry.job.spec.adopted):
                raise Conflict(
                    f"{cluster.name}:{native} is job {entry.job.id}", remedy=f"`span show {entry.job.id}` shows it"
                )


def check_open(target: JobTarget, task: Task) -> None:
    """Refuse a shell where no node is held: before the start, after the end. Raises Conflict and InvalidRequest."""
    job = target.entry.job
    if job.array is not None:
        raise InvalidRequest(f"job {job.id} is an array", remedy=f"name an element that runs: {job.id}_INDEX")
    if job.over:
        raise Conflict(f"job {job.id} has ended: {job.state.value}", remedy=_KEEP)
    if not target.entry.handle or job.granted_at is None:
        raise Conflict(f"job {job.id} does not run yet: {job.state.value} ({job.reason})", remedy="wait until it runs")
    if job.state is State.SUSPENDED:
        raise Conflict(f"job {job.id} is suspended", remedy=f"`span scontrol resume {job.id}` lets it go on")
    if is_kept(job):
        return
    if task.over:
        raise Conflict(f"{task.name} of job {job.id} has ended: {task.state.value}", remedy=_KEEP)
    if not task.attempts:
        raise Conflict(f"{task.name} of job {job.id} has not started: {task.reason}", remedy="wait until it runs")


def is_kept(job: Job) -> bool:
    """Whether the job has failed and keeps its nodes for a look."""
    return job.ending is not None and job.ending.hold_until is not None
