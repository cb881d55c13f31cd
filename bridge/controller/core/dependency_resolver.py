"""A job's unmet dependencies: the port that resolves them, and how squeue and scontrol write them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from overspan.adapters.contract import Unmet
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Dependency, DependencyKind, JobNeed


class DependencyResolver:
    """Tells which dependencies a cluster can wait for itself. This base class: none (see `features.dependencies`)."""

    def list_unmet(self, entry: JobEntry, job: Job, cluster: str) -> tuple[Unmet, ...]:
        """What the entry's job, by these facts of it, still waits for, as a cluster may take it."""
        return ()

    def waits_there(self, entry: JobEntry, job: Job, cluster: str) -> bool:
        """Whether a cluster itself can wait for all that is not met."""
        return False

    async def preview(self, entry: JobEntry, dependency: Dependency) -> Job:
        """The entry's job with another dependency, with what is settled of that already. Raises StoreFailed."""
        return replace(entry.job, dependency=dependency, resolved=())

    async def list_unknown(self, dependency: Dependency) -> list[int]:
        """The jobs that a dependency names and that are unknown, or were forgotten. Raises StoreFailed."""
        return []

    async def list_takers(self, entries: Iterable[JobEntry], dependency: Dependency) -> set[int]:
        """The jobs that wait on a cluster which can wait for another dependency itself. Raises StoreFailed."""
        return {
            entry.job.id
            for entry in entries
            if entry.watched and self.waits_there(entry, await self.preview(entry, dependency), entry.cluster)
        }


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
