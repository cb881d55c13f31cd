"""Notes for the submitter about parts of a job that are accepted without their full effect on Slurm. Pure."""

from __future__ import annotations

from overspan.adapters.slurm.rendering.forms import is_group
from overspan.adapters.slurm.rendering.images import PYXIS
from overspan.adapters.slurm.sets.members import is_set
from overspan.adapters.slurm.settings import Settings
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form


def list_notes(job: Job, settings: Settings) -> tuple[str, ...]:
    """A sentence for each of these parts."""
    notes = []
    task = job.spec.tasks[0]
    if job.spec.start_timeout is not None and not is_set(job):
        notes.append("start_timeout counts only where the group is a set: one allocation starts as a whole")
    if is_group(job):
        return tuple(notes)
    if job.spec.hold_on_failure and task.form is Form.BATCH:
        notes.append(
            "hold_on_failure has no effect on a batch script on Slurm: its nodes go back when it ends; "
            "a job file's task keeps them"
        )
    if task.image and settings.containers == PYXIS:
        notes.append(
            f"grace_period of {task.name} has no effect on a cancel: what runs in an image by Pyxis is a step, "
            "which srun ends at once; with `containers: apptainer` it has its grace"
        )
    return tuple(notes)
