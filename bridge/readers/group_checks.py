"""Rules about the tasks of one job together: names, primaries, delays, needs, shared nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from overspan.bridge.model.errors import Place
from overspan.bridge.model.names import check_task_name, dns_label, fill_name, find_collisions, member_name
from overspan.bridge.model.spec import Need, NeedKind
from overspan.bridge.readers.task_document import ParsedTask
from overspan.bridge.validation.diagnostics import Diagnostics, Fault, nearest
from overspan.bridge.validation.yaml_nodes import Scalar, Table, place_in

MAX_TASKS = 128
"""Tasks of one job: as many as a hetjob has components."""
LARGEST_ID = 10**10
"""For the length of a name with the job's id in it."""

# Slurm's words for what a need waits for.
SLURM_KINDS = {
    "after": NeedKind.STARTED,
    "afterok": NeedKind.OK,
    "afternotok": NeedKind.NOT_OK,
    "afterany": NeedKind.ENDED,
}
KINDS: dict[str, NeedKind] = {**{kind.value: kind for kind in NeedKind}, **SLURM_KINDS}


def check_job_name(name: str, place: Place, *, group: bool) -> str:
    """A job's name: that of a task, with {id} allowed; a group's has to be a host name too. Raises Fault."""
    try:
        filled = fill_name(name, LARGEST_ID)
        check_task_name(filled)
        if group:
            dns_label(filled)
    except ValueError as error:
        raise Fault(str(error), place) from None
    return name


def read_names(tables: Sequence[Table], *, group: bool, found: Diagnostics) -> list[str]:
    """The tasks' names. In a group each needs one; elsewhere a task without one is called task-0, task-1...

    Faults carry the task's place in the file, counted from 1.
    """
    names: list[str] = []
    for index, table in enumerate(tables):
        node = table.get("name")
        label = f"task {index + 1}"
        if node is None:
            if group:
                found.add(f"{label} has no name", table.place, "give every task of a group a `name`")
            names.append(f"task-{index}")
            continue
        name = node.text if isinstance(node, Scalar) else ""
        try:
            check_task_name(name)
            member_name(name, 0)
        except ValueError as error:
            found.add(f"{label}: {error}", node.place)
            name = f"task-{index}"
        names.append(name)
    _check_distinct(tables, names, found)
    return names


def _check_distinct(tables: Sequence[Table], names: Sequence[str], found: Diagnostics) -> None:
    for same in find_collisions(names):
        indices = [index for index, name in enumerate(names) if name in same]
        last = indices[-1]
        place = place_in(tables[last], "name")
        first = f"task {indices[0] + 1} at {place_in(tables[indices[0]], 'name')}"
        if len(set(same)) == 1:
            found.add(f"task {last + 1}: the name {names[last]!r} is taken by {first}", place, "give it another name")
        else:
            found.add(
                f"task {last + 1}: {names[last]!r} and {names[indices[0]]!r} of {first} come to the same host name",
                place,
                "host names tell neither case nor '_' and '-' apart; give one of them another name",
            )


def check_sizes(parsed_tasks: Sequence[ParsedTask], found: Diagnostics) -> None:
    """A host name for every node."""
    for parsed in parsed_tasks:
        try:
            most = (parsed.values.get("elastic") or {}).get("max", 0)
            member_name(parsed.spec.name, max(parsed.spec.num_nodes, most) - 1)
        except ValueError as error:
            found.add(str(error), parsed.place("name"))


def read_primaries(
    header: Table | None, values: Mapping[str, Any], names: Sequence[str], found: Diagnostics
) -> set[str]:
    """The primary tasks; all of them where the list is empty or missing."""
    listed = values.get("primary_tasks", ())
    for index, name in enumerate(listed):
        if name not in names and header is not None:
            found.add(
                f"primary_tasks names {name!r}, which is no task{nearest(name, names)}",
                place_in(header, "primary_tasks", index),
                f"the tasks are {', '.join(names)}",
            )
    return set(listed) & set(names) or set(names)


def read_delays(
    header: Table, values: Mapping[str, Any], parsed_tasks: Sequence[ParsedTask], found: Diagnostics
) -> dict[str, int]:
    """The termination delay of each task, in seconds."""
    names = [parsed.spec.name for parsed in parsed_tasks]
    written = values.get("termination_delay", 0)
    if not isinstance(written, dict):
        return dict.fromkeys(names, written)
    for key in written:
        if key != "default" and key not in names:
            found.add(
                f"termination_delay names {key!r}, which is no task{nearest(key, [*names, 'default'])}",
                place_in(header, "termination_delay", key),
                f"the tasks are {', '.join(names)}",
            )
    for parsed in parsed_tasks:
        if parsed.spec.name == "default":
            found.add(
                "a task is called 'default', which is a key of termination_delay's mapping",
                parsed.place("name"),
                "give the task another name, or write one delay for all",
            )
    default: int = written.get("default", 0)
    return {name: int(written.get(name, default)) for name in names}


def check_auxiliaries(
    parsed_tasks: Sequence[ParsedTask], primaries: set[str], delays: Mapping[str, Any], found: Diagnostics
) -> None:
    """Keys that mean nothing for a primary task."""
    for parsed in parsed_tasks:
        if parsed.spec.name not in primaries:
            continue
        for key in ("on_failure", "notice_signal"):
            if key in parsed.values:
                found.add(
                    f"{key} is for auxiliary tasks, and {parsed.spec.name} is a primary one",
                    parsed.place(key),
                    "name the primary tasks in the header's primary_tasks, or remove the key",
                )
        if isinstance(delays, dict) and parsed.spec.name in delays:
            found.note(f"termination_delay of {parsed.spec.name} has no effect: it is a primary task")


def read_needs(parsed: ParsedTask, parsed_tasks: Sequence[ParsedTask], found: Diagnostics) -> tuple[Need, ...]:
    """What a task waits for: NAME, KIND:NAME or {task: NAME, until: KIND}.

    A name alone waits until that task is ready where it has a `ready`, else until it has started.
    """
    known = {other.spec.name: other for other in parsed_tasks}
    needs: list[Need] = []
    for index, item in enumerate(parsed.values.get("needs", ())):
        place = parsed.place("needs", index)
        with found.collecting():
            name, kind = _read_need(item, place)
            if name not in known:
                raise Fault(
                    f"{parsed.spec.name} needs {name!r}, which is no task{nearest(name, known)}",
                    place,
                    f"the tasks are {', '.join(known)}",
                )
            if name == parsed.spec.name:
                raise Fault(f"{name} needs itself", place)
            has_ready = known[name].spec.ready is not None
            if kind is NeedKind.READY and not has_ready:
                raise Fault(
                    f"{name} does not say when it is ready", place, f"give {name} a `ready`, such as {{tcp: 8000}}"
                )
            needs.append(Need(name, kind or (NeedKind.READY if has_ready else NeedKind.STARTED)))
    return tuple(dict.fromkeys(needs))


def _read_need(item: Any, place: Place) -> tuple[str, NeedKind | None]:
    if isinstance(item, dict):
        return str(item.get("task", "")), item.get("until")
    kind, colon, name = str(item).partition(":")
    if not colon:
        return kind, None
    if kind not in KINDS:
        raise Fault(f"{kind!r} is not a kind of need{nearest(kind, KINDS)}", place, f"write one of {', '.join(KINDS)}")
    return name, KINDS[kind]


def check_shares(parsed_tasks: Sequence[ParsedTask], found: Diagnostics) -> None:
    """`share` names a task with nodes of its own, and enough of them."""
    known = {parsed.spec.name: parsed.spec for parsed in parsed_tasks}
    for parsed in parsed_tasks:
        spec, place = parsed.spec, parsed.place("share")
        if not spec.share:
            continue
        host = known.get(spec.share)
        if host is None:
            found.add(
                f"{spec.name} shares the nodes of {spec.share!r}, which is no task{nearest(spec.share, known)}", place
            )
        elif host is spec:
            found.add(f"{spec.name} shares its own nodes", place)
        elif host.share:
            found.add(f"{spec.share} has no nodes of its own: it shares those of {host.share!r}", place)
        elif host.num_nodes < spec.num_nodes:
            found.add(
                f"{spec.name} has {spec.num_nodes} nodes and shares those of {host.name}, which has {host.num_nodes}",
                place,
            )
        if spec.spread:
            found.add("share and spread exclude each other", parsed.place("spread"), "keep one of them")


def check_cycles(parsed_tasks: Sequence[ParsedTask], needs: Mapping[str, tuple[Need, ...]], found: Diagnostics) -> None:
    """No task waits for itself, directly or by way of others."""
    done: set[str] = set()
    for parsed in parsed_tasks:
        cycle = _find_cycle(parsed.spec.name, needs, done)
        if cycle:
            found.add(f"the tasks wait for each other: {' -> '.join(cycle)}", parsed.place("needs"))
            return


def _find_cycle(start: str, needs: Mapping[str, tuple[Need, ...]], done: set[str]) -> list[str]:
    path: list[str] = []
    stack = [(start, False)]
    while stack:
        name, leaving = stack.pop()
        if leaving:
            path.pop()
            done.add(name)
        elif name in path:
            return [*path[path.index(name) :], name]
        elif name not in done:
            path.append(name)
            stack.append((name, True))
            stack.extend((need.task, False) for need in needs.get(name, ()))
    return []


def job_name_of(text: str) -> str:
    """A name made of any text, such as a file's: what is not allowed becomes '-'."""
    name = re.sub("[^A-Za-z0-9_-]+", "-", text).strip("-_")[:48]
    return name or "job"
