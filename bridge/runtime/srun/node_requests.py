"""The request to each node of a step: its ranks, their environments, and the targets of their streams."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from overspan.bridge.model.patterns import FilenameFields, expand_filename
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core.allocation import Allocation
from overspan.bridge.runtime.srun.output import Sink, Sinks, StreamTarget, choose_target
from overspan.bridge.runtime.srun.step_options import StepOptions, StreamOptions
from overspan.bridge.runtime.srun.step_plan import (
    Facts,
    PlacedRank,
    StepComponent,
    StepPlan,
    export_environment,
    rank_environment,
    step_environment,
)
from overspan.bridge.runtime.srun.terminal import read_window

_OWN_IN_PODS = ("OVERSPAN_ADDR", "NVIDIA_VISIBLE_DEVICES")
"""Variables that a pod has from its cluster, each its own: the ranks there find them as the pod has them."""


class Prepared(NamedTuple):
    """A planned step: its allocation, options and layout, and the command of each rank."""

    allocation: Allocation
    step_options: StepOptions
    plan: StepPlan
    programs: Sequence[tuple[str, ...]]


class StreamTargets(NamedTuple):
    """Where the three streams of the ranks come from and go to."""

    stdin: StreamTarget
    stdout: StreamTarget
    stderr: StreamTarget
    same: bool


def choose_streams(options: StreamOptions) -> StreamTargets:
    """The target of each stream by one component's options."""
    error = options.error or options.output
    return StreamTargets(
        stdin=StreamTarget(each=options.input)
        if options.input and not options.input.isdigit() and options.input not in ("all", "none")
        else choose_target(options.input, False),
        stdout=choose_target(options.output, options.label),
        stderr=choose_target(error, options.label),
        same=bool(error) and error == options.output,
    )


def choose_readers(step_options: StepOptions, plan: StepPlan, streams: Sequence[StreamTargets]) -> frozenset[int]:
    """The ranks that get srun's input; `streams` are those of the components."""
    if step_options.pty:
        return frozenset({0})
    return frozenset(
        place.rank
        for place in plan.places
        for source in (streams[place.component].stdin,)
        if not source.each and not source.nothing and source.only in (-1, place.rank)
    )


def open_sinks(
    step_options: StepOptions, plan: StepPlan, streams: Sequence[StreamTargets], fields: FilenameFields
) -> Sinks:
    """Where srun writes what ranks send it. Raises OSError."""
    width = len(str(max(0, len(plan.places) - 1)))
    pairs: list[tuple[Sink, Sink]] = []
    for step_component, chosen in zip(plan.components, streams):
        stream_options = step_component.options.streams
        whole = not (stream_options.unbuffered or step_options.pty)
        opened: list[Sink] = []
        for target, own in ((chosen.stdout, 1), (chosen.stderr, 2)):
            if opened and chosen.same and target.path:
                opened.append(opened[0])
                continue
            fd = _open_file(target.path, step_component, fields) if target.path else own
            opened.append(Sink(fd, whole_lines=whole, label_width=width if stream_options.label else 0))
        pairs.append((opened[0], opened[1]))
    return Sinks(pairs, {place.rank: place.component for place in plan.places})


def _open_file(pattern: str, step_component: StepComponent, fields: FilenameFields) -> int:
    path = os.path.join(_directory(step_component), expand_filename(pattern, fields))
    flags = (
        os.O_WRONLY
        | os.O_CREAT
        | os.O_APPEND
        | os.O_CLOEXEC
        | (0 if step_component.options.streams.append else os.O_TRUNC)
    )
    return os.open(path, flags, 0o666)


def _directory(step_component: StepComponent) -> str:
    return os.path.join(os.getcwd(), step_component.options.chdir)


def make_requests(prepared: Prepared, streams: Sequence[StreamTargets], fields: FilenameFields) -> list[dict[str, Any]]:
    """The request to each node; `streams` are those of the components."""
    allocation, step_options, plan, programs = prepared
    umask = os.umask(0o022)
    os.umask(umask)
    address = os.environ.get("OVERSPAN_ADDR", "127.0.0.1")
    facts = Facts(fields.step, fields.host, address, 0, os.getpid(), umask)
    bases = [
        step_environment(allocation, export_environment(os.environ, step_component.options.export), plan, facts)
        for step_component in plan.components
    ]
    window: Optional[tuple[int, int]] = read_window(0) if step_options.pty else None
    requests = []
    for number, node in enumerate(plan.nodes):
        here = plan.on_node(number)
        component = here[0].component if here else 0
        base, step_component = bases[component], plan.components[component]
        rows = []
        for place in here:
            own = fields._replace(host=node.name, node=place.node, task=place.rank)
            names = _name_streams(streams[component], own, _directory(step_component))
            rows.append(_make_row(plan, place, base, programs[place.rank], names))
        requests.append(
            {
                "environment": base,
                "directory": _directory(step_component),
                "umask": umask,
                "append": step_component.options.streams.append,
                "terminal": window,
                "own": _OWN_IN_PODS if allocation.pods else (),
                "ranks": rows,
            }
        )
    return requests


def _name_streams(streams: StreamTargets, fields: FilenameFields, directory: str) -> dict[str, str]:
    names = {
        "stdin": streams.stdin.name(fields.task, fields, directory),
        "stdout": streams.stdout.name(fields.task, fields, directory),
        "stderr": streams.stderr.name(fields.task, fields, directory),
    }
    return names


def _make_row(
    plan: StepPlan, place: PlacedRank, base: Mapping[str, str], argv: Sequence[str], streams: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "number": place.rank,
        "argv": list(argv),
        "environment": rank_environment(plan, place, base),
        **streams,
    }
