"""A job of the simulated lab again, with changes by options of sbatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from overspan.bridge.model.durations import format_limit, parse_wall_time
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.resubmit import split_change
from overspan.bridge.model.sizes import format_memory_option, parse_memory
from overspan.tui.demo.machines import CLUSTERS
from overspan.tui.demo.records import DemoJob, JobWish, TaskWish


def _read_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number from 1 on")
    return int(text)


_OF_TASK: dict[str, tuple[str, Callable[[TaskWish], str], Callable[[str], Any]]] = {
    "mem": ("memory", lambda task: format_memory_option(task.memory), parse_memory),
    "cpus-per-task": ("cpus", lambda task: str(task.cpus), _read_count),
    "nodes": ("nodes", lambda task: str(task.nodes), _read_count),
    "gpus-per-node": ("gpus", lambda task: str(task.gpus or ""), _read_count),
}
"""By the option: the field of a task's wish, how it is shown, and how it is read."""
_OF_JOB = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "clusters": "cluster",
    "job-name": "name",
    "comment": "comment",
}


def list_demo_values(job: DemoJob) -> dict[str, str]:
    """What can be changed, with the present values."""
    several = len(job.tasks) > 1
    values = {"time": format_limit(job.tasks[0].limit)}
    for task in job.tasks:
        for option, (_, show, _) in _OF_TASK.items():
            values[f"{task.wish.name}.{option}" if several else option] = show(task.wish)
    return {**values, **{option: str(getattr(job.wish, name)) for option, name in _OF_JOB.items()}}


def change_wish(wish: JobWish, changes: Mapping[str, str]) -> JobWish:
    """The wish with changes. Raises InvalidRequest, as the daemon would."""
    for key, value in changes.items():
        task, option = split_change(key)
        try:
            if option == "time":
                wish = wish._replace(limit=parse_wall_time(value))
            elif option in _OF_JOB:
                changed: dict[str, Any] = {_OF_JOB[option]: value}
                wish = wish._replace(**changed)
            elif option in _OF_TASK:
                wish = _change_task(wish, task, option, value)
            else:
                raise ValueError("the lab does not simulate it")
        except ValueError as error:
            raise InvalidRequest(f"--{option}: {error}") from None
    return _check_place(wish)


def _change_task(wish: JobWish, name: str, option: str, value: str) -> JobWish:
    field, _, read = _OF_TASK[option]
    names = [task.name for task in wish.tasks]
    if name not in names and (name or len(names) > 1):
        raise ValueError(f"name one of the tasks {', '.join(names)}")
    tasks = (task._replace(**{field: read(value)}) if name in ("", task.name) else task for task in wish.tasks)
    return wish._replace(tasks=tuple(tasks))


def _check_place(wish: JobWish) -> JobWish:
    cluster = next((each for each in CLUSTERS if each.name == wish.cluster), None)
    if cluster is None:
        listed = ", ".join(each.name for each in CLUSTERS)
        raise InvalidRequest(f"there is no cluster {wish.cluster!r}", remedy=f"the clusters are {listed}")
    partitions = [place.name for place in cluster.partitions]
    if wish.partition not in partitions:
        raise InvalidRequest(
            f"invalid partition specified: {wish.partition}", remedy=f"{wish.cluster} has {', '.join(partitions)}"
        )
    return wish
