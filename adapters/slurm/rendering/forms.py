"""A job's form on Slurm: a native job by itself, or a group with a supervisor in its allocation. Pure."""

from __future__ import annotations

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form, JobSpec, RestartScope, TaskSpec


def is_group(job: Job) -> bool:
    """Whether a supervisor runs the job: several tasks or nodes, names, budgets, or anything else Slurm cannot do."""
    spec = job.spec
    if job.racers or spec.across or spec.member is not None or spec.worker is not None:
        # A worker needs `span`, which the supervisor gives.
        return True
    if all(task.form is Form.BATCH for task in spec.tasks) and not spec.group:
        return False
    return spec.group or len(spec.tasks) > 1 or bool(spec.hold_on_failure) or _needs_supervisor(spec.tasks[0])


def needs_nodes(job: Job) -> bool:
    """Whether rendering needs the cluster's nodes: to place a group, or for the cluster's name of a GPU type."""
    return is_group(job) or any(
        gpus.kind or task.resources.gpu_defaults for task in job.spec.tasks for gpus in task.resources.gpus
    )


def _needs_supervisor(task: TaskSpec) -> bool:
    retry = task.retry
    budgets = retry.max_restarts_on_errors or retry.recover_on_exit_codes
    return (
        task.num_nodes > 1 or bool(task.storage) or bool(budgets) or task.ready is not None or bool(task.notice_signal)
    )


def find_mount_obstacle(spec: JobSpec) -> str:
    """Why a job with this specification can have no object stores; empty where it can.

    One data mover, on the allocation's first node, moves the data of all nodes. The parts of a set have an allocation
    each, and one run directory.
    """
    if spec.across:
        return "object stores are not mounted there for jobs across clusters"
    if len(spec.tasks) > 1 and RestartScope.TASK in (spec.restart, *(task.restart for task in spec.tasks)):
        return "object stores are not mounted there where tasks restart by themselves (`restart: task`)"
    if any(task.image and task.storage for task in spec.tasks):
        return "object stores are not mounted in images there"
    return ""


def refuse_unknown(job: Job) -> None:
    """Refuse jobs that Slurm cannot run in any form. Raises InvalidRequest."""
    if job.array is not None and job.element is None:
        raise InvalidRequest("arrays as a whole are not given to Slurm by this version; their elements are")
    retry = job.spec.tasks[0].retry
    if not is_group(job) and (retry.max_restarts_on_errors or retry.recover_on_exit_codes):
        raise InvalidRequest(
            "a batch script is given to Slurm as it is, which does not restart it after an error",
            remedy="write it as a task of a job file, or leave max_restarts_on_errors and recover_on_exit_codes out",
        )
