"""Allocations without a script: where the cluster does not notice that their client is gone, the daemon ends them.

A client keeps a request open for as long as it holds its allocation. Where none is open for some seconds, because the
client was killed or never came, the job is cancelled. Nothing of that is stored: a new daemon waits a while for every
client that it finds an allocation of.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from overspan.adapters.abilities import StepEntrance, StepRequest
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.job_access import JobAccess
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.controller.core.references import Directory
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.unit_of_work import UnitOfWork
from overspan.bridge.controller.features.access import check_open
from overspan.bridge.controller.orders.orders import place
from overspan.bridge.model import events
from overspan.bridge.model.allocations import is_held
from overspan.bridge.model.errors import Conflict, InvalidRequest, OverspanError
from overspan.bridge.model.job import Job

log = logging.getLogger(__name__)

COME_SECONDS = 60.0
"""Seconds within which a client has to connect: after the submission, and after this daemon's start."""
GONE_SECONDS = 15.0
"""Seconds after which an allocation without a client is cancelled; the client's last orders arrive before."""
ALIVE_SECONDS = 15.0
"""Seconds between signs of life to a client that holds an allocation."""
AGAIN_SECONDS = 5.0
"""Seconds after which a cancel that could not be given is tried again."""


@dataclass(frozen=True)
class StepParameters:
    """The words of srun(1), and what they were typed with; see `StepRequest`."""

    words: tuple[str, ...]
    environment: dict[str, str]
    directory: str
    umask: int = 0o022
    own: bool = False
    terminal: bool = False
    alone: bool = False


class Allocations:
    """Knows which allocations have a client, and ends those that have lost theirs."""

    def __init__(self, recorder: Recorder, clusters: Clusters, access: JobAccess | None = None) -> None:
        self._recorder = recorder
        self._clusters = clusters
        self._access = access
        self._directory = Directory(recorder.registry, recorder.repository)
        self._holders: Counter[int] = Counter()
        self._due: dict[int, float] = {}
        """When allocations without a client are ended, by job."""
        self._closing = False

    async def hold(self, ref: str) -> AsyncGenerator[bytes]:
        """Hold an allocation for as long as the client reads these lines. Raises NotFound.

        An empty one now and then; `over` is the last one, when the job is over.
        """
        return self._hold((await self._directory.find(ref)).entry.job.id)

    async def _hold(self, job_id: int) -> AsyncGenerator[bytes]:
        self._holders[job_id] += 1
        self._drop(job_id)
        try:
            while not self._closing:
                entry = self._recorder.registry.get(job_id)
                if entry is None or entry.job.over:
                    yield b"over\n"
                    return
                yield b"\n"
                await self._recorder.changes.jobs.wait(job_id, ALIVE_SECONDS)
        finally:
            self._holders[job_id] -= 1
            if not self._holders[job_id]:
                del self._holders[job_id]
                self._arm(job_id, GONE_SECONDS)

    async def prepare_step(self, ref: str, parameters: StepParameters) -> StepEntrance:
        """What a client is to run for a step in a job that has its nodes.

        Raises NotFound, Conflict for a job that does not run, InvalidRequest, Unreachable.
        """
        target = await self._directory.find(ref)
        entry = target.entry
        check_open(target, entry.job.tasks[0])
        prepare_step = self._clusters.get(entry.cluster).adapter.traits.prepare_step
        if prepare_step is None:
            raise InvalidRequest(
                f"the cluster {entry.cluster} takes no steps from outside of a job",
                remedy="run srun in the job: in its batch script or its tasks",
            )
        access = "" if self._access is None else self._access.describe(entry.job, entry.cluster)
        return await prepare_step(StepRequest(entry.handle, **vars(parameters), access=access))

    def end_holds(self) -> None:
        """End the requests of all clients, for the end of the daemon; no allocation ends by that."""
        self._closing = True

    def follow(self, before: Job | None, entry: JobEntry) -> None:
        """Give an allocation that has no client some seconds; forget one that is over."""
        job_id = entry.job.id
        if entry.job.over or entry.job.ending is not None or not self._is_guarded(entry):
            self._drop(job_id)
        elif job_id not in self._due and not self._holders[job_id]:
            self._arm(job_id, COME_SECONDS)

    def _is_guarded(self, entry: JobEntry) -> bool:
        """Whether it is an allocation that ends with its client, on a cluster that would not notice.

        Not while its cluster cannot be asked anything: nothing is known of its client there either.
        """
        return is_held(entry.job.spec.tasks[0]) and self._clusters.find_traits(entry.cluster).prepare_step is not None

    def _arm(self, job_id: int, seconds: float) -> None:
        entry = self._recorder.registry.get(job_id)
        if self._closing or entry is None or entry.job.over or not self._is_guarded(entry):
            return
        self._due[job_id] = self._recorder.clock() + seconds

        def fire() -> None:
            self._recorder.spawn(self._end(job_id), f"ending the allocation {job_id}")

        self._recorder.timers.set(_name(job_id), self._due[job_id], fire)

    def _drop(self, job_id: int) -> None:
        if self._due.pop(job_id, None) is not None:
            self._recorder.timers.drop(_name(job_id))

    async def _end(self, job_id: int) -> None:
        """Cancel an allocation whose client did not come back in time."""
        entry = self._recorder.registry.get(job_id)
        if entry is None or self._holders[job_id] or self._due.pop(job_id, None) is None:
            return
        log.info("job %d: the client of this allocation is gone", job_id)
        now, user = self._recorder.clock(), entry.user

        def cancel(units: list[UnitOfWork]) -> None:
            for unit in units:
                place(unit, events.Cancel(now, by=user), now)

        try:
            await self._recorder.change((job_id,), cancel, urgent=True)
        except Conflict:
            # It is over, or its end is under way.
            return
        except OverspanError as error:
            log.warning("job %d: %s; trying again", job_id, error)
            self._arm(job_id, AGAIN_SECONDS)


def _name(job_id: int) -> str:
    return f"allocation:{job_id}"
