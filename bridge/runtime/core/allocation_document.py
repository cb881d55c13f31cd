"""Writes the document that describes a job's allocation to srun; allocation.py reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overspan.bridge.model.allocations import is_allocation, runs_daemon
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form
from overspan.bridge.runtime.core.allocation import FORMAT, own_program

# What belongs to one node or one rank, and not to the allocation.
_PLACED = frozenset(
    {
        *("OVERSPAN_TASK", "OVERSPAN_NODE_INDEX", "OVERSPAN_HOST", "OVERSPAN_ADDR", "OVERSPAN_NODE_KEY"),
        *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_PRIO_PROCESS"),
    }
)
_SHARED_PREFIXES = ("SLURM_", "OVERSPAN_", "SKYPILOT_")


def describe_allocation(
    job: Job, environment: Mapping[str, str], names: Mapping[tuple[str, int], str]
) -> dict[str, Any]:
    """The document of a job that has its nodes, with its members' `names`. Pure except for the program's path."""
    tasks = job.spec.tasks
    batch = tasks[0].form is Form.BATCH
    return {
        "format": FORMAT,
        "program": own_program(),
        "job": job.id,
        "launch": job.launch,
        "name": job.spec.name,
        "user": job.spec.origin.user,
        "array": None if job.element is None else [job.element.array, job.element.index],
        "batch": batch,
        "components": [
            {
                "nodes": [
                    {
                        "task": task.name,
                        "index": item.index,
                        "name": names[(task.name, item.index)],
                        "address": item.address,
                        "gpus": item.gpus,
                        "served": runs_daemon(task, item.index) or (batch and _is_held(job, item.index)),
                    }
                    for item in job.placements
                    if item.task == task.name
                ],
                "ntasks": task.ntasks or 0,
                "ntasks_per_node": task.ntasks_per_node or 0,
                "cpus": _count_cpus(job, task.name) if batch else 0,
            }
            for task in tasks
        ],
        "environment": {
            name: value
            for name, value in environment.items()
            if name.startswith(_SHARED_PREFIXES) and name not in _PLACED
        },
    }


def _is_held(job: Job, index: int) -> bool:
    return index == 0 and is_allocation(job.spec.tasks[0])


def _count_cpus(job: Job, name: str) -> int:
    """CPUs of a node as its steps count them; 0 where they were not asked for in tasks."""
    spec = job.spec_of(name)
    if spec.ntasks is None and spec.ntasks_per_node is None and spec.cpus_per_task is None:
        return 0
    each = spec.ntasks_per_node or -(-(spec.ntasks or 1) // spec.num_nodes)
    return each * (spec.cpus_per_task or 1)
