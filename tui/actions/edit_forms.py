"""What orders let the user edit: which values, where the present ones come from, and how the new ones are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.model.durations import format_limit, format_timestamp, parse_wall_time, parse_when
from overspan.bridge.model.options.resubmit import RESUBMIT_OPTIONS, OptionOwner, split_change
from overspan.bridge.model.sizes import format_memory_option, parse_memory
from overspan.tui.actions.edit_lines import EditFile, EditLine, explain_no_proposal, propose_more
from overspan.tui.actions.orders import LIVE, WAITING, read_integer, read_whole
from overspan.tui.actions.target import Target
from overspan.tui.daemon.source import Source
from overspan.tui.queue.tree import Kind

BLANK = "an empty value means: as it was, for each of them"
_ONE = "only lines that you change are sent"
_NO_DEPENDENCY = "dependency: none takes it away"


class EditForm(NamedTuple):
    """How an order is edited."""

    ask: Callable[[Source, Target], EditFile]
    """The file for one target, with its present values; asks the daemon."""
    make_blank: Callable[[Sequence[Target]], EditFile]
    """The file for several targets."""
    read: Callable[[Mapping[str, str], float], Any]
    """Makes what is sent of what was changed, at a time (epoch seconds). Raises ValueError."""


# --- resubmit ---------------------------------------------------------------------------------------------------------

_BLANKS = ("time", "mem", "cpus-per-task", "nodes", "partition", "account", "qos", "clusters", "comment")


def _ask_resubmission(source: Source, target: Target) -> EditFile:
    values = source.resubmit_values(target.ref)
    tasks = list(dict.fromkeys(task for task, _ in map(split_change, values) if task))
    states: dict[str, Collection[str]] = {"": tuple(target.states)}
    if tasks:
        states = {str(task["name"]): (str(task["state"]),) for task in source.show(target.ref)["tasks"]}
    lines = propose_more([EditLine(key, value) for key, value in values.items()], states)
    others = tuple(key for key in _list_keys(tasks) if key not in values)
    return EditFile(lines, others, (_ONE, *explain_no_proposal(lines, states)))


def _list_keys(tasks: Sequence[str]) -> Iterator[str]:
    """All that a resubmission of a job with these tasks can change; none are named of a job of one task."""
    for option in RESUBMIT_OPTIONS if tasks else ():
        if option.value and option.owner is not OptionOwner.JOB:
            yield from (f"{task}.{option.name}" for task in tasks)
    for option in RESUBMIT_OPTIONS:
        if option.value and not (tasks and option.owner is OptionOwner.TASK):
            yield option.name


def _make_blank_resubmission(targets: Sequence[Target]) -> EditFile:
    others = tuple(key for key in _list_keys(()) if key not in _BLANKS)
    return EditFile(tuple(map(EditLine, _BLANKS)), others, (BLANK,))


# --- edit -------------------------------------------------------------------------------------------------------------


class EditField(NamedTuple):
    """A value that `update` changes: its key in the file, and the states in which that may be."""

    key: str
    field: str
    states: frozenset[str]
    show: Callable[[Mapping[str, Any]], str]
    """The present value, of what the daemon tells of the job."""
    read: Callable[[str, float], Any] = lambda text, now: text
    kinds: frozenset[Kind] = frozenset(Kind) - {Kind.TASK}


def _show_text(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda job: str(job.get(name) or "")


def _show_limit(job: Mapping[str, Any]) -> str:
    limits = {format_limit(task.get("time_limit")) for task in job.get("tasks") or ()}
    return limits.pop() if len(limits) == 1 else ""


def _show_number(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda job: "" if job.get(name) is None else str(job[name])


def _show_task(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda job: "".join(str(task.get(name) or "") for task in (job.get("tasks") or ())[:1])


def _show_memory(job: Mapping[str, Any]) -> str:
    return "".join(format_memory_option(task["memory"]) for task in (job.get("tasks") or ())[:1] if task.get("memory"))


def _show_dependency(job: Mapping[str, Any]) -> str:
    """As --dependency; without what became of each."""
    return re.sub(r"\([a-z]+\)", "", job.get("dependency") or "")


def _read_dependency(text: str, now: float) -> str:
    """An empty line means as it was."""
    return "" if text.lower() == "none" else text


_ONE_TASK = frozenset({Kind.JOB, Kind.MEMBER})

EDIT_FIELDS = (
    EditField("time", "time_limit", LIVE, _show_limit, lambda text, now: parse_wall_time(text), frozenset(Kind)),
    EditField("name", "name", LIVE, _show_text("name"), kinds=_ONE_TASK | {Kind.ARRAY, Kind.ELEMENT}),
    EditField("comment", "comment", LIVE, _show_text("comment")),
    EditField(
        "throttle",
        "throttle",
        LIVE,
        lambda job: str((job.get("array") or {}).get("throttle") or 0),
        lambda text, now: read_whole(text),
        frozenset({Kind.ARRAY}),
    ),
    EditField("partition", "partition", WAITING, _show_text("partition")),
    EditField("account", "account", WAITING, _show_text("account")),
    EditField("qos", "qos", WAITING, _show_text("qos")),
    EditField("nodes", "nodes", WAITING, _show_task("nodes"), lambda text, now: read_whole(text), _ONE_TASK),
    EditField("mem", "memory", WAITING, _show_memory, lambda text, now: parse_memory(text), _ONE_TASK),
    EditField("dependency", "dependency", WAITING, _show_dependency, _read_dependency),
    EditField("begin", "begin", WAITING, lambda job: format_timestamp(job.get("begin"), ""), parse_when),
    EditField("priority", "priority", WAITING, _show_number("priority"), lambda text, now: read_whole(text)),
    EditField("nice", "nice", WAITING, _show_number("nice"), lambda text, now: read_integer(text)),
)


def _ask_edit(source: Source, target: Target) -> EditFile:
    job = source.show(target.ref)
    if target.kind is Kind.TASK:
        job = {**job, "tasks": [task for task in job["tasks"] if task.get("offset") == target.row.task_offset]}
    fields = [each for each in EDIT_FIELDS if target.kind in each.kinds]
    lines = tuple(EditLine(each.key, each.show(job)) for each in fields if each.states & target.states.keys())
    remarks = (_ONE, *((_NO_DEPENDENCY,) if job.get("dependency") else ()), *_tell_left_out(fields, [target]))
    return EditFile(lines, remarks=remarks)


def _make_blank_edit(targets: Sequence[Target]) -> EditFile:
    fields = [each for each in EDIT_FIELDS if any(target.kind in each.kinds for target in targets)]
    lines = [each.key for each in fields if any(each.states & target.states.keys() for target in targets)]
    return EditFile(tuple(map(EditLine, lines)), remarks=(BLANK, *_tell_left_out(fields, targets)))


def _tell_left_out(fields: Sequence[EditField], targets: Sequence[Target]) -> tuple[str, ...]:
    """Which values cannot be changed now."""
    states = {state for target in targets for state in target.states}
    names = [each.key for each in fields if not each.states & states]
    return (f"only of a waiting job: {', '.join(names)}",) if names else ()


def _read_edit(changes: Mapping[str, str], now: float) -> dict[str, Any]:
    values = {}
    for each in EDIT_FIELDS:
        if each.key in changes:
            try:
                values[each.field] = each.read(changes[each.key], now)
            except ValueError as error:
                raise ValueError(f"{each.key}: {error}") from None
    if not values:
        raise ValueError("nothing is changed yet")
    return values


_RESUBMIT = EditForm(_ask_resubmission, _make_blank_resubmission, lambda changes, now: dict(changes))
FORMS: Mapping[str, EditForm] = {
    "resubmit": _RESUBMIT,
    "resubmit_failed": _RESUBMIT,
    "edit": EditForm(_ask_edit, _make_blank_edit, _read_edit),
}
"""By the order's name."""
