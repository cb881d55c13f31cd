"""References: resolves an id as a user writes it to the job, task or array elements that it names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from overspan.bridge.controller.core.registry import JobEntry, Registry
from overspan.bridge.controller.core.repository import Repository
from overspan.bridge.model.errors import InvalidRequest, NotFound
from overspan.bridge.model.ids import IndexRange, JobRef, common_indices, parse_job_ref, without_indices
from overspan.bridge.store.records import JobQuery

MAX_LETTERS = 300

Ranges = tuple[IndexRange, ...]


class Reference(NamedTuple):
    """A parsed id: the job's number, and its task by offset or by name."""

    text: str
    job_id: int
    offset: int | None = None
    task: str = ""
    native: str = ""
    cluster: str = ""
    elements: Ranges | None = None


class JobTarget(NamedTuple):
    """A job, and the name of the one task that is meant; empty for all of it.

    `waiting` are the elements of an array that are meant and are no jobs yet; the job is the array then.
    """

    entry: JobEntry
    task: str = ""
    waiting: Ranges = ()


def parse_reference(text: str) -> Reference:
    """Read N, N+k, N.task-name, CLUSTER:ID or CLUSTER:N. Raises InvalidRequest."""
    if len(text) > MAX_LETTERS:
        raise InvalidRequest("this is no job id: it is too long", remedy="write N, N+k or N.task")
    head, dot, task = text.partition(".")
    try:
        if dot and head.isdigit() and not task.isdigit() and task not in ("batch", "extern"):
            return _check(parse_job_ref(head), text)._replace(task=task)
        return _check(parse_job_ref(text), text)
    except ValueError as error:
        raise InvalidRequest(str(error), remedy="write N, N+k or N.task") from None


def _check(ref: JobRef, text: str) -> Reference:
    elements = ref.elements if ref.element is None else (IndexRange(ref.element, ref.element),)
    return Reference(text, ref.job, ref.task, "", ref.native or "", ref.cluster or "", elements)


class Directory:
    """Finds jobs in the registry, and finished ones in the store."""

    def __init__(self, registry: Registry, repository: Repository) -> None:
        self.registry = registry
        self.repository = repository

    async def find(self, text: str) -> JobTarget:
        """The job, element or task that an id names; of several elements the first. InvalidRequest, NotFound."""
        reference = parse_reference(text)
        entry = await self._entry(reference)
        if reference.elements is None:
            return self._target(entry, reference)
        return (await self._elements(entry, reference, reference.elements))[0]

    async def find_all(self, texts: Iterable[str]) -> list[list[JobTarget] | InvalidRequest | NotFound]:
        """What each id names, in order: an array is itself and all of its elements that are live jobs.

        Finished jobs are fetched together.
        """
        references: list[Reference | InvalidRequest | NotFound] = []
        for text in texts:
            try:
                references.append(parse_reference(text))
            except (InvalidRequest, NotFound) as error:
                references.append(error)
        stored = await self._stored(ref for ref in references if isinstance(ref, Reference))
        return [await self._answer(ref, stored) if isinstance(ref, Reference) else ref for ref in references]

    async def find_elements(self, array: JobEntry, wanted: Ranges | None = None) -> list[JobTarget]:
        """The elements of an array that are or were jobs, all or those of some indices."""
        spec = array.job.spec.array
        ranges = wanted if wanted is not None else spec.ranges if spec is not None else ()
        try:
            found = await self._elements(array, Reference(str(array.job.id), array.job.id), ranges)
        except NotFound:
            return []
        return [target for target in found if not target.waiting]

    async def _answer(self, reference: Reference, stored: dict[int, JobEntry]) -> list[JobTarget] | NotFound:
        try:
            entry = self._known(reference) or stored.get(reference.job_id)
            if entry is None:
                raise _missing(reference)
            if reference.elements is not None:
                return await self._elements(entry, reference, reference.elements)
            target = self._target(entry, reference)
            return [target, *self._live_elements(entry)] if entry.job.array is not None else [target]
        except NotFound as error:
            return error

    def _live_elements(self, entry: JobEntry) -> list[JobTarget]:
        elements = self.registry.elements(entry.job.id).values()
        return [JobTarget(element) for element in elements if not element.job.over]

    async def _elements(self, entry: JobEntry, reference: Reference, wanted: Ranges) -> list[JobTarget]:
        """The elements of an array by index: those that are jobs, and those that wait as one target."""
        array = entry.job.array
        if array is None:
            raise NotFound(f"job {entry.job.id} is no array", remedy=f"write {entry.job.id}")
        waiting = common_indices(array.waiting, wanted)
        missing = [index for part in without_indices(wanted, waiting) for index in part.values()]
        in_memory = self.registry.elements(entry.job.id)
        found = {index: in_memory[index] for index in missing if index in in_memory}
        if len(found) < len(missing):
            for stored in await self.repository.find(JobQuery(arrays=(entry.job.id,))):
                if stored.job.element is not None and stored.job.element.index in missing:
                    found.setdefault(stored.job.element.index, self.registry.read(stored))
        targets = [JobTarget(found[index]) for index in missing if index in found]
        if waiting:
            targets.append(JobTarget(entry, waiting=waiting))
        if not targets:
            raise _missing(reference)
        return targets

    def _known(self, reference: Reference) -> JobEntry | None:
        if reference.native:
            return self._by_native(reference)
        return self.registry.get(self.registry.owner(reference.job_id))

    async def _stored(self, references: Iterable[Reference]) -> dict[int, JobEntry]:
        ids = tuple({ref.job_id for ref in references if not ref.native and self._known(ref) is None})
        found = await self.repository.find(JobQuery(ids=ids)) if ids else []
        return {job.job.id: self.registry.read(job) for job in found}

    async def _entry(self, reference: Reference) -> JobEntry:
        entry = self._known(reference) or (await self._stored((reference,))).get(reference.job_id)
        if entry is None:
            raise _missing(reference)
        return entry

    def _by_native(self, reference: Reference) -> JobEntry | None:
        for entry in self.registry:
            if entry.cluster == reference.cluster and reference.native in entry.native_id.split(","):
                return entry
        return None

    def _target(self, entry: JobEntry, reference: Reference) -> JobTarget:
        job = entry.job
        names = [task.name for task in job.tasks]
        if reference.task:
            if reference.task not in names:
                raise NotFound(f"job {job.id} has no task {reference.task!r}", remedy=f"its tasks: {', '.join(names)}")
            return JobTarget(entry, reference.task)
        offset = reference.offset
        if offset is None and not reference.native and reference.job_id != job.id:
            offset = reference.job_id - job.id
        if offset is None:
            return JobTarget(entry)
        if offset >= len(names):
            raise NotFound(f"job {job.id} has no task {offset}", remedy=f"its tasks are 0 to {len(names) - 1}")
        return JobTarget(entry, names[offset] if len(names) > 1 else "")


def _missing(reference: Reference) -> NotFound:
    return NotFound(f"no job {reference.text}", remedy="`span squeue` and `span sacct` list the jobs")
