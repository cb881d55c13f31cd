"""`scontrol update`: words such as JobId=42 TimeLimit=10, read into what the API takes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from overspan.bridge.model.durations import parse_time_limit, parse_when
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.sizes import parse_memory
from overspan.bridge.model.slurm.words import BAD_NODE, NOT_SUPPORTED


class Tag(NamedTuple):
    """A parameter: how many letters of it are enough, the API's name, and how its value is read."""

    name: str
    least: int
    key: str
    read: Callable[[str, float], Any]


def _text(value: str, now: float) -> str:
    return value


def _priority(value: str, now: float) -> int:
    return int(value)


def _throttle(value: str, now: float) -> int:
    count = int(value)
    if count < 0:
        raise ValueError(value)
    return count


def _nice(value: str, now: float) -> int:
    return int(value or 100)


def _limit(value: str, now: float) -> int | None:
    return parse_time_limit(value)


def _count(value: str, now: float) -> int:
    count = int(value.partition("-")[0])
    if count < 1:
        raise ValueError(value)
    return count


def _yes(value: str, now: float) -> bool:
    return bool(int(value))


def _mebibytes(value: str, now: float) -> int:
    return parse_memory(value)


# In the order and with the least letters of Slurm's scontrol_update_job.
_TAGS = (
    Tag("JobId", 3, "", _text),
    Tag("ArrayTaskThrottle", 10, "throttle", _throttle),
    Tag("Comment", 3, "comment", _text),
    Tag("TimeLimit", 5, "time_limit", _limit),
    Tag("Priority", 2, "priority", _priority),
    Tag("Nice", 2, "nice", _nice),
    Tag("CPUsPerTask", 9, "cpus_per_task", _count),
    Tag("CPUs/Task", 5, "cpus_per_task", _count),
    Tag("NumCPUs", 6, "cpus", _count),
    Tag("NumTasks", 8, "tasks", _count),
    Tag("ReqProcs", 8, "tasks", _count),
    Tag("Requeue", 4, "requeue", _yes),
    Tag("NumNodes", 7, "nodes", _count),
    Tag("ReqNodes", 8, "nodes", _count),
    Tag("MinMemoryNode", 10, "memory", _mebibytes),
    Tag("MinMemoryCPU", 10, "memory_per_cpu", _mebibytes),
    Tag("Partition", 2, "partition", _text),
    Tag("QOS", 3, "qos", _text),
    Tag("Account", 1, "account", _text),
    Tag("Name", 2, "name", _text),
    Tag("JobName", 4, "name", _text),
    Tag("StdOut", 6, "stdout", _text),
    Tag("Gres", 2, "gres", _text),
    Tag("Dependency", 1, "dependency", _text),
    Tag("EligibleTime", 2, "begin", parse_when),
    Tag("StartTime", 2, "begin", parse_when),
)
_OTHERS = (
    "admincomment burstbuffer clusters contiguous corespec cpuspertres deadline delayboot endtime excnodelist features"
    " licenses mailtype mailuser mempertres mincpusnode mintmpdisknode oversubscribe prefer reboot reqcores reqnodelist"
    " nodelist reqsockets reqthreads resetaccruetime shared switches taskspernode threadspec timemin tresbind tresfreq"
    " tresperjob trespernode trespersocket trespertask userid wckey workdir"
)
_KNOWN = frozenset(_OTHERS.split())
"""Parameters of Slurm's that nothing here can change after the submission."""
NO_ENTITY = """No valid entity in update command
Input line must include "NodeName", "PartitionName", "Reservation", "JobId", or "SlurmctldDebug\""""
_REFUSALS = {
    "deadline": "Access/permission denied",
    "features": "Invalid feature specification",
    "reqnodelist": BAD_NODE,
    "nodelist": BAD_NODE,
}
"""What Slurm says where a cluster has no such thing."""


class JobUpdate(NamedTuple):
    """What to change: ids, or the name of jobs, and values by the API's names; `refused` are parameters of no use.

    `time_limit_by` among the values are seconds to add to the limit that a job has.
    """

    refs: tuple[str, ...]
    name: str
    values: dict[str, Any]
    refused: tuple[str, ...] = ()


def parse_update(words: Sequence[str], now: float) -> JobUpdate:
    """Read the words after `update`. Raises InvalidRequest with the lines that scontrol writes."""
    refs: tuple[str, ...] = ()
    values: dict[str, Any] = {}
    refused = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals and _matches(name, "Nice", 2):
            values["nice"] = 100
            continue
        if not equals:
            raise InvalidRequest(f"Invalid input: {word}\nRequest aborted")
        tag = next((tag for tag in _TAGS if _matches(name.rstrip("+-"), tag.name, tag.least)), None)
        if tag is None and name.lower() not in _KNOWN:
            if not any(_matches(other.partition("=")[0], "JobId", 3) for other in words):
                raise InvalidRequest(NO_ENTITY)
            raise InvalidRequest(f"Update of this parameter is not supported: {word}\nRequest aborted")
        sign = next((text for text in (name[-1:], value[:1]) if text in ("+", "-")), "")
        if tag is None or (name[-1:] in ("+", "-") and tag.key not in ("time_limit", "nice", "priority")):
            refused.append(name)
        elif sign and tag.key == "time_limit":
            # `TimeLimit+=10` and `TimeLimit=+10` change the limit by an amount.
            seconds = _read(tag, value.lstrip("+-"), now) or 0
            values["time_limit_by"] = -seconds if sign == "-" else seconds
        elif not tag.key:
            refs = tuple(item for item in value.split(",") if item)
        else:
            values[tag.key] = _read(tag, value, now)
    if not refs and not values and not refused:
        raise InvalidRequest(NO_ENTITY)
    # Without an id a name chooses the jobs.
    chosen = "" if refs else str(values.pop("name", ""))
    if not values and not refused:
        raise InvalidRequest("No changes specified")
    if not refs and not chosen:
        raise InvalidRequest("scontrol: error: No job ID specified")
    return JobUpdate(refs, chosen, values, tuple(refused))


def _read(tag: Tag, value: str, now: float) -> Any:
    try:
        return tag.read(value, now)
    except ValueError:
        raise InvalidRequest(_complaint(tag.name, value)) from None


def _complaint(tag: str, value: str) -> str:
    if tag in ("TimeLimit", "ArrayTaskThrottle"):
        return f"scontrol: error: Invalid {tag} value"
    if tag in ("EligibleTime", "StartTime"):
        return f"Invalid time specification (pos=0): {value}\nNo changes specified"
    if tag in ("NumNodes", "ReqNodes"):
        return f'scontrol: error: Invalid numeric value "{value}" for requested node count.'
    return f"scontrol: error: Invalid {tag} value: {value}"


def explain_refusal(names: Sequence[str]) -> str:
    """Why the first of these parameters cannot be changed."""
    return _REFUSALS.get(names[0].lower(), NOT_SUPPORTED)


def _matches(text: str, name: str, least: int) -> bool:
    """Whether a text is a beginning of a parameter's name, long enough; case does not matter."""
    return len(text) >= least and name.lower().startswith(text.lower())
