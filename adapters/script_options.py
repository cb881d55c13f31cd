"""Options of batch scripts on a cluster whose settings define its partitions, and refusals in Slurm's words.

Pure. Only batch scripts are asked: what a job file says under `slurm` is for Slurm clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from overspan.bridge.model.job import Job
from overspan.bridge.model.slurm.hostlists import expand
from overspan.bridge.model.slurm.words import BAD_NODE, BAD_PARTITION, BAD_RESERVATION, TOO_LONG
from overspan.bridge.model.spec import Form, TaskSpec


class Limited(Protocol):
    """A partition: what its jobs may ask for at most."""

    @property
    def time_limit(self) -> int | None:
        """Seconds; None for no limit."""


def refuse_partition(job: Job, find: Callable[[str], Limited | None]) -> str:
    """Why none of the partitions that a job names can have it; '' where one can. `find` gives a partition by name."""
    names = job.spec.partition.split(",")
    partitions = [find(name) for name in names]
    for name, partition in zip(names, partitions, strict=True):
        if partition is None:
            return f"{BAD_PARTITION}: {name}"
    return "" if any(_allows(partition, job) for partition in partitions if partition is not None) else TOO_LONG


def list_script_options(tasks: Iterable[TaskSpec]) -> list[Mapping[str, Any]]:
    """The options of Slurm's that batch scripts have."""
    return [task.native.get("slurm", {}) for task in tasks if task.form is Form.BATCH]


def refuse_reservation(demands: Mapping[str, Any]) -> str:
    """There are no reservations here; '' where none is asked for."""
    return BAD_RESERVATION if demands.get("reservation") else ""


def refuse_nodes(demands: Mapping[str, Any], known: Collection[str]) -> str:
    """What is wrong with the nodes that are asked for or excluded by name; '' for nothing."""
    try:
        names = {name for key in ("nodelist", "exclude") for name in expand(str(demands.get(key) or ""))}
    except ValueError:
        return BAD_NODE
    return "" if names <= set(known) else BAD_NODE


def _allows(partition: Limited, job: Job) -> bool:
    limit = partition.time_limit
    return limit is None or all(task.time is None or task.time <= limit for task in job.spec.tasks)
