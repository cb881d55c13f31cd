"""What ended jobs could not send to their object stores: told and removed for users, and removed after its time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.adapters.abilities import EndedLaunch, UnsentKeeper
from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.controller.core.references import Directory
from overspan.bridge.controller.core.registry import entry_of
from overspan.bridge.controller.core.repository import Repository
from overspan.bridge.lifecycle.flushing import has_sent_all
from overspan.bridge.model.durations import format_elapsed
from overspan.bridge.model.errors import Conflict, Denied, InvalidRequest, NotFound, OverspanError
from overspan.bridge.model.job import Job, Task
from overspan.bridge.model.sizes import format_bytes
from overspan.bridge.runtime.data.unsent import UnsentData, UnsentListing
from overspan.bridge.store.records import JobQuery

_log = logging.getLogger(__name__)

_TOGETHER = 200
"""Jobs that a cluster is asked about in one call."""
_LEAST_PAUSE, _LONGEST_PAUSE = 5.0, 3600.0
_LOOKS = 30
"""How often at least it is looked while data is kept, the first time so much before its job is forgotten."""


class UnsentAnswers(NamedTuple):
    """What clusters have, a document each, and why that of others cannot be told."""

    unsent: list[dict[str, Any]]
    notes: list[str]


def may_have_left(job: Job) -> bool:
    """Whether an ended job may have data that no store has: an attempt that could write has not sent all."""
    return any(job.spec_of(task.name).flushes and not _is_sent(task) for task in job.tasks)


def _is_sent(task: Task) -> bool:
    """Whether each attempt that began has sent all; on a volume of pods each has a folder of its own."""
    began = [attempt for attempt in task.attempts if any(node.started_at is not None for node in attempt.nodes)]
    return all(map(has_sent_all, began))


class UnsentJobs:
    """Of the clusters whose adapters can tell (`Traits.unsent`)."""

    def __init__(
        self,
        clusters: Clusters,
        repository: Repository,
        directory: Directory,
        clock: Callable[[], float],
        retention: float,
        in_use: set[int],
        *,
        shared: bool,
    ) -> None:
        self._clusters = clusters
        self._repository = repository
        self._directory = directory
        self._clock = clock
        self._retention = retention
        self._in_use = in_use
        """Jobs whose unsent data is being sent or removed."""
        self._shared = shared
        self._done: set[tuple[int, int]] = set()
        """Jobs with their launches of which nothing is left."""
        self._said: dict[int, str] = {}
        """Why what a job has left stays after its time, as it was logged."""

    # --- for users ---------------------------------------------------------------------------------------------------

    async def list(self, name: str = "") -> UnsentAnswers:
        """What ended jobs have left on a cluster, or on all: {cluster, job, task, url, files, ..., until}.

        `until` is when it is removed. Raises OverspanError.
        """
        self._check_personal()
        chosen = [self._clusters.get(name)] if name else list(self._clusters)
        if name and chosen[0].adapter.traits.unsent is None:
            raise InvalidRequest(
                f"what jobs on {name} cannot send to their stores does not stay there",
                remedy="in pods it does where the cluster's settings have a `data_volume`",
            )
        answers, launches = UnsentAnswers([], []), await self._list_launches([cluster.name for cluster in chosen])
        for cluster in chosen:
            try:
                await self._tell(cluster, launches.get(cluster.name, ()), answers)
            except OverspanError as error:
                if name:
                    raise
                answers.notes.append(f"{cluster.name} does not answer: {error.line}")
        return answers

    async def _tell(self, cluster: Cluster, launches: Sequence[EndedLaunch], answers: UnsentAnswers) -> None:
        keeper = cluster.adapter.traits.unsent if launches else None
        if keeper is None:
            return
        jobs = {launch.job.id: launch.job for launch in launches}
        seconds = self._find_seconds(keeper)
        for part in _split(launches):
            listing = await keeper.list_unsent(part)
            for found in listing.found:
                job = jobs[found.job]
                row = {**found._asdict(), "task": _name_tasks(job, found), "until": (job.ended_at or 0) + seconds}
                answers.unsent.append({"cluster": cluster.name, **row})
            answers.notes.extend(f"job {job} on {cluster.name}: {text}" for job, text in listing.errors)

    async def remove(self, ref: str) -> dict[str, Any]:
        """Remove what an ended job could not send: {job, cluster, files, size}. Raises OverspanError."""
        self._check_personal()
        entry = (await self._directory.find(ref)).entry
        job = entry.job
        if not job.over:
            raise Conflict(f"job {job.id} is {job.state.value}, and its data is in use", remedy="wait for its end")
        if job.id in self._in_use:
            raise Conflict(f"the data of job {job.id} is being sent or removed", remedy="wait for the end of that")
        keeper = self._clusters.get(entry.cluster).adapter.traits.unsent
        listing = await self._remove(keeper, [EndedLaunch(job, entry.handle)]) if keeper else UnsentListing()
        for _, text in listing.errors:
            raise Conflict(f"not all that job {job.id} has left on {entry.cluster} is removed: {text}")
        if not listing.found:
            raise NotFound(f"job {job.id} has left no data on {entry.cluster}")
        _log.info("%s", _word_removal(entry.cluster, listing.found, "by hand"))
        files, size = _count(listing.found)
        return {"job": job.id, "cluster": entry.cluster, "files": files, "size": size}

    async def _remove(self, keeper: UnsentKeeper, launches: Sequence[EndedLaunch]) -> UnsentListing:
        """Remove what these have left, while none of them is queued again. Raises OverspanError."""
        jobs = {launch.job.id for launch in launches}
        self._in_use |= jobs
        try:
            # Again: one may have been queued since they were listed.
            stored = await self._repository.find(JobQuery(ids=tuple(jobs), over=True))
            ended = {(each.job.id, each.job.launch) for each in stored if each.job.over}
            return await keeper.remove_unsent([launch for launch in launches if _name_launch(launch) in ended])
        finally:
            self._in_use -= jobs

    def _check_personal(self) -> None:
        if self._shared:
            raise Denied(
                "the shared daemon keeps no data of object stores",
                remedy="a daemon of your own does: put SPAN_SERVER= before the command",
            )

    # --- after its time ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Remove what has been kept for its time, now and then, until cancelled."""
        swept = time.monotonic()
        while not self._shared:
            await asyncio.sleep(_LEAST_PAUSE)
            # Each time, because clusters are opened when they are first needed.
            if time.monotonic() - swept < self._choose_pause():
                continue
            swept = time.monotonic()
            try:
                await self.sweep()
            except OverspanError as error:
                _log.warning("what jobs could not send cannot be looked for: %s", error.line)
            except Exception:
                _log.exception("what jobs could not send")

    def _choose_pause(self) -> float:
        keepers = [cluster.traits.unsent for cluster in self._clusters if cluster.opened]
        seconds = min((self._find_seconds(keeper) for keeper in keepers if keeper is not None), default=self._retention)
        return min(seconds / _LOOKS, _LONGEST_PAUSE)

    async def sweep(self) -> None:
        """Remove what has been kept for its time. What cannot be removed stays for the next look, and is logged."""
        for name, launches in (await self._list_launches(())).items():
            cluster = self._clusters.find(name)
            waiting = [
                launch
                for launch in launches
                if _name_launch(launch) not in self._done and launch.job.id not in self._in_use
            ]
            if cluster is None or not waiting:
                continue
            try:
                keeper = cluster.adapter.traits.unsent
                if keeper is not None:
                    await self._sweep_cluster(name, keeper, waiting)
            except OverspanError as error:
                _log.info("what jobs on %s could not send is looked for later: %s", name, error.line)

    async def _sweep_cluster(self, name: str, keeper: UnsentKeeper, launches: Sequence[EndedLaunch]) -> None:
        seconds = self._find_seconds(keeper)
        due = [launch for launch in launches if (launch.job.ended_at or 0) + seconds <= self._clock()]
        for whole in _split(due):
            # A rescue may have begun while the parts before were looked at.
            part = [launch for launch in whole if launch.job.id not in self._in_use]
            if not part:
                continue
            listing = await self._remove(keeper, part)
            why = f"after {format_elapsed(seconds)}"
            for job in sorted({found.job for found in listing.found}):
                _log.info("%s", _word_removal(name, [found for found in listing.found if found.job == job], why))
            errors = dict(listing.errors)
            for job, text in errors.items():
                if self._said.get(job) != text:
                    self._said[job] = text
                    _log.warning("what job %d has left on %s stays: %s", job, name, text)
            self._done |= {_name_launch(launch) for launch in part if launch.job.id not in errors}

    def _find_seconds(self, keeper: UnsentKeeper) -> float:
        """How long a cluster keeps it: not longer than the job is known, for nobody could name it then."""
        known = self._retention * (_LOOKS - 1) / _LOOKS
        return known if keeper.seconds is None else min(float(keeper.seconds), known)

    async def _list_launches(self, clusters: Sequence[str]) -> Mapping[str, Sequence[EndedLaunch]]:
        """The ended jobs that may have left data, by their clusters; of all where none is named."""
        found: dict[str, list[EndedLaunch]] = {}
        for stored in await self._repository.find(JobQuery(clusters=tuple(clusters), over=True, writes=True)):
            if stored.job.over and may_have_left(stored.job):
                found.setdefault(stored.cluster, []).append(EndedLaunch(stored.job, entry_of(stored).handle))
        return found


def _name_launch(launch: EndedLaunch) -> tuple[int, int]:
    return launch.job.id, launch.job.launch


def _split(launches: Sequence[EndedLaunch]) -> Iterable[Sequence[EndedLaunch]]:
    return (launches[start : start + _TOGETHER] for start in range(0, len(launches), _TOGETHER))


def _name_tasks(job: Job, found: UnsentData) -> str:
    """The tasks that wrote to a folder."""
    written = found.state != "copy"
    place = found.url, found.store
    return ",".join(
        task.name
        for task in job.spec.tasks
        if any((mount.url, mount.store) == place and mount.written is written for mount in task.storage)
    )


def _count(found: Iterable[UnsentData]) -> tuple[int, int]:
    rows = list(found)
    return sum(each.files for each in rows), sum(each.size for each in rows)


def _word_removal(cluster: str, found: Sequence[UnsentData], why: str) -> str:
    files, size = _count(found)
    urls = ", ".join(sorted({each.url for each in found if each.url})) or "unknown places"
    what = f"{files} file{'s' * (files != 1)}, {format_bytes(size)}, for {urls}"
    return f"what job {found[0].job} could not send was removed from {cluster} {why}: {what}"
