"""Finding what an event is about, and putting its next facts back."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from overspan.bridge.model.job import Attempt, Job, NodeRun, Task


def find_task(job: Job, name: str) -> Optional[Task]:
    """The task of that name; None when there is none."""
    return next((task for task in job.tasks if task.name == name), None)


def find_attempt(job: Job, name: str, number: int) -> Optional[tuple[Task, Attempt]]:
    """The task and its newest attempt, where that is live and of that number; None for anything late or unknown."""
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
