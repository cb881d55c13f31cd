"""Which tasks of a job take turns, by its spec alone."""

from __future__ import annotations

from overspan.bridge.model.spec import Need, NeedKind, Start, TaskSpec


def list_turns(tasks: tuple[TaskSpec, ...], group: bool, start: Start) -> tuple[tuple[str, ...], ...]:
    """The names of the tasks of each stage of a pipeline, in turn; empty for a job that is launched as a whole.

    A pipeline that starts together, has auxiliary tasks, or whose tasks share nodes, holds resources for all of its
    tasks at once.
    """
    if group or len(tasks) < 2 or start is not Start.INDEPENDENT:
        return ()
    chained = all(Need(before.name, NeedKind.OK) in task.needs for before, task in zip(tasks, tasks[1:]))
    if not chained or not all(task.primary and not task.share for task in tasks):
        return ()
    return tuple((task.name,) for task in tasks)
