"""`elastic` of a task: the bounds of its number of members, and what cannot go with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from overspan.bridge.model.elastic import DEFAULT_ROOM, Elastic
from overspan.bridge.model.spec import OnFailure, RestartScope, TaskSpec
from overspan.bridge.readers.task_document import ParsedTask
from overspan.bridge.readers.task_fields import NEVER
from overspan.bridge.validation.diagnostics import Diagnostics

_NO_GROUP = "an elastic task is an auxiliary one of a group: write `execution: parallel` and `primary_tasks`"


def _read_elastic(parsed: ParsedTask, spec: TaskSpec, found: Diagnostics, *, group: bool) -> TaskSpec:
    """The task with its bounds. Its own launch has the members that it needs; a lost one starts again alone."""
    values = parsed.values.get("elastic")
    if values is None:
        return spec
    least, most = values.get("min", 1), values.get("max", 0)
    wanted = parsed.values.get("num_nodes", least)
    _check(parsed, spec, found, group=group)
    if most < least:
        found.add(f"max is {most}, and min is {least}", parsed.place("elastic", "max"), "write min <= max")
    elif not least <= wanted <= most:
        place = parsed.place("num_nodes")
        found.add(f"num_nodes is {wanted}, and elastic allows {least} to {most}", place, "num_nodes is the first size")
    room = values.get("scale_up_after", DEFAULT_ROOM)
    elastic = Elastic(least, most, wanted, None if room == NEVER else float(room))
    return replace(spec, elastic=elastic, num_nodes=least, restart=spec.restart or RestartScope.NODE)


def _check(parsed: ParsedTask, spec: TaskSpec, found: Diagnostics, *, group: bool) -> None:
    place = parsed.place("elastic")
    if not group:
        found.add(f"{spec.name} is elastic, and the job is no group", place, _NO_GROUP)
    elif spec.primary:
        remedy = f"list the others under primary_tasks, without {spec.name}"
        found.add(f"{spec.name} is elastic, and a primary task: its end would decide the group's", place, remedy)
    if spec.share:
        remedy = "leave one of them out"
        found.add(f"{spec.name} is elastic, and shares the nodes of {spec.share}, which are as many", place, remedy)
    if spec.on_failure is OnFailure.FAIL_GROUP:
        remedy = "write restart or ignore"
        found.add(f"{spec.name} is elastic: its members come and go", parsed.place("on_failure"), remedy)
    if spec.restart not in (None, RestartScope.NODE):
        remedy = "leave it out"
        found.add(f"{spec.name} is elastic: each member starts again alone", parsed.place("restart"), remedy)


def read_elastic_tasks(
    specs: Sequence[TaskSpec], tasks: Sequence[ParsedTask], found: Diagnostics, *, group: bool
) -> list[TaskSpec]:
    """The tasks with their bounds."""
    return [_read_elastic(parsed, spec, found, group=group) for parsed, spec in zip(tasks, specs, strict=True)]
