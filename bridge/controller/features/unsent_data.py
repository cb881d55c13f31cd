"""What ended jobs could not send to their object stores: told and removed for users, and removed after its time."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.adapters.abilities import EndedLaunch, UnsentKeeper
from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.controller.core.references import Directory
from overspan.bridge.controller.core.registry import entry_of
from overspan.bridge.controller.core.repository import Repository
from overspan.bridge.lifecycle.former_clusters import WrittenPlace, list_places, may_have_left
from overspan.bridge.model.durations import format_elapsed
from overspan.bridge.model.errors import Conflict, Denied, InvalidRequest, NotFound, OverspanError
from overspan.bridge.model.job import Job
from overspan.bridge.model.sizes import format_bytes
from overspan.bridge.runtime.data.unsent import UnsentData, UnsentListing
from overspan.bridge.store.records import JobQuery

_log = logging.getLogger(__name__)

_TOGETHER = 200
"""Jobs that a cluster is asked about in one call."""
_LEAST_PAUSE, _LONGEST_PAUSE = 5.0, 3600.0
_LOOKS = 30
"""How often at least it is looked while data is kept, the first time so much before its job is forgotten."""
_KEY = "unsent_sweep"
"""Where the store has when it was looked last, and of which launches nothing is left."""

LaunchPlace = tuple[int, int, str]
"""A job, its newest launch, and a cluster that it wrote on."""


class UnsentAnswers(NamedTuple):
    """What clusters have, a document each, and why that of others cannot be told."""

    unsent: list[dict[str, Any]]
    notes: list[str]


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
        self._done: set[LaunchPlace] = set()
        """Those of which nothing is left."""
        self._swept_at = 0.0
        self._said: dict[tuple[str, int], str] = {}
        """Why what a job has left on a cluster stays after its time, as it was logged."""

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
        answers, launches = UnsentAnswers([], []), await self._list_launches()
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
        removed: dict[str, Sequence[UnsentData]] = {}
        failures = []
        for place in list_places(job, entry.cluster, entry.handle):
            # A cluster that fails keeps no other.
            try:
                removed[place.cluster] = await self._remove_at(place)
            except OverspanError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        if not any(removed.values()):
            raise NotFound(f"job {job.id} has left no data on {', '.join(removed)}")
        files, size = _count(each for found in removed.values() for each in found)
        clusters = ", ".join(cluster for cluster, rows in removed.items() if rows)
        return {"job": job.id, "cluster": clusters, "files": files, "size": size}

    async def _remove_at(self, place: WrittenPlace) -> Sequence[UnsentData]:
        """Remove what a job has left on a cluster; what that was. Raises OverspanError where anything stays."""
        keeper = self._clusters.get(place.cluster).adapter.traits.unsent
        if keeper is None:
            return ()
        listing = await self._remove(keeper, [EndedLaunch(place.job, place.handle)])
        if listing.found:
            _log.info("%s", _word_removal(place.cluster, listing.found, "by hand"))
        for _, text in listing.errors:
            raise Conflict(f"not all that job {place.job.id} has left on {place.cluster} is removed: {text}")
        return listing.found

    async def _remove(self, keeper: UnsentKeeper, launches: Sequence[EndedLaunch]) -> UnsentListing:
        """Remove what these have left, while none of them is queued again. Raises OverspanError."""
        jobs = {launch.job.id for launch in launches}
        self._in_use |= jobs
        try:
            # Again: one may have been queued since they were listed.
            stored = await self._repository.find(JobQuery(ids=tuple(jobs), over=True))
            ended = {(each.job.id, each.job.launch) for each in stored if each.job.over}
            still = [launch for launch in launches if (launch.job.id, launch.job.launch) in ended]
            return await keeper.remove_unsent(still)
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
        """Remove what has been kept for its time, now and then, until cancelled.

        The time of the last look is stored, so that daemons that live shortly look as often as one that lives long.
        """
        while not self._shared:
            await asyncio.sleep(_LEAST_PAUSE)
            try:
                await self.sweep_in_time()
            except OverspanError as error:
                _log.warning("what jobs could not send cannot be looked for: %s", error.line)
            except Exception:
                _log.exception("what jobs could not send")

    async def sweep_in_time(self) -> None:
        """Look, if the last look of this or an earlier daemon was long enough ago. Raises StoreFailed."""
        if not self._swept_at:
            self._recall(await self._repository.meta(_KEY))
        # Each time, because clusters are opened when they are first needed. A clock that was set back is no reason to
        # wait.
        if 0 <= self._clock() - self._swept_at < self._choose_pause():
            return
        self._swept_at = self._clock()
        await self.sweep()
        document = {"at": self._swept_at, "done": sorted(self._done)}
        await self._repository.set_meta(_KEY, json.dumps(document, separators=(",", ":")))

    def _recall(self, text: str | None) -> None:
        """Go on from what an earlier daemon has stored; what cannot be read is looked for again."""
        try:
            document = json.loads(text or "{}")
            self._swept_at = float(document.get("at", 0.0))
            self._done |= {(int(job), int(launch), str(cluster)) for job, launch, cluster in document.get("done", ())}
        except (ValueError, TypeError, AttributeError):
            _log.warning("when it was last looked for what jobs could not send cannot be read; it is looked now")

    def _choose_pause(self) -> float:
        keepers = [cluster.traits.unsent for cluster in self._clusters if cluster.opened]
        seconds = min((self._find_seconds(keeper) for keeper in keepers if keeper is not None), default=self._retention)
        return min(seconds / _LOOKS, _LONGEST_PAUSE)

    async def sweep(self) -> None:
        """Remove what has been kept for its time. What cannot be removed stays for the next look, and is logged."""
        found = await self._list_launches()
        known = {_name_place(name, launch) for name, launches in found.items() for launch in launches}
        self._done &= known
        for name, launches in found.items():
            cluster = self._clusters.find(name)
            waiting = [
                launch
                for launch in launches
                if _name_place(name, launch) not in self._done and launch.job.id not in self._in_use
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
                if self._said.get((name, job)) != text:
                    self._said[name, job] = text
                    _log.warning("what job %d has left on %s stays: %s", job, name, text)
            self._done |= {_name_place(name, launch) for launch in part if launch.job.id not in errors}

    def _find_seconds(self, keeper: UnsentKeeper) -> float:
        """How long a cluster keeps it: not longer than the job is known, for nobody could name it then."""
        known = self._retention * (_LOOKS - 1) / _LOOKS
        return known if keeper.seconds is None else min(float(keeper.seconds), known)

    async def _list_launches(self) -> Mapping[str, Sequence[EndedLaunch]]:
        """The ended jobs that may have left data, by the clusters where; each as it was there."""
        found: dict[str, list[EndedLaunch]] = {}
        for stored in await self._repository.find(JobQuery(over=True, writes=True)):
            if not stored.job.over:
                continue
            for cluster, handle, job in list_places(stored.job, stored.cluster, entry_of(stored).handle):
                if may_have_left(job):
                    found.setdefault(cluster, []).append(EndedLaunch(job, handle))
        return found


def _name_place(cluster: str, launch: EndedLaunch) -> LaunchPlace:
    return launch.job.id, launch.job.launch, cluster


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
