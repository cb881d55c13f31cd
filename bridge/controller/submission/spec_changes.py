"""Changes of a job's spec for its resubmission, by options of sbatch. Pure.

A change sets the same fields as the reader of batch scripts would; what it does not name stays. Where native options of
Slurm or a batch script's own lines say the same thing, the change is laid over those too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from overspan.bridge.controller.submission.script_changes import check_gpu_options, write_script_option
from overspan.bridge.model.durations import parse_wall_time, parse_when
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.names import check_task_name, dns_label, fill_name
from overspan.bridge.model.options.resubmit import (
    OptionOwner,
    ResubmitOption,
    find_resubmit_option,
    list_option_names,
    split_change,
)
from overspan.bridge.model.options.sbatch import BY_NAME
from overspan.bridge.model.resources import Resources, parse_cpus
from overspan.bridge.model.spec import Candidate, Form, JobSpec, TaskSpec, demand_of
from overspan.bridge.readers.dependencies import parse_dependency
from overspan.bridge.readers.sbatch.arguments import Given
from overspan.bridge.readers.sbatch.checks import check_together, check_values
from overspan.bridge.readers.sbatch.errors import FATAL, PREFIX
from overspan.bridge.readers.sbatch.values import Geometry, read_geometry, read_needs_of_node
from overspan.bridge.validation.diagnostics import nearest

MEMORY = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
GPUS = frozenset({"gpus", "gpus-per-node", "gpus-per-task"})
_CPUS = frozenset({"cpus-per-task", "ntasks", "ntasks-per-node", "nodes"})
NATIVE = frozenset({"nodelist", "exclude", "constraint", "reservation"})
"""Options that only Slurm knows; the others are fields of the spec."""
_HIGHEST_PRIORITY = 2**31 - 1


@dataclass(frozen=True)
class SpecChanges:
    """What is to be changed: options of the job, and of each task by its name, as they were written."""

    of_job: Mapping[str, str] = field(default_factory=dict)
    of_tasks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def list_words(self) -> tuple[str, ...]:
        """The changes as options of a command line; those that all tasks share are told once."""
        first, *others = self.of_tasks.values() or ({},)
        shared = {name: value for name, value in first.items() if all(each.get(name) == value for each in others)}
        words = [_write(name, value) for name, value in {**shared, **self.of_job}.items()]
        for task, options in self.of_tasks.items():
            words += [f"{task}:{_write(name, value)}" for name, value in options.items() if name not in shared]
        return tuple(words)


def _write(name: str, value: str) -> str:
    return f"--{name}={value}" if value else f"--{name}"


def sort_changes(spec: JobSpec, changes: Mapping[str, str]) -> SpecChanges:
    """Sort changes, by OPTION or TASK.OPTION, into the job's and the tasks'. Raises InvalidRequest."""
    names = [task.name for task in spec.tasks]
    of_job: dict[str, str] = {}
    of_tasks: dict[str, dict[str, str]] = {name: {} for name in names}
    # What names a task counts before what is for all.
    for key, value in sorted(changes.items(), key=lambda change: bool(split_change(change[0])[0])):
        task, name = split_change(key)
        option = _find_option(name)
        if task and task not in names:
            raise InvalidRequest(f"the job has no task {task!r}{nearest(task, names)}", remedy=_name_tasks(names))
        if option.owner is OptionOwner.JOB:
            if task and len(names) > 1:
                raise InvalidRequest(f"--{option.name} is of the whole job", remedy="give it without a task")
            of_job[option.name] = value
        elif not task and len(names) > 1 and option.owner is OptionOwner.TASK:
            raise InvalidRequest(
                f"--{option.name} is of one task, and the job has several",
                remedy=f"name one with --task; {_name_tasks(names)}",
            )
        else:
            for each in [task] if task else names:
                of_tasks[each][option.name] = value
    return SpecChanges(of_job, of_tasks)


def _find_option(name: str) -> ResubmitOption:
    option = find_resubmit_option(name)
    if option is None:
        near = nearest(name, list_option_names())
        raise InvalidRequest(
            f"--{name} cannot be changed by a resubmission{near}",
            remedy="`span resubmit --help` lists what can; submit the file again for the rest",
        )
    return option


def _name_tasks(names: list[str]) -> str:
    return f"its tasks: {', '.join(names)}"


def change_spec(spec: JobSpec, changes: SpecChanges, now: float) -> JobSpec:
    """The spec with the changes; begin times are read at `now`, epoch seconds.

    Raises InvalidRequest for a value that sbatch would refuse, and for what cannot be changed in such a job.
    """
    try:
        changed = _change_tasks(spec, changes)
        for name, value in changes.of_job.items():
            _check(name, value)
            changed = _JOB_CHANGES[name](changed, value, now)
            changed = _drop_native(changed, name)
    except InvalidRequest as error:
        raise InvalidRequest(_plain(error.message), remedy=error.remedy) from None
    return changed


def _plain(message: str) -> str:
    """A refusal without sbatch's name in front of each line: another command was typed."""
    return "\n".join(line.removeprefix(PREFIX).removeprefix(FATAL) for line in message.splitlines())


def _check(name: str, value: str) -> dict[str, Given]:
    option = BY_NAME[name]
    given = {name: Given(option, value or None)}
    if not value and name != "hold":
        raise InvalidRequest(f"--{name} needs a value")
    check_values(given)
    return given


# --- tasks ------------------------------------------------------------------------------------------------------------


def _change_tasks(spec: JobSpec, changes: SpecChanges) -> JobSpec:
    if not any(changes.of_tasks.values()):
        return _note_script(spec, changes.of_job)
    if len(spec.tasks) > 1 and all(task.form is Form.BATCH for task in spec.tasks):
        raise InvalidRequest(
            "the components of a heterogeneous batch script have their sizes in its #SBATCH lines",
            remedy="change them there, and submit the script again",
        )
    header = spec.native.get("slurm", {})
    candidates = tuple(_record(_lay(spec.take(each), changes, header), each) for each in spec.candidates)
    spec = replace(_lay(spec, changes, header), candidates=candidates)
    return _note_script(spec, {**changes.of_tasks[spec.tasks[0].name], **changes.of_job})


def _lay(spec: JobSpec, changes: SpecChanges, header: Mapping[str, Any]) -> JobSpec:
    notes: list[str] = list(spec.notes)
    tasks = []
    for task in spec.tasks:
        options = changes.of_tasks.get(task.name, {})
        changed, more = change_task(task, options) if options else (task, ())
        tasks.append(_lay_native(changed, options, header))
        notes += more
    return replace(spec, tasks=tuple(tasks), notes=tuple(dict.fromkeys(notes)))


def _record(spec: JobSpec, candidate: Candidate) -> Candidate:
    return replace(candidate, demands=tuple(map(demand_of, spec.tasks)), partition=spec.partition)


def change_task(task: TaskSpec, options: Mapping[str, str]) -> tuple[TaskSpec, tuple[str, ...]]:
    """The task with other options, and notes about them. Raises InvalidRequest."""
    task, rest = _change_time(task, options)
    rest, cpus = _take_fraction(task, rest)
    for name, value in rest.items():
        _check(name, value)
    given = _make_given(rest)
    present = _list_present(task, rest)
    check_together({**present, **given})
    before, geometry = read_geometry(_list_present(task, {})), read_geometry({**present, **given})
    needs = read_needs_of_node({name: each for name, each in given.items() if name not in _CPUS}, geometry)
    resources = _change_resources(task.resources, needs, rest)
    if cpus is not None:
        resources = replace(resources, cpus=cpus, cpus_at_least=False)
    elif _CPUS & rest.keys() and geometry.cpus is not None:
        resources = replace(resources, cpus=_count_cpus(resources, before, geometry), cpus_at_least=False)
    changed = replace(
        task,
        resources=resources,
        num_nodes=geometry.nodes,
        ntasks=geometry.ntasks,
        ntasks_per_node=geometry.ntasks_per_node,
        cpus_per_task=geometry.cpus_per_task,
    )
    return changed, geometry.notes


def _make_given(options: Mapping[str, str]) -> dict[str, Given]:
    return {name: Given(BY_NAME[name], value) for name, value in options.items()}


def _change_time(task: TaskSpec, options: Mapping[str, str]) -> tuple[TaskSpec, dict[str, str]]:
    """The task with its wall time, and the other options."""
    rest = dict(options)
    written = rest.pop("time", None)
    if written is None:
        return task, rest
    try:
        seconds = parse_wall_time(written)
    except ValueError as error:
        raise InvalidRequest(f"--time: {error}") from None
    if seconds is not None and task.form is Form.BATCH:
        # As Slurm counts.
        seconds = -(-seconds // 60) * 60
    return replace(task, time=seconds), rest


def _take_fraction(task: TaskSpec, options: Mapping[str, str]) -> tuple[dict[str, str], float | None]:
    """A job file's task may have a fraction of a CPU, which is no count of sbatch's."""
    rest = dict(options)
    written = rest.get("cpus-per-task", "")
    if task.form is not Form.RUN or "." not in written:
        return rest, None
    try:
        amount = parse_cpus(written).amount
    except ValueError as error:
        raise InvalidRequest(f"--cpus-per-task: {error}") from None
    del rest["cpus-per-task"]
    return rest, amount


def _list_present(task: TaskSpec, changes: Mapping[str, str]) -> dict[str, Given]:
    """The task's nodes and processes as options; nodes that follow from the processes are counted again."""
    present = {
        "nodes": task.num_nodes,
        "ntasks": task.ntasks,
        "ntasks-per-node": task.ntasks_per_node,
        "cpus-per-task": task.cpus_per_task,
    }
    if task.ntasks and task.ntasks_per_node and changes.keys() & {"ntasks", "ntasks-per-node"}:
        del present["nodes"]
    return _make_given({name: str(count) for name, count in present.items() if count is not None})


def _count_cpus(resources: Resources, before: Geometry, geometry: Geometry) -> float:
    """CPUs of a node: as many as its processes need, or as it had where those are more (`--mincpus`)."""
    wanted = float(geometry.cpus or 0)
    more = resources.cpus is not None and before.cpus is not None and resources.cpus > before.cpus
    return max(wanted, resources.cpus or 0.0) if more else wanted


def _change_resources(present: Resources, needs: Resources, options: Mapping[str, str]) -> Resources:
    """The present resources with those that the options name."""
    changes: dict[str, Any] = {}
    if MEMORY & options.keys():
        per_cpu = needs.memory_mib_per_cpu
        changes = {"memory_mib": needs.memory_mib, "memory_mib_per_cpu": per_cpu, "memory_at_least": False}
    if GPUS & options.keys() or needs.gpus:
        changes["gpus"] = needs.gpus
    if "gres" in options:
        changes["gres"] = needs.gres
    return replace(present, **changes)


# --- native options and scripts ---------------------------------------------------------------------------------------


def _lay_native(task: TaskSpec, options: Mapping[str, str], header: Mapping[str, Any]) -> TaskSpec:
    """The task without native options that say something else; what the header's would say is overruled."""
    own = dict(task.native.get("slurm", {}))
    for name, value in options.items():
        rivals = _find_rivals(name)
        overruled = name in NATIVE or bool(rivals & (own.keys() | header.keys()))
        own = {known: text for known, text in own.items() if known not in rivals}
        if overruled:
            own[name] = write_script_option(name, value)
    native = {kind: text for kind, text in task.native.items() if kind != "slurm"}
    return replace(task, native={**native, "slurm": own} if own else native)


def _find_rivals(name: str) -> frozenset[str]:
    """The options that say the same as this one, with itself."""
    return next((group for group in (MEMORY, GPUS | {"gpus-per-socket"}) if name in group), frozenset()) | {name}


def _drop_native(spec: JobSpec, name: str) -> JobSpec:
    """The spec without this option among the native ones, of the job and of its tasks."""

    def without(native: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
        if name not in native.get("slurm", {}):
            return native
        return {**native, "slurm": {known: text for known, text in native["slurm"].items() if known != name}}

    tasks = tuple(replace(task, native=without(task.native)) for task in spec.tasks)
    candidates = tuple(
        replace(each, demands=tuple(replace(demand, native=without(demand.native)) for demand in each.demands))
        for each in spec.candidates
    )
    return replace(spec, native=without(spec.native), tasks=tasks, candidates=candidates)


def _note_script(spec: JobSpec, options: Mapping[str, str]) -> JobSpec:
    """The spec of a batch script with the options that replace its own where Slurm reads it again."""
    if spec.tasks[0].form is not Form.BATCH:
        return spec
    check_gpu_options(spec, options)
    written = {name: write_script_option(name, value) for name, value in options.items() if name != "clusters"}
    dropped = {rival for name in written for rival in _find_rivals(name)}
    kept = {name: value for name, value in spec.script_options.items() if name not in dropped}
    return replace(spec, script_options={**kept, **written})


# --- the job ----------------------------------------------------------------------------------------------------------


def _set_partition(spec: JobSpec, value: str, now: float) -> JobSpec:
    """As a header's: it counts before those of the alternatives."""
    candidates: list[Candidate] = []
    for each in spec.candidates:
        placed = replace(each, partition=value)
        candidates += [placed] if placed not in candidates else []
    return replace(spec, partition=value, candidates=tuple(candidates))


def _set_clusters(spec: JobSpec, value: str, now: float) -> JobSpec:
    """Other clusters to try; alternatives of those clusters stay, else the present demands go there."""
    names = tuple(dict.fromkeys(name for name in value.split(",") if name))
    if not names:
        raise InvalidRequest("--clusters names no cluster")
    kept = tuple(each for name in names for each in spec.candidates if each.cluster == name)
    tasks = tuple(replace(task, cluster="") for task in spec.tasks)
    tasks = tuple(replace(task, resources=replace(task.resources, gpu_defaults=None)) for task in tasks)
    every = {each.cluster for each in kept} == set(names)
    return replace(
        spec, clusters=names, candidates=kept if every else (), tasks=tasks, race=spec.race and len(names) > 1
    )


def _set_name(spec: JobSpec, value: str, now: float) -> JobSpec:
    """A script's name may be any text; a job file's is made of names of hosts and variables."""
    try:
        filled = fill_name(value, 1)
        if spec.group or spec.tasks[0].form is Form.RUN:
            check_task_name(filled)
        if spec.group:
            dns_label(filled)
    except ValueError as error:
        raise InvalidRequest(f"--job-name: {error}") from None
    return replace(spec, name=value)


def _set_begin(spec: JobSpec, value: str, now: float) -> JobSpec:
    at = parse_when(value, now)
    return replace(spec, begin=at if at > now else None)


def _set_dependency(spec: JobSpec, value: str, now: float) -> JobSpec:
    try:
        return replace(spec, dependency=parse_dependency(value))
    except ValueError as error:
        raise InvalidRequest("Job dependency problem", remedy=str(error)) from None


def _set_priority(spec: JobSpec, value: str, now: float) -> JobSpec:
    number = _HIGHEST_PRIORITY if value.upper() == "TOP" else min(int(value), _HIGHEST_PRIORITY)
    # A priority of 0 is a hold (sbatch(1)).
    return replace(spec, priority=number or None, hold=spec.hold or number == 0)


def _set_nice(spec: JobSpec, value: str, now: float) -> JobSpec:
    if int(value) < 0:
        raise InvalidRequest("Invalid --nice value", remedy="--priority raises a job")
    return replace(spec, nice=int(value))


def _set_field(name: str) -> Callable[[JobSpec, str, float], JobSpec]:
    def change(spec: JobSpec, value: str, now: float) -> JobSpec:
        fields: dict[str, Any] = {name: value}
        return replace(spec, **fields)

    return change


_JOB_CHANGES: Mapping[str, Callable[[JobSpec, str, float], JobSpec]] = {
    "partition": _set_partition,
    "account": _set_field("account"),
    "qos": _set_field("qos"),
    "clusters": _set_clusters,
    "job-name": _set_name,
    "comment": _set_field("comment"),
    "begin": _set_begin,
    "dependency": _set_dependency,
    "hold": lambda spec, value, now: replace(spec, hold=True),
    "priority": _set_priority,
    "nice": _set_nice,
}
