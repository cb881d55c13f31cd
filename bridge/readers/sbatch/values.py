"""Maps values of sbatch options to fields of a task; errors have sbatch's words."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from overspan.bridge.model.durations import MINUTE, parse_time_limit, slurm_minutes
from overspan.bridge.model.errors import Place
from overspan.bridge.model.patterns import ARRAY_DEFAULT, BATCH_DEFAULT
from overspan.bridge.model.resources import Gpus, Gres, Resources, gres_gpus, parse_gpu_counts, parse_gres
from overspan.bridge.model.sizes import parse_memory
from overspan.bridge.model.slurm.words import BAD_GRES, TOO_MUCH_MEMORY
from overspan.bridge.model.spec import Streams
from overspan.bridge.readers.sbatch.arguments import Given, GivenOptions
from overspan.bridge.readers.sbatch.errors import (
    PREFIX,
    SbatchRefused,
    SbatchUsage,
    invalid_number,
    invalid_value,
    refused_script,
    refused_submission,
)
from overspan.bridge.readers.task_fields import MAX_NODES

Value = TypeVar("Value")
MAX_COUNT = 10**7
"""Highest number of tasks or CPUs that an option takes."""
DEFAULT_NICE = 100
NULL_DEVICE = "/dev/null"


def read_option(options: GivenOptions, name: str, parse: Callable[[str], Value]) -> Value | None:
    """Read an option's value; None where it is not given. SbatchUsage where it cannot be read."""
    given = options.get(name)
    if given is None:
        return None
    try:
        return parse(given.value or "")
    except ValueError as error:
        raise invalid_value(name, given.place, str(error)) from None


def read_text(options: GivenOptions, name: str) -> str:
    """An option's text; empty where it is not given."""
    given = options.get(name)
    return (given.value or "") if given else ""


def read_count(options: GivenOptions, name: str) -> int | None:
    """A positive whole number."""
    given = options.get(name)
    if given is None:
        return None
    written = given.value or ""
    if not re.fullmatch("[0-9]{1,8}", written) or not 1 <= int(written) <= MAX_COUNT:
        raise invalid_number(f"--{name}", written, given.place)
    return int(written)


def read_nodes(options: GivenOptions) -> int | None:
    """--nodes=MIN[-MAX]: the lowest number of nodes, which is what the job gets."""
    given = options.get("nodes")
    if given is None:
        return None
    written = given.value or ""
    low_text, dash, high_text = (written, "", "") if written.startswith("-") else written.partition("-")
    low = _read_node_count(low_text, given)
    # `1-` has -1 after the dash to sbatch, and `1-0` no highest number.
    high = _read_node_count(high_text or "-1", given) if dash else low
    if high < low and high != 0:
        line = f"{PREFIX}Maximum node count {high} is less than minimum node count {low}"
        raise SbatchUsage(line, place=given.place)
    if low < 1:
        # sbatch takes them for no request.
        return None
    if low > MAX_NODES:
        remedy = f"write MIN or MIN-MAX, at most {MAX_NODES}"
        raise refused_submission("Node count specification invalid", given.place, remedy)
    return low


def _read_node_count(text: str, given: Given) -> int:
    match = re.fullmatch("(-?[0-9]{1,9})([km]?)", text, re.IGNORECASE)
    if not match:
        remedy = "write MIN or MIN-MAX"
        raise SbatchUsage(f'{PREFIX}"{text}" is not a valid node count', place=given.place, remedy=remedy)
    return int(match[1]) * {"": 1, "k": 1024, "m": 1024 * 1024}[match[2].lower()]


class Geometry(NamedTuple):
    """Nodes, tasks in all, tasks on one node, and CPUs of one node; None where nothing says so."""

    nodes: int
    ntasks: int | None
    per_node: int
    ntasks_per_node: int | None
    cpus_per_task: int | None
    cpus: int | None
    notes: tuple[str, ...]


def read_geometry(options: GivenOptions) -> Geometry:
    """Bring nodes, tasks and CPUs together as sbatch does."""
    nodes = read_nodes(options)
    ntasks = read_count(options, "ntasks")
    per_node = read_count(options, "ntasks-per-node")
    cpus_per_task = read_count(options, "cpus-per-task")
    notes: list[str] = []
    if nodes is None:
        nodes = -(-ntasks // per_node) if ntasks and per_node else 1
        if nodes > MAX_NODES:
            raise refused_submission("Node count specification invalid", options["ntasks"].place)
    elif ntasks is not None and ntasks < nodes:
        notes.append(f"Warning: can't run {ntasks} processes on {nodes} nodes, setting nnodes to {ntasks}")
        nodes = ntasks
    on_node = per_node or -(-(ntasks or nodes) // nodes)
    asked = ntasks is not None or per_node is not None or cpus_per_task is not None
    cpus = on_node * (cpus_per_task or 1) if asked else None
    return Geometry(nodes, ntasks, on_node, per_node, cpus_per_task, cpus, tuple(notes))


def read_needs_of_node(options: GivenOptions, geometry: Geometry) -> Resources:
    """CPUs, memory, GPUs and other generic resources of one node."""
    try:
        gpus, gres = _read_gpus(options, geometry)
    except ValueError as error:
        # Each number was right; together they are more than there can be.
        raise refused_script(BAD_GRES, remedy=str(error)) from None
    count = sum(choice.count for choice in gpus)
    cpus = geometry.cpus
    least = read_count(options, "mincpus")
    if least:
        cpus = max(cpus or 0, least)
    per_gpu = read_count(options, "cpus-per-gpu")
    if per_gpu and gpus:
        cpus = max(cpus or 0, int(per_gpu * count))
    memory = read_option(options, "mem", parse_memory)
    per_cpu = read_option(options, "mem-per-cpu", parse_memory)
    memory_per_gpu = read_option(options, "mem-per-gpu", parse_memory)
    if memory_per_gpu and gpus:
        memory = int(memory_per_gpu * count)
    try:
        return Resources(cpus=cpus, memory_mib=memory, memory_mib_per_cpu=per_cpu, gpus=gpus, gres=gres)
    except ValueError as error:
        raise refused_script(TOO_MUCH_MEMORY, remedy=str(error)) from None


def _read_gpus(options: GivenOptions, geometry: Geometry) -> tuple[tuple[Gpus, ...], tuple[Gres, ...]]:
    """GPUs of one node, from the most specific option, and the other resources of --gres."""
    by_gres, others = gres_gpus(read_option(options, "gres", parse_gres) or ())
    per_node = read_option(options, "gpus-per-node", parse_gpu_counts)
    per_task = read_option(options, "gpus-per-task", parse_gpu_counts)
    in_all = read_option(options, "gpus", parse_gpu_counts)
    if by_gres or per_node:
        gpus = per_node or by_gres
    elif per_task:
        gpus = tuple(Gpus(choice.count * geometry.per_node, choice.kind) for choice in per_task)
    else:
        gpus = tuple(Gpus(-(-int(choice.count) // geometry.nodes), choice.kind) for choice in in_all or ())
    if len({choice.kind for choice in gpus}) > 1:
        listed = ", ".join(choice.kind for choice in gpus)
        remedy = f"ask for one type of GPU; several were given: {listed}"
        raise refused_script(BAD_GRES, remedy=remedy)
    if len(gpus) > 1:
        gpus = (Gpus(sum(choice.count for choice in gpus), gpus[0].kind),)
    return gpus, others


def read_time(options: GivenOptions) -> int | None:
    """--time in seconds, rounded up to a minute as Slurm does; None for no limit."""
    seconds = read_option(options, "time", lambda text: parse_time_limit(text) or 0)
    return slurm_minutes(seconds) * MINUTE if seconds else None


def read_nice(options: GivenOptions) -> int:
    """--nice[=N]; the value has been checked."""
    given = options.get("nice")
    if given is None:
        return 0
    return DEFAULT_NICE if given.value is None else int(given.value)


def read_streams(options: GivenOptions, workdir: str) -> Streams:
    """Output, error and input as absolute patterns; `none` is the null device."""
    default = ARRAY_DEFAULT if "array" in options else BATCH_DEFAULT
    return Streams(
        output=resolve_pattern(read_text(options, "output") or default, workdir),
        error=resolve_pattern(read_text(options, "error"), workdir),
        input=resolve_pattern(read_text(options, "input"), workdir),
        # Slurm looks at the first letter.
        append=read_text(options, "open-mode")[:1].lower() == "a",
    )


def resolve_pattern(pattern: str, workdir: str) -> str:
    """A file name pattern against the working directory, whose own % signs stay literal."""
    if not pattern:
        return ""
    if pattern.lower() == "none":
        return NULL_DEVICE
    # A backslash switches expansion off, so nothing needs protection then.
    folder = workdir if "\\" in pattern else workdir.replace("%", "%%")
    return os.path.join(folder, pattern)


def refuse_option(given: Given) -> SbatchRefused | SbatchUsage:
    """The error for an option that cannot be ignored."""
    name, remedy = given.option.name, REMEDIES.get(given.option.name, "")
    if name in ("uid", "gid"):
        return SbatchUsage(f"{PREFIX}--{name} only permitted by root user", place=given.place, remedy=remedy)
    if name == "reboot":
        lines = (
            "rebooting of nodes is only allowed for admins",
            "Batch job submission failed: Access/permission denied",
        )
        return refused_script(*lines, place=given.place)
    return refused_script(f"--{name} is not supported", place=given.place, remedy=remedy)


REMEDIES = {
    "container": "submit a job file with `image_id: docker:IMAGE`",
    "container-id": "submit a job file with `image_id: docker:IMAGE`",
    "export-file": "name the variables with --export",
    "uid": "not even for root here: submit as that user",
    "gid": "not even for root here: submit with that group, for example by newgrp",
}


def place_of(options: GivenOptions, name: str) -> Place | None:
    """Where an option was given."""
    given: Any = options.get(name)
    return given.place if given else None
