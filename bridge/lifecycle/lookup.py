"""Look-ups by name and number, and replacement of one part of a job's facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from overspan.bridge.model.job import Attempt, Job, NodeRun, Task
from overspan.bridge.model.records import replace


def find_task(job: Job, name: str) -> Optional[Task]:
    """The task of that name; None when there is none."""
    return next((task for task in job.tasks if task.name == name), None)


def name_nodes(job: Job, task: str, runs: Iterable[NodeRun]) -> tuple[NodeRun, ...]:
    """The node runs of a task's attempt, with the nodes that they ran on as far as they are known."""
    nodes = {place.index: place.node for place in job.placements if place.task == task}
    return tuple(replace(run, node=nodes.get(run.index, "")) for run in runs)


def find_attempt(job: Job, name: str, number: int) -> Optional[tuple[Task, Attempt]]:
    """The task and its newest attempt, if that is live and has that number; None for late or unknown ones."""
    task = find_task(job, name)
    attempt = task.current if task else None
    if task is None or attempt is None or not attempt.live or attempt.number != number:
        return None
    return task, attempt


def find_node(job: Job, name: str, number: int, index: int, run: int) -> Optional[tuple[Task, Attempt, NodeRun]]:
    """The node run of a live attempt that is still open; None for anything late, repeated or unknown."""
    found = find_attempt(job, name, number)
    if found is None:
        return None
    task, attempt = found
    if not 0 <= index < len(attempt.nodes):
        return None
    node = attempt.nodes[index]
    return (task, attempt, node) if node.run == run and node.live else None


def put_node(attempt: Attempt, node: NodeRun) -> Attempt:
    """The attempt with that node's facts replaced."""
    return replace(attempt, nodes=tuple(node if old.index == node.index else old for old in attempt.nodes))
