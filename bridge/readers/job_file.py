"""Reads a job file into a JobSpec: a group, a pipeline, or a single document that is a job with one task."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from overspan.bridge.model.durations import parse_when
from overspan.bridge.model.errors import InvalidRequest, Place
from overspan.bridge.model.ids import ArraySpec
from overspan.bridge.model.names import ID_FIELD, dns_label
from overspan.bridge.model.spec import Dependency, JobSpec, Need, NeedKind, Start, TaskSpec
from overspan.bridge.model.stages import list_late_starters, list_turns
from overspan.bridge.readers.candidates import differ, list_candidates
from overspan.bridge.readers.dependencies import join_dependencies
from overspan.bridge.readers.elastic import read_elastic_tasks
from overspan.bridge.readers.evaluations import EvaluationContext, read_evaluations, read_stop_when
from overspan.bridge.readers.field_types import take_plain
from overspan.bridge.readers.group_checks import (
    MAX_TASKS,
    check_auxiliaries,
    check_cycles,
    check_job_name,
    check_shares,
    check_sizes,
    job_name_of,
    read_delays,
    read_names,
    read_needs,
    read_primaries,
)
from overspan.bridge.readers.header_fields import HEADER, HEADER_ONLY, SINGLE, TASK, TASK_ONLY, Execution
from overspan.bridge.readers.overrides import apply_overrides
from overspan.bridge.readers.placement import POOL_REMEDY, JobPlacement, check_clusters, check_pool, place_job
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.readers.storage_mounts import name_markers
from overspan.bridge.readers.task_document import ParsedTask, read_task
from overspan.bridge.validation.diagnostics import Diagnostics, nearest, refuse
from overspan.bridge.validation.yaml_documents import read_documents
from overspan.bridge.validation.yaml_nodes import Items, Scalar, Table, place_in

Values = dict[str, Any]

LATER_KEYS = ("pool",)
"""Header keys that are checked here and carried out by a later version."""


@dataclass(frozen=True)
class _Layout:
    """The documents by role. A single document is header and task at once: `header` is None there."""

    header: Table | None
    tasks: list[Table]
    group: bool

    @property
    def single(self) -> bool:
        return self.header is None and len(self.tasks) == 1

    @property
    def top(self) -> Table:
        """The document where keys of the whole job stand."""
        return self.tasks[0] if self.header is None else self.header


def read_job_file(text: str, file: str, *, context: ReadContext) -> JobSpec:
    """Read a job file.

    `file` names it in messages. Every fault is reported at once: InvalidRequest with the first one's position and
    remedy, the others as further lines of its message.
    """
    origin = replace(context.origin, file=context.origin.file or file, text=context.origin.text or text)
    return read_job_tables(read_tables(text, file), file, replace(context, origin=origin))


def read_job_tables(tables: list[Table], file: str, context: ReadContext) -> JobSpec:
    """Read the documents of a job file; raises as `read_job_file`."""
    _check_context(context)
    layout = _arrange(tables)
    if len(layout.tasks) > MAX_TASKS:
        refuse(f"the job has {len(layout.tasks)} tasks; the limit is {MAX_TASKS}", layout.tasks[MAX_TASKS].place)
    header, tasks = apply_overrides(layout.header, layout.tasks, context.overrides)
    layout = replace(layout, header=header, tasks=tasks)
    found = Diagnostics()
    job_name = _read_job_name(layout, file, context, found)
    names = [_task_name(job_name)] if layout.single else read_names(tasks, group=layout.group, found=found)
    values = HEADER.read(header, found) if header is not None else {}
    record = SINGLE if layout.single else TASK
    parsed_tasks = [read_task(table, record, name, context, found) for table, name in zip(tasks, names, strict=True)]
    if layout.single:
        values = parsed_tasks[0].values
    specs, later = _finish_tasks(layout, values, parsed_tasks, found)
    spec = _make_job(layout, values, parsed_tasks, context, found)
    found.raise_any()
    placed = tuple(replace(task, cluster=own.cluster) for task, own in zip(specs, spec.tasks, strict=True))
    placed = tuple(name_markers(task, spec.on_checkpoint) for task in placed)
    # Without turns the two mean the same, and builds before this one read the other.
    together = spec.start is Start.TURNS and not (list_turns(placed, Start.TURNS) or list_late_starters(placed))
    return replace(
        replace(spec, tasks=placed, start=Start.TOGETHER if together else spec.start).take(spec.candidates[0]),
        name=job_name,
        candidates=spec.candidates if differ(spec.candidates) else (),
        later={**spec.later, **later},
        mount_places={source: place for parsed in parsed_tasks for source, place in parsed.mount_places.items()},
        later_places={**_later_places(layout, spec, parsed_tasks), **_collect_places(parsed_tasks)},
        notes=tuple(found.notes),
        origin=context.origin,
    )


def read_tables(text: str, file: str) -> list[Table]:
    """Read the documents of a job file: mappings, at least one. Raises InvalidRequest."""
    tables: list[Table] = []
    for node in read_documents(text, file):
        if not isinstance(node, Table):
            kind = "a list" if isinstance(node, Items) else "plain text"
            refuse(
                f"a document of a job file is a mapping, and this is {kind}",
                node.place,
                "write keys such as `name: train` and `run: python train.py`",
            )
        tables.append(node)
    if not tables:
        refuse("the job file is empty", Place(file), "write at least `run:` and a command")
    return tables


def _check_context(context: ReadContext) -> None:
    for name in context.chosen:
        if context.clusters is not None and name not in context.clusters:
            raise InvalidRequest(
                f"there is no cluster named {name!r}{nearest(name, context.clusters)}",
                remedy=f"the clusters are {', '.join(context.clusters)}",
            )


def _arrange(tables: list[Table]) -> _Layout:
    """Tell a group, a pipeline and a single job apart. Raises InvalidRequest."""
    first = tables[0]
    if "execution" not in first.entries:
        keys = set(first.entries)
        if len(tables) == 1:
            if keys & HEADER_ONLY and not keys & TASK_ONLY:
                refuse("the group has no task", first.place, "write one document for each task, after lines of ---")
            return _Layout(None, tables, False)
        if keys & TASK_ONLY and not keys & HEADER_ONLY:
            return _Layout(None, tables, False)
        if keys & {"primary_tasks", "termination_delay", "inter_connection"}:
            refuse("the header has no `execution`", first.place, "write `execution: parallel` for a group")
        return _Layout(first, tables[1:], False)
    if len(tables) == 1:
        refuse("the file has a header and no task", first.place, "write one document for each task, after lines of ---")
    node = first.get("execution")
    group = isinstance(node, Scalar) and node.text == Execution.PARALLEL.value
    return _Layout(first, tables[1:], group)


def _read_job_name(layout: _Layout, file: str, context: ReadContext, found: Diagnostics) -> str:
    """--name, or the header's name, or the only task's, or one made of the file's name."""
    fallback = job_name_of(os.path.splitext(os.path.basename(file))[0])
    node = layout.top.get("name") if layout.header is not None or layout.single else None
    if context.name:
        name, place = context.name, Place("--name")
    elif isinstance(node, Scalar):
        name, place = node.text, node.place
    elif layout.group:
        found.add("the header has no name", layout.top.place, "give the group a `name`")
        return fallback
    else:
        return fallback
    with found.collecting():
        return check_job_name(name, place, group=layout.group)
    return fallback


def _task_name(job_name: str) -> str:
    """The name of a job's only task: the job's, where that is a host name."""
    name = job_name_of(job_name.replace(ID_FIELD, ""))
    try:
        dns_label(f"{name}-0")
    except ValueError:
        return "task"
    return name


def _finish_tasks(
    layout: _Layout, values: Values, parsed_tasks: Sequence[ParsedTask], found: Diagnostics
) -> tuple[list[TaskSpec], Values]:
    """Complete every task with what depends on the header and on the other tasks."""
    names = [parsed.spec.name for parsed in parsed_tasks]
    check_sizes(parsed_tasks, found)
    check_shares(parsed_tasks, found)
    primaries = read_primaries(layout.header, values, names, found)
    check_auxiliaries(parsed_tasks, primaries, values.get("termination_delay", {}), found)
    delays = read_delays(layout.header, values, parsed_tasks, found) if layout.header is not None else {}
    needs = (
        {} if layout.single else {parsed.spec.name: read_needs(parsed, parsed_tasks, found) for parsed in parsed_tasks}
    )
    if not layout.group:
        _chain(parsed_tasks, needs)
    check_cycles(parsed_tasks, needs, found)
    specs = [
        replace(
            parsed.spec,
            primary=parsed.spec.name in primaries,
            termination_delay=0 if parsed.spec.name in primaries else delays.get(parsed.spec.name, 0),
            needs=needs.get(parsed.spec.name, ()),
        )
        for parsed in parsed_tasks
    ]
    specs = read_elastic_tasks(specs, parsed_tasks, found, group=layout.group)
    return specs, {key: value for parsed in parsed_tasks for key, value in parsed.later.items()}


def _collect_places(parsed_tasks: Sequence[ParsedTask]) -> dict[str, Place]:
    return {words: place for parsed in parsed_tasks for words, place in parsed.later_places.items()}


def _later_places(layout: _Layout, spec: JobSpec, parsed_tasks: Sequence[ParsedTask]) -> dict[str, Place]:
    """The positions of settings in the header, and of lists of clusters, that cannot be carried out."""
    places = {key: place_in(layout.top, key) for key in spec.later if key in LATER_KEYS}
    lists = {f"{parsed.spec.name}.cluster": parsed.cluster_request.place for parsed in parsed_tasks}
    return {**places, **{key: place for key, place in lists.items() if key in spec.later}}


def _chain(parsed_tasks: Sequence[ParsedTask], needs: dict[str, tuple[Need, ...]]) -> None:
    """Chain a pipeline: each task also needs the success of the one before it."""
    for before, parsed in pairwise(parsed_tasks):
        follows = Need(before.spec.name, NeedKind.OK)
        own = needs.get(parsed.spec.name, ())
        if follows not in own:
            needs[parsed.spec.name] = (follows, *own)


def _make_job(
    layout: _Layout, values: Values, parsed_tasks: Sequence[ParsedTask], context: ReadContext, found: Diagnostics
) -> JobSpec:
    """The job without its name and its tasks' last details; the tasks' clusters are set."""
    top = layout.top
    names = [parsed.spec.name for parsed in parsed_tasks]
    clusters = _read_clusters(layout, values, context, found)
    placed = place_job(clusters, [parsed.cluster_request for parsed in parsed_tasks], names, context, found)
    if isinstance(values.get("pool"), str):
        placed = _place_in_pool(values["pool"], placed, top, context, found)
    native = {} if layout.single else {kind: values[kind] for kind in ("slurm", "kubernetes") if values.get(kind)}
    options: Mapping[str, str] = (parsed_tasks[0].spec.native if layout.single else native).get("slurm", {})
    written = [candidate.demand.native for candidate in parsed_tasks[0].candidates] if layout.single else [native]
    partitions = {options.get("slurm", {}).get("partition", "") for options in written}
    partition = partitions.pop() if len(partitions) == 1 else ""
    candidates = list_candidates(placed.clusters, [parsed.candidates for parsed in parsed_tasks], partition, found)
    primaries = read_primaries(layout.header, values, names, Diagnostics())
    evaluations = read_evaluations(
        layout.top, values, EvaluationContext(context, tuple(names), primaries, read_job_tables), found
    )
    inter_connection = values.get("inter_connection", True)
    start = Start.TOGETHER if layout.single else Start.TURNS if layout.group and inter_connection else Start.INDEPENDENT
    made = {
        "name": "",
        "tasks": tuple(
            replace(parsed.spec, cluster=own) for parsed, own in zip(parsed_tasks, placed.of_task, strict=True)
        ),
        "candidates": candidates,
        "group": layout.group,
        "clusters": placed.clusters,
        "start": values.get("start", start),
        "restart": None if layout.single else values.get("restart"),
        "priority": _read_priority(values, top, parsed_tasks, found),
        "hold": values.get("hold", False) or context.hold,
        "begin": _read_when("begin", values, top, context, found),
        "deadline": _read_deadline(values, top, context, found),
        "partition": candidates[0].partition,
        **{name: options.get(name, "") for name in ("account", "qos", "comment")},
        "native": native,
        "array": _read_array(layout, values, found),
        "dependency": _read_dependency(layout, values, found),
        "on_checkpoint": evaluations,
        "stop_when": read_stop_when(layout.top, values, evaluations, found),
        "later": {**{key: values[key] for key in LATER_KEYS if isinstance(values.get(key), dict)}, **placed.later},
    }
    job = JobSpec(**{**take_plain(JobSpec, values), **made})
    _check_job(job, layout, found)
    return job


def _place_in_pool(
    pool: str, placed: JobPlacement, top: Table, context: ReadContext, found: Diagnostics
) -> JobPlacement:
    """The job in the pool that it names; clusters that it names besides do not count."""
    if context.cluster:
        found.note(f"the pool {pool} in the file is ignored: --cluster {context.cluster} was given")
        return placed
    try:
        return JobPlacement((check_pool(pool, context),), ("",) * len(placed.of_task), {})
    except ValueError as error:
        found.add(str(error), place_in(top, "pool"), POOL_REMEDY)
        return placed


def _read_clusters(layout: _Layout, values: Values, context: ReadContext, found: Diagnostics) -> tuple[str, ...]:
    """The header's clusters; those of a single task are its own."""
    if layout.single or not isinstance(values.get("cluster"), tuple):
        return ()
    clusters: tuple[str, ...] = values["cluster"]
    if not context.cluster:
        with found.collecting():
            clusters = check_clusters(clusters, place_in(layout.top, "cluster"), context)
    return clusters


def _read_priority(values: Values, top: Table, parsed_tasks: Sequence[ParsedTask], found: Diagnostics) -> int | None:
    """One priority for the job: the header's, or the one that all tasks share."""
    given = {parsed.priority: parsed for parsed in parsed_tasks if parsed.priority is not None}
    if "priority" in values:
        given[values["priority"]] = parsed_tasks[0]
    if len(given) > 1:
        listed = ", ".join(str(priority) for priority in sorted(given))
        place = place_in(top, "priority") if "priority" in values else parsed_tasks[-1].place("resources", "priority")
        found.add(f"the job has several priorities: {listed}", place, "write one, in the header")
    return next(iter(given), None)


def _read_when(key: str, values: Values, top: Table, context: ReadContext, found: Diagnostics) -> float | None:
    if key not in values:
        return None
    try:
        return parse_when(values[key], context.now)
    except ValueError as error:
        found.add(str(error), place_in(top, key))
    return None


def _read_deadline(values: Values, top: Table, context: ReadContext, found: Diagnostics) -> float | None:
    deadline = _read_when("deadline", values, top, context, found)
    if deadline is not None and deadline < context.now:
        found.add("the deadline is over", place_in(top, "deadline"), "write a time to come, such as now+2hours")
    return deadline


def _read_array(layout: _Layout, values: Values, found: Diagnostics) -> ArraySpec | None:
    if "array" in values and not layout.single:
        found.add(
            "an array of a job with several tasks is refused", place_in(layout.top, "array"), "submit one job each"
        )
    array: ArraySpec | None = values.get("array")
    return array


def _read_dependency(layout: _Layout, values: Values, found: Diagnostics) -> Dependency:
    """The header's `needs`: other jobs. Those of a task among several are tasks of the same job."""
    if layout.header is None and not layout.single:
        return Dependency()
    try:
        return join_dependencies(list(values.get("needs", ())))
    except ValueError as error:
        found.add(str(error), place_in(layout.top, "needs"))
    return Dependency()


def _check_job(job: JobSpec, layout: _Layout, found: Diagnostics) -> None:
    """Keys of the header that need each other."""
    if job.race and len(job.clusters) < 2:
        found.add("race needs several clusters", place_in(layout.top, "race"), "write `cluster: [a, b]`")
    if job.failover_after is not None and not job.choice:
        found.note(f"{place_in(layout.top, 'failover_after')}: failover_after has no effect with one cluster")
    if job.race and job.failover_after is not None:
        found.add("race and failover_after exclude each other", place_in(layout.top, "race"), "keep one of them")
