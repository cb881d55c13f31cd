"""Submits a job again as a new one; of an array also the elements that failed alone."""

from __future__ import annotations

from dataclasses import replace

from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.orders.references import Directory, Ranges, parse_reference
from overspan.bridge.controller.submission.submitter import ParsedSubmission, Submitted, Submitter
from overspan.bridge.model.allocations import is_allocation
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound
from overspan.bridge.model.ids import ArraySpec, collapse
from overspan.bridge.model.spec import Dependency
from overspan.bridge.model.states import State
from overspan.bridge.readers.submission import JOB_FILE, Submission


class Resubmitter:
    """Makes new jobs of the specs of old ones."""

    def __init__(self, submitter: Submitter, directory: Directory) -> None:
        self.submitter = submitter
        self.directory = directory

    async def resubmit(self, ref: str, failed: bool = False, token: str = "") -> Submitted:
        """Submit what an id names again; of an array, with `failed`, the elements that failed.

        What the first submission waited for, its dependencies and its begin time, is over for the new one.
        Raises as a submission does, NotFound, and Conflict where nothing has failed.
        """
        reference = parse_reference(ref)
        wanted = reference.elements
        entry, task, _ = await self.directory.find(ref if wanted is None else str(reference.job_id))
        job, spec = entry.job, entry.job.spec
        if task:
            raise InvalidRequest(f"{ref} is one task of job {job.id}", remedy=f"submit it whole: {job.id}")
        if spec.adopted or is_allocation(spec.tasks[0]):
            raise InvalidRequest(
                f"job {job.id} has no script, so it cannot be submitted again", remedy="start its command again"
            )
        array = spec.array
        if wanted is not None and job.array is None:
            raise NotFound(f"job {job.id} is no array", remedy=f"write {job.id}")
        if array is not None:
            array = ArraySpec(collapse(await self._choose(entry, wanted, failed)), array.throttle)
            if not array.ranges and not failed:
                raise NotFound(f"no job {ref}", remedy=f"`span show {job.id}` lists its elements")
        if failed and not (array.ranges if array is not None else is_failure(job.state)):
            what = f"job {ref} has not failed" if array is None else f"no element of {ref} has failed"
            raise Conflict(what, remedy=f"`span resubmit {ref}` submits all of it again")
        spec = replace(spec, array=array, dependency=Dependency(), begin=None, deadline=None, hold=False, cron=None)
        if not self._lives(spec.parent):
            spec = replace(spec, parent=None)
        origin = spec.origin
        submission = Submission(JOB_FILE, origin.text, origin.file, user=entry.user, uid=origin.uid, token=token)
        return await self.submitter.take(ParsedSubmission(spec), submission)

    def _lives(self, parent: int | None) -> bool:
        entry = None if parent is None else self.submitter.recorder.registry.get(parent)
        return entry is not None and not entry.job.over and entry.job.ending is None

    async def _choose(self, entry: JobEntry, wanted: Ranges | None, failed: bool) -> list[int]:
        """The indices of an array, or of an element of one, that are submitted again."""
        job = entry.job
        if job.element is not None:
            return [job.element.index] if not failed or is_failure(job.state) else []
        if not failed:
            array = job.spec.array
            indices = array.indices() if array is not None else iter(())
            return [index for index in indices if wanted is None or any(index in part.values() for part in wanted)]
        elements = [target.entry.job for target in await self.directory.find_elements(entry, wanted)]
        return [each.element.index for each in elements if each.element is not None and is_failure(each.state)]


def is_failure(state: State) -> bool:
    """Whether a job that ended so has failed; what a person cancelled has not."""
    return state.terminal and state not in (State.COMPLETED, State.CANCELLED)
