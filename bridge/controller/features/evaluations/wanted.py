"""Which watches a job's file asks for: the elements of an array each have their own, and the array has none. Pure."""

from __future__ import annotations

from dataclasses import replace

from overspan.bridge.model.evaluations import EvaluationSpec
from overspan.bridge.model.job import Job
from overspan.bridge.model.patterns import FilenameFields, expand_filename


def asks_for_watches(job: Job) -> bool:
    """Whether checkpoints of the job itself are evaluated."""
    return bool(job.spec.on_checkpoint) and job.array is None


def list_watches(job: Job) -> tuple[EvaluationSpec, ...]:
    """The watches of a job; those of an element with the numbers in their paths (`%a`, `%A`, `%j`)."""
    if job.array is not None:
        return ()
    if job.element is None:
        return job.spec.on_checkpoint
    fields = FilenameFields(
        job.id,
        name=job.spec.name,
        user=job.spec.origin.user,
        array_job=job.element.array,
        element=job.element.index,
    )
    return tuple(replace(spec, path=expand_filename(spec.path, fields)) for spec in job.spec.on_checkpoint)
