"""Texts, amounts and sort keys made of a job's row, in Slurm's words. Pure."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.durations import format_elapsed, format_limit, format_timestamp, parse_time_limit

NULL = "(null)"
"""Where Slurm prints a missing text."""
BITSTRING = "SLURM_BITSTR_LEN"
_REASON_SHOWN = frozenset({"PENDING", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "FAILED"})
_HELD = frozenset({"JobHeldUser", "JobHeldAdmin"})
_MANY_STEPS = 5
_LAST = float("inf")


def job_id(row: JobRow, now: float = 0) -> str:
    """The id as users write it; of an array's pending elements as many as Slurm shows."""
    if row.array_waiting:
        return f"{row.array_id}_[{shorten_indices(row.array_waiting)}]"
    return row.ref


def array_task(row: JobRow, now: float = 0) -> str:
    """The index of an element, or those of the elements that are pending."""
    if row.array_waiting:
        return shorten_indices(row.array_waiting)
    return "N/A" if row.array_index is None else str(row.array_index)


def shorten_indices(text: str) -> str:
    """Array indices as squeue prints them: steps as a-b:s, 63 letters unless SLURM_BITSTR_LEN says otherwise."""
    indices, percent, throttle = text.partition("%")
    stepped = _as_steps(indices)
    if stepped:
        return stepped + percent + throttle
    given = os.environ.get(BITSTRING, "")
    limit = min(int(given), 4096) if given.isdigit() else 64
    if 0 < limit < len(indices) + 3:
        indices = indices[: limit - 4] + "..."
    return indices + percent + throttle


def _as_steps(indices: str) -> str:
    """More than five indices an equal step apart, over more than ten; empty where they are not."""
    if indices.count(",") < _MANY_STEPS or "-" in indices:
        return ""
    numbers = [int(number) for number in indices.split(",")]
    step = numbers[1] - numbers[0]
    regular = all(after - before == step for before, after in zip(numbers, numbers[1:]))
    return f"{numbers[0]}-{numbers[-1]}:{step}" if regular and numbers[-1] - numbers[0] > 2 * _MANY_STEPS else ""


def seconds_used(row: JobRow, now: float) -> float:
    """Wall seconds of the present run: 0 while pending, up to the end when it has ended."""
    if row.started_at is None or row.state == "PENDING":
        return 0
    if row.paused_at is not None:
        now = row.paused_at
    return max(0, (now if row.ended_at is None else row.ended_at) - row.started_at - row.paused)


_NO_TIME = format_elapsed(0)


def time_used(row: JobRow, now: float) -> str:
    """squeue's TIME."""
    seconds = seconds_used(row, now)
    return format_elapsed(seconds) if seconds else _NO_TIME


def format_time(epoch: float | None, missing: str = "N/A") -> str:
    """A point in time, by SLURM_TIME_FORMAT where it is set: `standard`, `relative` or a text for strftime."""
    form = os.environ.get("SLURM_TIME_FORMAT")
    if not epoch or not form or form == "standard":
        return format_timestamp(epoch, missing)
    local = time.localtime(epoch)
    if form != "relative":
        return time.strftime(form, local)
    return _relative(local, time.localtime())


def _relative(then: time.struct_time, now: time.struct_time) -> str:
    days = {-1: "Ystday ", 0: "", 1: "Tomorr "}
    apart = (then.tm_year - now.tm_year) * 366 + then.tm_yday - now.tm_yday
    if apart in days:
        return days[apart] + time.strftime("%H:%M:%S" if apart == 0 else "%H:%M", then)
    if abs(apart) < 7:
        return time.strftime("%a %H:%M", then)
    return time.strftime("%-d %b %H:%M" if then.tm_year == now.tm_year else "%-d %b %Y", then)


def nodes_or_reason(row: JobRow, now: float = 0) -> str:
    """The nodes, or the reason in parentheses where there are none to tell or the end needs one."""
    return f"({reason_word(row)})" if row.state in _REASON_SHOWN else row.node_list


def reason_word(row: JobRow, now: float = 0) -> str:
    """Slurm's word for the reason, which scripts compare; `span show` also has the cluster's own text."""
    return first_word(row.reason)


def first_word(reason: str) -> str:
    """The first word of a reason, without the cluster's own text behind it."""
    word = reason.partition(": ")[0]
    return reason if " " in word else word


def is_held(row: JobRow) -> bool:
    """Whether a user or an administrator holds the job."""
    return row.state == "PENDING" and row.reason in _HELD


def priority(row: JobRow) -> int:
    """The priority as Slurm shows it: 0 means held, so a job that was given none has 1."""
    return 0 if is_held(row) else row.priority or 1


def tres(row: JobRow, now: float = 0) -> str:
    """Trackable resources of the whole row, as squeue and scontrol write them."""
    parts = [f"cpu={row.cpus}"]
    if row.memory:
        parts.append(f"mem={_exact(row.memory * max(row.nodes, 1))}")
    parts += [f"node={row.nodes}", f"billing={row.cpus}"]
    if row.gpus:
        parts.append(f"gres/gpu={row.gpus:g}")
    return ",".join(parts)


def _exact(mib: int) -> str:
    """Memory in the largest unit that needs no fraction."""
    for unit, size in (("T", 1024 * 1024), ("G", 1024)):
        if mib and mib % size == 0:
            return f"{mib // size}{unit}"
    return f"{mib}M"


def first_node(row: JobRow, now: float = 0) -> str:
    """The node of the batch script."""
    from overspan.bridge.model.slurm.hostlists import expand

    return expand(row.node_list)[0] if row.node_list else "n/a"


def core_limit(row: JobRow, now: float) -> str:
    """squeue's TIME_LIMIT."""
    return format_limit(row.time_limit)


def shortest_time(row: JobRow) -> int | None:
    """The least time limit in seconds that the job accepts (--time-min); None where it was not given."""
    text = row.options.get("time-min")
    try:
        return parse_time_limit(str(text)) if text else None
    except ValueError:
        return None


def time_left(row: JobRow, now: float) -> str:
    """The limit less the time used."""
    return "UNLIMITED" if row.time_limit is None else format_elapsed(row.time_limit - seconds_used(row, now))


def planned_start(row: JobRow) -> float | None:
    """When a pending job will start: by its cluster's estimate, else by its begin time; None where it is not known."""
    if row.state != "PENDING":
        return None
    return (None if is_held(row) else row.expected_start) or row.begin


def start_time(row: JobRow, now: float) -> str:
    """When it started or, as far as it is known, will."""
    return format_time(planned_start(row) if row.state == "PENDING" else row.started_at)


def end_time(row: JobRow, now: float) -> str:
    """When it ended or, by its limit, will; NONE where it has no limit."""
    if row.ended_at is not None:
        return format_time(row.ended_at)
    start = planned_start(row) if row.state == "PENDING" else row.started_at
    if start is None:
        return "N/A"
    return "NONE" if row.time_limit is None else format_time(start + row.paused + row.time_limit)


def cpus_per_node(row: JobRow, now: float = 0) -> str:
    """CPUs that a node has to have: those of the tasks that start on it, where tasks were asked for."""
    if row.ntasks or row.cpus_per_task:
        return str((row.cpus_per_task or 1) * (row.ntasks_per_node or 1))
    return str(max(1, row.cpus // max(row.nodes, 1)))


def node_memory(row: JobRow, now: float = 0) -> str:
    """Memory asked for: of a node, or of a CPU."""
    return _exact(row.memory_per_cpu or row.memory) if row.memory_per_cpu or row.memory else "0"


def describe_gpus(row: JobRow, now: float = 0) -> str:
    """GPUs of a node as --gres has them."""
    if not row.gpus:
        return "N/A"
    kind = f"{row.gpu_kind}:" if row.gpu_kind else ""
    return f"gres:gpu:{kind}{row.gpus / max(row.nodes, 1):g}"


def over_subscribe(row: JobRow, now: float = 0) -> str:
    """NO for an exclusive job."""
    return "NO" if "exclusive" in row.options else "OK"


def option(name: str, missing: str = NULL) -> Callable[[JobRow, float], str]:
    """The text of an option that only Slurm carries out."""
    return lambda row, now: str(row.options.get(name) or missing)


def user_id(row: JobRow, now: float = 0) -> str:
    """The user's number."""
    if row.uid is not None:
        return str(row.uid)
    import pwd

    try:
        return str(pwd.getpwnam(row.user).pw_uid)
    except KeyError:
        return row.user


def group_id(row: JobRow, now: float = 0) -> str:
    """The number of the user's group."""
    return "" if row.gid is None else str(row.gid)


def group_name(row: JobRow, now: float = 0) -> str:
    """The name of the user's group."""
    if row.gid is None:
        return "N/A"
    import grp

    try:
        return grp.getgrgid(row.gid).gr_name
    except KeyError:
        return str(row.gid)


def eligible_at(row: JobRow) -> float | None:
    """When it became eligible, or will by its begin time; None where it waits for something else."""
    if row.state == "PENDING" and (is_held(row) or row.reason.startswith(("Dependency", "JobArrayTaskLimit"))):
        return None
    return max(row.begin or 0, row.submitted_at or 0)


def seconds_pending(row: JobRow, now: float) -> int:
    """Seconds from its submission to its start, or till now."""
    end = row.started_at if row.started_at is not None and row.state != "PENDING" else row.ended_at or now
    return max(0, int(end) - int(row.submitted_at or end))


def seconds_waited(row: JobRow, now: float) -> int:
    """Seconds for which it could have started and did not."""
    eligible = eligible_at(row)
    if eligible is None:
        return 0
    end = row.started_at or row.ended_at or now
    return max(0, int(end) - int(eligible))


def tasks_of(row: JobRow) -> int:
    """How many tasks `srun` starts: --ntasks, else one on each node."""
    return row.ntasks or (row.ntasks_per_node or 1) * max(row.nodes, 1)


def place_of(row: JobRow) -> tuple[int, float]:
    """By id; elements and tasks by their numbers, what waits of an array behind its elements."""
    if row.array_id is not None:
        return row.array_id, _LAST if row.array_index is None else row.array_index
    return row.id, row.task_offset or 0


def rank_of(row: JobRow) -> tuple[int, int, float]:
    """By priority, then by submission; held jobs have no rank among equals."""
    value = priority(row)
    number, place = place_of(row) if value else (0, 0)
    return value, -number, -place
