"""What of a job is refused on Kubernetes, and what pods carry out only in part. Pure."""

from __future__ import annotations

import re

from overspan.adapters.kubernetes.launches.gang import GANG_SCHEDULERS, BackendChoice
from overspan.adapters.kubernetes.logs.outputs import choose_outputs, expand, runs_script
from overspan.adapters.kubernetes.manifests.exporting import choose_exported
from overspan.adapters.kubernetes.manifests.resources import is_mounted, note_needs
from overspan.adapters.kubernetes.manifests.scripts import RUN_DIR
from overspan.adapters.kubernetes.manifests.storage import is_kept
from overspan.adapters.kubernetes.manifests.volumes import find_shared
from overspan.adapters.kubernetes.settings import DAY, Settings
from overspan.bridge.model.allocations import is_allocation, is_held
from overspan.bridge.model.durations import format_elapsed
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form, TaskSpec

_LABEL_KEY = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_SRUN = re.compile(r"^[ \t]*srun\b", re.MULTILINE)


def check_job(job: Job) -> None:
    """Raise InvalidRequest for what cannot run in pods, with the remedy."""
    if job.spec.adopted:
        raise InvalidRequest("pods of others cannot be watched", remedy="clusters of the kind slurm can")
    for task in job.spec.tasks:
        _check_text(task)
        _check_labels(task)


def _check_text(task: TaskSpec) -> None:
    own = {} if task.form is Form.BATCH else task.env
    for name, text in (("run", task.run), ("setup", task.setup), *own.items()):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(
                f"{task.name}: {name} is not UTF-8, and Kubernetes takes nothing else", remedy="put it into a file"
            ) from None
        if "\0" in text:
            raise InvalidRequest(f"{task.name}: {name} has a zero byte", remedy="remove it")


def _check_labels(task: TaskSpec) -> None:
    for name, value in task.labels.items():
        if not _LABEL_KEY.fullmatch(name) or not _LABEL_VALUE.fullmatch(value):
            raise InvalidRequest(
                f"{task.name}: {name}={value} is no label of Kubernetes",
                remedy="use letters, digits, '-', '_' and '.', at most 63 of them, with a letter or digit at both ends",
            )


def note_job(job: Job, settings: Settings, choice: BackendChoice) -> tuple[str, ...]:
    """A sentence for each thing that the cluster accepts and carries out in part, or not at all."""
    notes: list[str] = []
    if choice.why:
        notes.append(f"the group starts by {GANG_SCHEDULERS[choice.backend].short}: {choice.why}")
    for task in job.spec.tasks:
        if not job.task(task.name).over:
            # Of a group over several clusters, those of the others are over here.
            notes += note_needs(task, settings)
            notes += _note_task(job, task, settings)
    return tuple(dict.fromkeys(notes))


def _note_task(job: Job, task: TaskSpec, settings: Settings) -> list[str]:
    notes = []
    changed = job.task(task.name).time
    # One that is held ends with its command, which comes long before.
    if not (task.time if changed is None else changed) and not is_held(task):
        days = settings.default_time / DAY
        notes.append(f"{task.name}: without a time limit its pods end after {days:g} days (`default_time`)")
    if runs_script(job, task):
        notes += _note_script(job, task, settings)
    if is_mounted(task, settings):
        notes.append(
            f"{task.name}: MOUNT is read through the store by a mount of the pod's own, which needs python3 (3.9 or "
            f"newer) in the task's image, and a node with {settings.data_fuse} (`data_fuse`)"
        )
    if task.flushes:
        fate = "is lost with its pod: `span data rescue` cannot bring it back"
        if is_kept(task, settings):
            fate = "stays on the cluster's `data_volume`: `span data rescue` sends it later"
        late = f"what is not in its store {format_elapsed(task.flush.timeout)} after its end, its `flush.timeout`"
        notes.append(f"{task.name}: {late}, {fate}")
    if task.form is Form.BATCH and _SRUN.search(task.run):
        notes.append(f"{task.name}: srun needs python3 (3.9 or newer) in the image")
    return notes


def _note_script(job: Job, task: TaskSpec, settings: Settings) -> list[str]:
    """What of a script's folder, files and environment its pods do not have."""
    notes = []
    if not task.chdir and find_shared(task.workdir, settings) is None:
        who = "its steps work" if is_allocation(task) else "the script works"
        notes.append(
            f"{task.name}: {task.workdir} is on no volume that pods and this machine share (`volumes` with `shared`), "
            f"so {who} in {RUN_DIR}, and what it writes there goes with its pod"
        )
    files = choose_outputs(job, task, settings)
    if files.joined:
        notes.append(f"{task.name}: a pod's log has output and error in one, so both go to {files.kept}")
    if task.streams.input and not files.input:
        path = expand(task.streams.input, job, task)
        notes.append(f"{task.name}: the input file {path} is on no volume that pods share, so it has no effect")
    left = choose_exported(task, job.spec, settings).left
    if left:
        notes.append(f"{task.name}: no pod can have the variables {', '.join(left)}: put them into files")
    return notes
