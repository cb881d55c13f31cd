"""Reads a batch script with #SBATCH lines into a JobSpec: one batch task, or several components of a hetjob."""

from __future__ import annotations

import os.path
import re
from collections.abc import Sequence
from dataclasses import replace

from overspan.bridge.model.durations import parse_delay, parse_time_limit, parse_when
from overspan.bridge.model.errors import Place
from overspan.bridge.model.file_paths import join_path
from overspan.bridge.model.ids import ArraySpec, parse_array
from overspan.bridge.model.names import check_task_name, find_collisions, member_name
from overspan.bridge.model.options.sbatch import Treatment
from overspan.bridge.model.patterns import has_field
from overspan.bridge.model.slurm.words import BAD_PARTITION, NOT_SUPPORTED, TOO_LONG
from overspan.bridge.model.spec import Dependency, Form, JobSpec, RetryPolicy, TaskSpec
from overspan.bridge.readers.dependencies import parse_dependency
from overspan.bridge.readers.evaluations import SEPARATE_FOLDERS, word_shared_folder
from overspan.bridge.readers.group_checks import MAX_TASKS
from overspan.bridge.readers.parent_group import NO_GROUP, read_parent
from overspan.bridge.readers.placement import POOL_REMEDY, check_pool
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.readers.sbatch.arguments import Given, GivenOptions, SbatchCall
from overspan.bridge.readers.sbatch.checks import check_together, check_values
from overspan.bridge.readers.sbatch.directives import Directives, check_script, scan_directives
from overspan.bridge.readers.sbatch.errors import SbatchRefused, refused_script, refused_submission
from overspan.bridge.readers.sbatch.export import select_environment
from overspan.bridge.readers.sbatch.span_lines import read_span_lines
from overspan.bridge.readers.sbatch.values import (
    place_of,
    read_geometry,
    read_needs_of_node,
    read_nice,
    read_option,
    read_streams,
    read_text,
    read_time,
    refuse_option,
)
from overspan.bridge.readers.signals import parse_signal_before

_NATIVE = ("container", "container-id", "reboot")
"""Refused elsewhere, but a Slurm cluster can carry them out."""
_HOSTS = ("nodelist", "exclude", "nodefile")
"""The local cluster checks them against its own name."""
STDIN = ("", "-", "/dev/stdin")
MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
# Where a later source gives one of them, it replaces all that an earlier one gave.
_RIVALS = (MEMORY, ("requeue", "no-requeue"), ("job-group", "no-job-group"))
_WRAPPED = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{}\n"
_TOP_PRIORITY = 2**31 - 1


def read_batch_script(text: str, file: str, *, call: SbatchCall, context: ReadContext) -> JobSpec:
    """Read a script as sbatch reads it. `file` is its name for messages; empty for standard input.

    Precedence: command line, then SBATCH_* variables, then #SBATCH lines (sbatch(1)). Raises SbatchUsage (exit code
    255) for options, SbatchRefused (1) for what sbatch or its controller refuses.
    """
    if call.wrap is not None:
        if call.script is not None:
            raise refused_script("Script arguments not permitted with --wrap option")
        text, directives = _WRAPPED.format(call.wrap), Directives([{}], [])
    else:
        check_script(text, file)
        directives = scan_directives(text, file or "stdin")
    components = merge_components(directives.components, call)
    _check_components(components, context)
    first = components[0]
    tasks, notes = [], list(directives.notes)
    names = _name_tasks(components)
    for index, options in enumerate(components):
        task, more = _make_task(options, index, text if index == 0 else "", context)
        tasks.append(replace(task, name=names[index], primary=index == 0, args=call.arguments if index == 0 else ()))
        notes += more
    job = _make_job(first, call, file, context)
    notes += _note_options(components, job.clusters, context)
    evaluations = read_span_lines(text, file, names, context) if call.wrap is None else ()
    for each in evaluations:
        if job.array is not None and not has_field(each.path, "a"):
            where = f"#SPAN on_checkpoint: {each.name}: "
            raise refused_script(
                where + word_shared_folder(each.path), place=Place(file or "stdin", 1), remedy=SEPARATE_FOLDERS
            )
    return replace(
        job,
        tasks=tuple(tasks),
        on_checkpoint=evaluations,
        notes=tuple(dict.fromkeys(notes)),
        origin=replace(context.origin, file=context.origin.file or file, text=text),
    )


def merge_components(directives: Sequence[GivenOptions], call: SbatchCall) -> list[GivenOptions]:
    """Lay the sources of each component over each other; a later component inherits some options of the one before."""
    merged: list[GivenOptions] = []
    count = max(len(directives), len(call.components))
    if count > MAX_TASKS:
        raise refused_script(f"Invalid number of hetjob components: {count}; the limit is {MAX_TASKS}")
    for source in (call.environment, *directives, *call.components):
        check_values(source)
    for index in range(count):
        options: GivenOptions = {}
        if merged:
            options = {name: given for name, given in merged[-1].items() if given.option.heir}
        options = _lay(options, directives[index] if index < len(directives) else {})
        options = _lay(options, call.environment)
        merged.append(_lay(options, call.components[index] if index < len(call.components) else {}))
    return merged


def _lay(below: GivenOptions, above: GivenOptions) -> dict[str, Given]:
    dropped = {name for rivals in _RIVALS if any(rival in above for rival in rivals) for name in rivals}
    return {**{name: given for name, given in below.items() if name not in dropped}, **above}


def _check_components(components: Sequence[GivenOptions], context: ReadContext) -> None:
    for options in components:
        clusters = _read_clusters(options, context)
        native = bool(clusters) and all(context.kind_of(cluster) == "slurm" for cluster in clusters)
        for name, given in options.items():
            if given.option.treatment is Treatment.REFUSED and not (native and name in _NATIVE):
                if name == "uid" and given.value in (str(context.origin.uid), context.origin.user):
                    continue
                raise refuse_option(given)
        check_together(options)
        if read_nice(options) < 0 and not native:
            remedy = "here too a job can only be made to wait longer; --priority raises it"
            raise refused_submission("Invalid --nice value", place_of(options, "nice"), remedy)
        if "partition" in options and not options["partition"].value:
            line = "Batch job submission failed: Invalid partition name specified"
            raise refused_script(f"{BAD_PARTITION}: (null)", line, place=place_of(options, "partition"))
        _check_times(options, context)
    if len(components) > 1 and any("array" in options for options in components):
        raise refused_submission("Invalid job array specification", None, "a hetjob cannot be an array")


def _check_times(options: GivenOptions, context: ReadContext) -> None:
    """Check limits as slurmctld does: the deadline is in the future, and --time-min is not above --time."""
    deadline = read_option(options, "deadline", lambda text: parse_when(text, context.now))
    shortest = read_option(options, "time-min", parse_time_limit)
    longest = read_option(options, "time", parse_time_limit)
    begin = read_option(options, "begin", lambda text: parse_when(text, context.now))
    line = TOO_LONG
    if deadline is not None and deadline < context.now:
        raise refused_submission(line, place_of(options, "deadline"), "the deadline is over")
    if shortest and longest and shortest > longest:
        line = "Invalid time-min specification (exceeds job's time or other limits)"
        raise refused_submission(line, place_of(options, "time-min"), "--time-min is longer than --time")
    if begin is not None and deadline is not None and begin > deadline:
        line = "Incompatible begin and deadline time specification"
        raise refused_script(line, place=place_of(options, "deadline"))


def _name_tasks(components: Sequence[GivenOptions]) -> list[str]:
    """The components by their --job-name, where each has one of its own; else het-0, het-1..."""
    if len(components) == 1:
        return ["batch"]
    names = [read_text(options, "job-name") for options in components]
    try:
        for name in names:
            check_task_name(name)
            member_name(name, 0)
    except ValueError:
        names = []
    if len(set(names)) == len(components) and not find_collisions(names):
        return names
    return [f"het-{index}" for index in range(len(components))]


def _make_task(options: GivenOptions, index: int, text: str, context: ReadContext) -> tuple[TaskSpec, list[str]]:
    geometry = read_geometry(options)
    workdir = join_path(context.directory, read_text(options, "chdir"))
    requeue = _read_requeue(options)
    native = {
        name: given.value or ""
        for name, given in options.items()
        if given.option.treatment is Treatment.NOTED or name in _NATIVE
    }
    if index and read_text(options, "partition"):
        native["partition"] = read_text(options, "partition")
    task = TaskSpec(
        name="batch",
        form=Form.BATCH,
        run=text,
        num_nodes=geometry.nodes,
        resources=read_needs_of_node(options, geometry),
        ntasks=geometry.ntasks,
        ntasks_per_node=geometry.ntasks_per_node,
        cpus_per_task=geometry.cpus_per_task,
        workdir=workdir,
        chdir=bool(read_text(options, "chdir")),
        env=_read_environment(options, context),
        time=read_time(options),
        signal=read_option(options, "signal", parse_signal_before),
        retry=RetryPolicy(max_recoveries=0) if requeue is False else RetryPolicy(),
        streams=read_streams(options, workdir),
        native={"slurm": native} if native else {},
    )
    return task, list(geometry.notes)


def _read_environment(options: GivenOptions, context: ReadContext) -> dict[str, str]:
    given = options.get("export")
    return {**select_environment(given.value if given else None, context.environment), **context.env}


def _make_job(options: GivenOptions, call: SbatchCall, file: str, context: ReadContext) -> JobSpec:
    priority = read_option(options, "priority", _parse_priority)
    return JobSpec(
        name=context.name or read_text(options, "job-name") or _default_name(call, file),
        tasks=(),
        clusters=_read_clusters(options, context),
        priority=priority or None,
        nice=read_nice(options),
        # A priority of 0 is a hold (sbatch(1)).
        hold="hold" in options or context.hold or priority == 0,
        hold_on_failure=read_option(options, "hold-on-failure", parse_delay) or 0,
        begin=_read_begin(options, context),
        deadline=read_option(options, "deadline", lambda text: parse_when(text, context.now)),
        requeue=_read_requeue(options),
        partition=read_text(options, "partition"),
        account=read_text(options, "account"),
        qos=read_text(options, "qos"),
        comment=read_text(options, "comment"),
        array=_read_array(options),
        dependency=_read_dependency(options),
        kill_on_invalid_dep=read_option(options, "kill-on-invalid-dep", _parse_yes_no),
        parent=read_parent(_read_group(options), context.environment),
    )


def _read_begin(options: GivenOptions, context: ReadContext) -> float | None:
    """--begin; None where that time has come already."""
    begin = read_option(options, "begin", lambda text: parse_when(text, context.now))
    return begin if begin is not None and begin > context.now else None


def _default_name(call: SbatchCall, file: str) -> str:
    """The script's base name, `wrap` or `sbatch` (measured on Slurm 22.05)."""
    if call.wrap is not None:
        return "wrap"
    script = call.script or file
    if script == "/dev/stdin":
        return "stdin"
    return "sbatch" if script in STDIN else os.path.basename(script) or "sbatch"


def _parse_priority(text: str) -> int:
    return _TOP_PRIORITY if text.upper() == "TOP" else min(int(text), _TOP_PRIORITY)


def _read_requeue(options: GivenOptions) -> bool | None:
    """The last of --requeue and --no-requeue; None where neither is given."""
    last = [name for name in options if name in ("requeue", "no-requeue")]
    return last[-1] == "requeue" if last else None


def _read_clusters(options: GivenOptions, context: ReadContext) -> tuple[str, ...]:
    if context.cluster:
        return context.chosen
    pool = read_text(options, "pool")
    if pool:
        try:
            return (check_pool(pool, context),)
        except ValueError as error:
            raise refused_script(str(error), place=place_of(options, "pool"), remedy=POOL_REMEDY) from None
    names = [name for name in read_text(options, "clusters").split(",") if name]
    if names == ["all"] and context.clusters is not None:
        names = [name for name, kind in context.clusters.items() if kind == "slurm"]
    for name in names:
        if context.clusters is not None and name not in context.clusters:
            raise refused_script(
                f"No cluster '{name}' known by database.",
                f"'{name}' can't be reached now, or it is an invalid entry for --cluster.  "
                "Use 'sacctmgr list clusters' to see available clusters.",
                place=place_of(options, "clusters"),
                remedy=f"the clusters are {', '.join(context.clusters)}",
            )
    return tuple(dict.fromkeys(names))


def _read_array(options: GivenOptions) -> ArraySpec | None:
    if not read_text(options, "array"):
        return None
    try:
        return parse_array(read_text(options, "array"))
    except ValueError as error:
        raise _refused(options, "array", "Invalid job array specification", error) from None


def _read_dependency(options: GivenOptions) -> Dependency:
    text = read_text(options, "dependency")
    if re.fullmatch("expand:[0-9]+", text, re.IGNORECASE):
        remedy = "a job cannot take over another's nodes"
        raise refused_submission(NOT_SUPPORTED, place_of(options, "dependency"), remedy)
    try:
        return parse_dependency(text)
    except ValueError as error:
        raise _refused(options, "dependency", "Job dependency problem", error) from None


def _read_group(options: GivenOptions) -> str | None:
    """The group named by --job-group or --no-job-group; the last one given wins."""
    last = [name for name in options if name in ("job-group", "no-job-group")]
    if not last:
        return None
    return read_text(options, "job-group") if last[-1] == "job-group" else NO_GROUP


def _parse_yes_no(text: str) -> bool:
    if text.lower() not in ("yes", "no"):
        raise ValueError("write yes or no")
    return text.lower() == "yes"


def _refused(options: GivenOptions, name: str, message: str, error: ValueError) -> SbatchRefused:
    return refused_submission(message, place_of(options, name), str(error))


def _note_options(components: Sequence[GivenOptions], clusters: Sequence[str], context: ReadContext) -> list[str]:
    """One note about the options that only a Slurm cluster can carry out."""
    if clusters and all(context.kind_of(cluster) == "slurm" for cluster in clusters):
        return []
    kinds = [context.kind_of(cluster) for cluster in clusters] or list((context.clusters or {}).values())
    obeyed = () if "kubernetes" in kinds else _HOSTS
    names = {
        name
        for options in components
        for name, given in options.items()
        if given.option.treatment is Treatment.NOTED and given.value not in ("NONE", "none") and name not in obeyed
    }
    return (
        [f"accepted without effect outside Slurm: {' '.join(f'--{name}' for name in sorted(names))}"] if names else []
    )
