"""Dependencies of a job against the jobs that are known: what is unmet, and what a cluster can wait for itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from overspan.adapters.contract import Awaited, Unmet
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.registry import JobEntry, Registry, entry_of
from overspan.bridge.controller.core.repository import Repository
from overspan.bridge.lifecycle.dependencies import Predecessor, list_unmet, predecessor_of, resolve
from overspan.bridge.model.job import Job, Resolution
from overspan.bridge.model.spec import Dependency, DependencyKind, JobNeed
from overspan.bridge.store.records import JobQuery

_OPEN = Predecessor(None, None)


class DependencyResolver:
    """Looks dependencies up in the registry, and in the store for jobs that are not in memory. Changes nothing."""

    def __init__(
        self, registry: Registry, repository: Repository, clusters: Clusters, clock: Callable[[], float]
    ) -> None:
        self._registry = registry
        self._repository = repository
        self._clusters = clusters
        self._clock = clock

    def list_unmet(self, entry: JobEntry, job: Job, cluster: str) -> tuple[Unmet, ...]:
        """What the entry's job, by these facts of it, still waits for, with the jobs that the cluster has."""
        return tuple(
            Unmet(need, self._list_awaited(entry, need, cluster) if unknown else ())
            for need, unknown in list_unmet(job, self._clock())
        )

    def waits_there(self, entry: JobEntry, job: Job, cluster: str) -> bool:
        """Whether a cluster itself can wait for all that is not met.

        Not for elements, which are drawn when they may start; not for jobs with a choice of clusters, whose time on
        one counts; and not where who waits would take a slot from who could run.
        """
        if job.array is not None or job.element is not None or job.spec.choice:
            return False
        found = self._clusters.find(cluster)
        if found is None or found.limited:
            return False
        waits_for = self._clusters.find_traits(cluster).waits_for
        needs = self.list_unmet(entry, job, cluster) if waits_for is not None else ()
        return waits_for is not None and all(unmet.jobs for unmet in needs) and waits_for(job, needs)

    async def preview(self, entry: JobEntry, dependency: Dependency) -> Job:
        """The entry's job with another dependency, with what is settled of that already. Raises StoreFailed."""
        now = self._clock()
        resolved = []
        for number, need in enumerate(dependency.needs):
            outcome = resolve(need, await self.find(entry, need), now)
            if outcome is not None:
                resolved.append(Resolution(number, outcome[0]))
        return replace(entry.job, dependency=dependency, resolved=tuple(resolved))

    async def list_unknown(self, dependency: Dependency) -> list[int]:
        """The jobs that a dependency names and that are unknown, or were forgotten. Raises StoreFailed."""
        registry = self._registry
        unknown = []
        for number in dict.fromkeys(need.job for need in dependency.needs if need.kind is not DependencyKind.SINGLETON):
            job_id = registry.owner(number)
            if (
                number
                and job_id not in registry.aside
                and registry.get(job_id) is None
                and await self._stored(job_id) is None
            ):
                unknown.append(number)
        return unknown

    async def list_takers(self, entries: Iterable[JobEntry], dependency: Dependency) -> set[int]:
        """The jobs that wait on a cluster which can wait for another dependency itself. Raises StoreFailed."""
        return {
            entry.job.id
            for entry in entries
            if entry.watched and self.waits_there(entry, await self.preview(entry, dependency), entry.cluster)
        }

    def _list_awaited(self, entry: JobEntry, need: JobNeed, cluster: str) -> tuple[Awaited, ...]:
        """The jobs that a need is about; none unless the cluster has each of them as a whole."""
        registry = self._registry
        found: list[JobEntry | None]
        if need.kind is DependencyKind.SINGLETON:
            found = list(self.list_elders(entry))
        elif need.task is not None or registry.owner(need.job) != need.job:
            return ()
        elif need.element is not None:
            found = [registry.elements(need.job).get(need.element)]
        else:
            found = [registry.get(need.job)]
        if not all(one is not None and one.watched and one.cluster == cluster for one in found):
            return ()
        return tuple(Awaited(one.job, one.handle) for one in found if one is not None)

    async def find(self, entry: JobEntry, need: JobNeed) -> Predecessor | None:
        """The state of the job that a need names; None if it is unknown, or was forgotten."""
        registry = self._registry
        if need.kind is DependencyKind.SINGLETON:
            return _OPEN if any(True for _ in self.list_elders(entry)) else None
        job_id = registry.owner(need.job)
        if job_id in registry.aside:
            # Its state cannot be read, so jobs that depend on it go on waiting.
            return _OPEN
        found = registry.get(job_id) or await self._stored(job_id)
        if found is None:
            return None
        if need.kind is DependencyKind.AFTERCORR and entry.job.array is not None and found.job.array is not None:
            # Each element waits for its own counterpart.
            return None
        task = need.job - job_id if need.task is None and need.job != job_id else need.task
        if need.element is None or found.job.array is None:
            return predecessor_of(found.job, task)
        element = registry.elements(job_id).get(need.element)
        if element is not None:
            return predecessor_of(element.job)
        array = found.job.array
        if any(need.element in part.values() for part in array.waiting):
            return _OPEN
        if any(need.element in part.values() for part in array.cancelled):
            return Predecessor(None, self._clock())
        return await self._stored_element(job_id, need.element)

    def list_elders(self, entry: JobEntry) -> Iterator[JobEntry]:
        """Earlier jobs of the same name and user that are not over."""
        name = name_of(entry)
        for other in self._registry:
            if other.job.id < entry.job.id and not other.job.over and name_of(other) == name:
                yield other

    async def _stored(self, job_id: int) -> JobEntry | None:
        found = await self._repository.find(JobQuery(ids=(job_id,)))
        return entry_of(found[0]) if found else None

    async def _stored_element(self, array: int, index: int) -> Predecessor | None:
        for stored in await self._repository.find(JobQuery(arrays=(array,))):
            if stored.job.element is not None and stored.job.element.index == index:
                return predecessor_of(stored.job)
        return None


def name_of(entry: JobEntry) -> tuple[str, str]:
    """What a singleton names: the user and the name of a job."""
    return entry.user, entry.job.labels.get("name", entry.job.spec.name)


def describe_dependency(job: Job, arrays: Collection[int] = ()) -> str:
    """The needs that are not met, each with its standing: `afterok:12(unfulfilled),singleton(unfulfilled)`.

    `arrays` are those of the jobs waited for that are arrays: `afterok:12_*(unfulfilled)`.
    Slurm drops what is met; of needs of which any is enough, all while none is met (measured on Slurm 22.05).
    """
    known = {resolution.place: resolution.at for resolution in job.resolved}
    met = {place for place, at in known.items() if at is not None}
    if job.over or job.state.value != "PENDING" or (job.dependency.any and met):
        return ""
    texts = [
        f"{_write(need, need.job in arrays)}({'failed' if place in known else 'unfulfilled'})"
        for place, need in enumerate(job.dependency.needs)
        if place not in met
    ]
    return ("?" if job.dependency.any else ",").join(texts)


def _write(need: JobNeed, array: bool) -> str:
    if need.kind is DependencyKind.SINGLETON:
        return str(need.kind.value)
    text = f"{need.kind.value}:{need.job}"
    if need.element is not None:
        text += f"_{need.element}"
    elif need.task is not None:
        text += f"+{need.task}"
    elif array:
        text += "_*"
    return f"{text}+{need.delay // 60}" if need.delay else text
