"""Submits a job again as a new one, with changes; of an array also the elements that failed alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from overspan.bridge.controller.core.references import Directory, Ranges, parse_reference
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.submission.present_values import list_values
from overspan.bridge.controller.submission.script_changes import read_script_options
from overspan.bridge.controller.submission.spec_changes import NATIVE, SpecChanges, change_spec, sort_changes
from overspan.bridge.controller.submission.submitter import ParsedSubmission, Submitted, Submitter
from overspan.bridge.model.allocations import is_allocation
from overspan.bridge.model.durations import format_limit
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound
from overspan.bridge.model.ids import ArraySpec, collapse, format_array_indices
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Dependency, Form, JobSpec, Resubmission
from overspan.bridge.model.states import State
from overspan.bridge.readers.submission import JOB_FILE, Submission


@dataclass(frozen=True)
class ResubmitRequest:
    """What is submitted again: a job, element or elements; with `failed` only what failed of it.

    `changes` are values of options by OPTION or TASK.OPTION (`model/options/resubmit.py`); `token` is a submission's.
    """

    ref: str
    failed: bool = False
    changes: Mapping[str, str] = field(default_factory=dict)
    token: str = ""


class Resubmitter:
    """Makes new jobs of the specs of old ones."""

    def __init__(self, submitter: Submitter, directory: Directory) -> None:
        self.submitter = submitter
        self.directory = directory

    async def resubmit(self, request: ResubmitRequest) -> Submitted:
        """Submit again what the request names.

        What the first submission waited for, its dependencies and its begin time, is over for the new one, unless the
        changes name it. Raises as a submission does, NotFound, and Conflict where nothing has failed.
        """
        entry, wanted = await self._find(request.ref)
        spec = entry.job.spec
        array = await self._choose_array(entry, wanted, request)
        new = replace(_take_present(entry.job), array=array)
        changes = sort_changes(new, request.changes)
        new = _leave_behind(new, spec)
        if new.evaluation is not None:
            # Again by hand, it is a job of its own: `span evals run` makes another evaluation.
            new = replace(new, evaluation=None, parent=None)
        if not self._lives(new.parent):
            new = replace(new, parent=None)
        new = change_spec(new, changes, self.submitter.recorder.clock())
        new = self._note_places(new, changes, entry.cluster)
        new = replace(new, resubmission=Resubmission(_name_source(entry.job, wanted, array), changes.list_words()))
        origin = new.origin
        submission = Submission(
            JOB_FILE, origin.text, origin.file, user=entry.user, uid=origin.uid, token=request.token
        )
        return await self.submitter.take(ParsedSubmission(new), submission)

    async def list_values(self, ref: str) -> dict[str, str]:
        """What can be changed of a job, with its present values. Raises NotFound, and InvalidRequest as `resubmit`."""
        entry, _ = await self._find(ref)
        return list_values(_take_present(entry.job), entry.cluster)

    async def _find(self, ref: str) -> tuple[JobEntry, Ranges | None]:
        """The job, and the elements of it that an id names."""
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
        if spec.member is not None:
            group, task_name = spec.member.group, spec.member.task
            raise InvalidRequest(
                f"job {job.id} is a member of group {group}, and comes and goes with it",
                remedy=f"`span scale {group} {task_name}=N` says how many there are",
            )
        if wanted is not None and job.array is None:
            raise NotFound(f"job {job.id} is no array", remedy=f"write {job.id}")
        return entry, wanted

    async def _choose_array(self, entry: JobEntry, wanted: Ranges | None, request: ResubmitRequest) -> ArraySpec | None:
        """The array of the elements that are submitted again. Conflict where nothing of what is named has failed."""
        job, ref, failed = entry.job, request.ref, request.failed
        array = job.spec.array
        if array is not None:
            throttle = array.throttle if job.array is None else job.array.throttle
            array = ArraySpec(collapse(await self._choose(entry, wanted, failed)), throttle)
            if not array.ranges and not failed:
                raise NotFound(f"no job {ref}", remedy=f"`span show {job.id}` lists its elements")
        if failed and not (array.ranges if array is not None else is_failure(job.state)):
            what = f"job {ref} has not failed" if array is None else f"no element of {ref} has failed"
            raise Conflict(what, remedy=f"`span resubmit {ref}` submits all of it again")
        return array

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

    def _note_places(self, spec: JobSpec, changes: SpecChanges, present: str) -> JobSpec:
        """The spec as it goes to its clusters: a partition is its cluster's own, and some options are Slurm's own."""
        notes = list(spec.notes)
        names = spec.clusters or (present,)
        if "clusters" in changes.of_job and names != (present,) and "partition" not in changes.of_job:
            spec, left = _leave_partition(spec)
            notes += [f"the partition {left} is left out: it was one of {present}'s"] if left else []
        kinds = self.submitter.clusters.kinds()
        given = sorted({name for options in changes.of_tasks.values() for name in options} & NATIVE)
        if given and any(kinds.get(name, "slurm") != "slurm" for name in names):
            notes.append(f"without effect outside Slurm: {' '.join(f'--{name}' for name in given)}")
        return replace(spec, notes=tuple(dict.fromkeys(notes)))


def is_failure(state: State) -> bool:
    """Whether a job that ended so has failed; what a person cancelled has not."""
    return state.terminal and state not in (State.COMPLETED, State.CANCELLED)


def _take_present(job: Job) -> JobSpec:
    """The spec with what was changed since the submission: wall times, name, comment and nice."""
    spec = job.spec
    name = str(job.labels.get("name", spec.name))
    if not spec.group and "{" not in name and "}" not in name:
        spec = replace(spec, name=name)
    spec = replace(spec, comment=str(job.labels.get("comment", spec.comment)), nice=job.nice)
    times = {
        task.name: {"time": format_limit(task.time or None)}
        for task in job.tasks
        if task.time is not None and (task.time or None) != spec.task(task.name).time
    }
    components = len(spec.tasks) > 1 and spec.tasks[0].form is Form.BATCH
    if times and not components:
        of_tasks = {task.name: times.get(task.name, {}) for task in spec.tasks}
        spec = change_spec(spec, SpecChanges({}, of_tasks), 0.0)
    if spec.nice != job.spec.nice and spec.tasks[0].form is Form.BATCH:
        spec = replace(spec, script_options={**spec.script_options, "nice": str(spec.nice)})
    return spec


def _leave_behind(spec: JobSpec, old: JobSpec) -> JobSpec:
    """The spec without what the first submission waited for; a batch script's own lines say it still."""
    replaced = dict(spec.script_options)
    if spec.tasks[0].form is Form.BATCH:
        if old.begin is not None:
            replaced["begin"] = "now"
        if old.dependency.needs:
            replaced["dependency"] = ""
        if spec.array is not None and spec.array != old.array:
            replaced["array"] = format_array_indices(spec.array.ranges, spec.array.throttle, steps=True)
    return replace(
        spec, dependency=Dependency(), begin=None, deadline=None, hold=False, cron=None, script_options=replaced
    )


def _leave_partition(spec: JobSpec) -> tuple[JobSpec, str]:
    """The spec without its partition, and that; one that a batch script names stays, since Slurm reads it there."""
    if spec.tasks[0].form is Form.BATCH and "partition" in read_script_options(spec):
        return spec, ""
    candidates = tuple(replace(each, partition="") for each in spec.candidates)
    return replace(spec, partition="", candidates=candidates), spec.partition


def _name_source(job: Job, wanted: Ranges | None, array: ArraySpec | None) -> str:
    """What was submitted again, as users write it."""
    if job.element is not None:
        return job.element.ref
    if array is not None and job.spec.array is not None and array.ranges != job.spec.array.ranges:
        return f"{job.id}_[{format_array_indices(array.ranges)}]"
    return str(job.id)
