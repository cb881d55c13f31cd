"""Which tasks of a job take turns, by its spec alone."""

from __future__ import annotations

from collections.abc import Mapping

from overspan.bridge.model.spec import NeedKind, Start, TaskSpec

_ENDS = (NeedKind.OK, NeedKind.NOT_OK, NeedKind.ENDED)
"""Needs that are met once the needed task is over."""


def list_turns(tasks: tuple[TaskSpec, ...], start: Start) -> tuple[tuple[str, ...], ...]:
    """The names of the tasks of each stage, in turn; empty for a job that is launched as a whole.

    A stage begins where every task from there on waits for the end of every task before. So tasks of different stages
    never run at the same time, and tasks that may are in one stage; but what waits for the end of a task that is
    skipped also waits for all that this one would have waited for. A task is in one stage with the task whose nodes it
    shares. A job that starts together has no stages. In a pipeline each task is a stage.
    """
    if start is Start.TOGETHER or not any(need.kind in _ENDS for task in tasks for need in task.needs):
        return ()
    over = _list_over(tasks)
    # Two of them are never unlike but of the same size: each task of one would wait for a task of the other.
    starts = sorted((before for before in set(over.values()) if before and _is_turn(tasks, over, before)), key=len)
    edges = [frozenset[str](), *starts, frozenset(over)]
    stages = (tuple(task.name for task in tasks if task.name in to - begin) for begin, to in zip(edges, edges[1:]))
    return tuple(stages) if starts else ()


def list_late_starters(tasks: tuple[TaskSpec, ...]) -> tuple[str, ...]:
    """The names of the tasks that surely start after the end of another, and can get resources of their own then.

    Tasks that share nodes have them together. A job with elastic tasks has none: its members are told of each other as
    they are when it starts.
    """
    if any(task.elastic is not None for task in tasks):
        return ()
    shared = {task.share for task in tasks if task.share} | {task.name for task in tasks if task.share}
    over = _list_over(tasks)
    return tuple(task.name for task in tasks if over[task.name] and task.name not in shared)


def _list_over(tasks: tuple[TaskSpec, ...]) -> Mapping[str, frozenset[str]]:
    """For each task the tasks that are surely over when it starts."""
    specs = {task.name: task for task in tasks}
    over: dict[str, frozenset[str]] = {}

    def find(name: str) -> frozenset[str]:
        if name not in over:
            found: set[str] = set()
            for need in specs[name].needs:
                # What a needed task has waited for is over too.
                found |= find(need.task)
                if need.kind in _ENDS:
                    found.add(need.task)
            over[name] = frozenset(found)
        return over[name]

    for task in tasks:
        find(task.name)
    return over


def _is_turn(tasks: tuple[TaskSpec, ...], over: Mapping[str, frozenset[str]], before: frozenset[str]) -> bool:
    """Whether all other tasks start after the end of all of these, and none shares nodes with one of these."""
    for task in tasks:
        early = task.name in before
        if not early and not before <= over[task.name]:
            return False
        if task.share and early is not (task.share in before):
            return False
    return True
