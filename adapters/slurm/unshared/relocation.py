"""Changes a job's paths and variables for a cluster that does not see the submitter's file system. Pure.

The job runs in its run directory: relative paths start there, and absolute paths are the cluster's own, except those of
staged files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from overspan.adapters.slurm.commands.options import read_command
from overspan.bridge.model.job import Job
from overspan.bridge.model.patterns import ARRAY_DEFAULT, BATCH_DEFAULT
from overspan.bridge.model.spec import Form, Streams, TaskSpec

_CARRIED = ("SBATCH_", "SLURM_", "OVERSPAN_", "SPAN_")
"""Prefixes of the submitter's variables that must not reach a job on another system."""


def relocate(job: Job, run_dir: str) -> Job:
    """The job as if it was submitted from its run directory on the cluster, with only the variables of --export."""
    named = name_variables(job) | _name_given(job)
    here = job.spec.origin.directory
    tasks = tuple(_relocate_task(task, job.spec.environment, named, (here, run_dir)) for task in job.spec.tasks)
    origin = replace(job.spec.origin, directory=run_dir)
    return replace(job, spec=replace(job.spec, tasks=tasks, environment={}, origin=origin))


def relocate_single(job: Job, run_dir: str) -> Job:
    """As `relocate`, for a single job: a job file's task without `output` writes into the run directory."""
    job = relocate(job, run_dir)
    task = job.spec.tasks[0]
    if task.form is not Form.RUN or task.streams.output:
        return job
    name = BATCH_DEFAULT if job.element is None and job.array is None else ARRAY_DEFAULT
    streams = replace(task.streams, output=f"{run_dir.replace('%', '%%')}/{name}")
    return replace(job, spec=replace(job.spec, tasks=(replace(task, streams=streams), *job.spec.tasks[1:])))


def name_variables(job: Job) -> frozenset[str]:
    """Names of variables in --export on the command line."""
    command = read_command(job.spec.origin.command) if job.spec.origin.command else ({},)
    words = command[0].get("export", "").split(",")
    return frozenset(word.partition("=")[0].strip() for word in words)


def _name_given(job: Job) -> frozenset[str]:
    """Names of variables that the daemon itself has given the job: which checkpoint an evaluation is of."""
    if job.spec.evaluation is None:
        return frozenset()
    return frozenset(name for task in job.spec.tasks for name in task.env if name.startswith("OVERSPAN_"))


def _relocate_task(
    task: TaskSpec, environment: Mapping[str, str], named: frozenset[str], move: tuple[str, str]
) -> TaskSpec:
    here, there = move
    env = {
        name: value
        for name, value in task.env.items()
        if name in named or (environment.get(name) != value and not name.startswith(_CARRIED))
    }
    if task.form is Form.BATCH and not environment:
        # A batch script's variables are all from the submitter's environment.
        env = {name: value for name, value in task.env.items() if name in named}
    workdir = there if task.workdir in ("", here) else task.workdir
    streams = task.streams
    moved = Streams(
        _move(streams.output, here, there), _move(streams.error, here, there), _move(streams.input, here, there)
    )
    return replace(task, env=env, workdir=workdir, streams=replace(moved, append=streams.append))


def _move(pattern: str, here: str, there: str) -> str:
    inside = here not in ("", "/") and pattern.startswith(f"{here}/")
    return there + pattern[len(here) :] if inside else pattern
