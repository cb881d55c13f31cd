"""What a job still waits for outside of itself, as squeue's %E and scontrol's Dependency write it."""

from __future__ import annotations

from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import DependencyKind, JobNeed


def describe_dependency(job: Job) -> str:
    """The needs that are not met, each with its standing: `afterok:12(unfulfilled),singleton(unfulfilled)`.

    Slurm drops what is met; of needs of which any is enough, all while none is met (measured on Slurm 22.05).
    """
    known = {resolution.place: resolution.at for resolution in job.resolved}
    met = {place for place, at in known.items() if at is not None}
    if job.over or job.state.value != "PENDING" or (job.dependency.any and met):
        return ""
    texts = [
        f"{_write(need)}({'failed' if place in known else 'unfulfilled'})"
        for place, need in enumerate(job.dependency.needs)
        if place not in met
    ]
    return ("?" if job.dependency.any else ",").join(texts)


def _write(need: JobNeed) -> str:
    if need.kind is DependencyKind.SINGLETON:
        return str(need.kind.value)
    text = f"{need.kind.value}:{need.job}"
    if need.element is not None:
        text += f"_{need.element}"
    elif need.task is not None:
        text += f"+{need.task}"
    return f"{text}+{need.delay // 60}" if need.delay else text
