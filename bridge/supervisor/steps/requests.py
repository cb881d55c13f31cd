"""What srun asks of each node: the ranks there, their environments, and where their streams go."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from overspan.bridge.model.patterns import FilenameFields, expand_filename
from overspan.bridge.supervisor.steps import channel as wire
from overspan.bridge.supervisor.steps.allocation import Allocation
from overspan.bridge.supervisor.steps.output import Sink, Target, choose_target
from overspan.bridge.supervisor.steps.plan import (
    Facts,
    Place,
    StepPlan,
    export_environment,
    rank_environment,
    step_environment,
)
from overspan.bridge.supervisor.steps.terminal import read_window
from overspan.bridge.supervisor.steps.wish import Manner


class Prepared(NamedTuple):
    """A step that has been laid out: where, how, and the command of each rank."""

    allocation: Allocation
    manner: Manner
    plan: StepPlan
    programs: Sequence[tuple[str, ...]]


class Streams(NamedTuple):
    """Where the three streams of the ranks come from and go to."""

    stdin: Target
    stdout: Target
    stderr: Target
    same: bool


def choose_streams(manner: Manner) -> Streams:
    """What the options make of each stream."""
    error = manner.error or manner.output
    return Streams(
        stdin=Target(each=manner.input)
        if manner.input and not manner.input.isdigit() and manner.input not in ("all", "none")
        else choose_target(manner.input, False),
        stdout=choose_target(manner.output, manner.label),
        stderr=choose_target(error, manner.label),
        same=bool(error) and error == manner.output,
    )


def choose_reader(manner: Manner, streams: Streams) -> int:
    """The rank that gets srun's input, as `client.Step.reader`."""
    if manner.pty:
        return 0
    if streams.stdin.each or streams.stdin.nothing:
        return -1
    return streams.stdin.only if streams.stdin.only >= 0 else wire.EVERY_RANK


def open_sinks(manner: Manner, plan: StepPlan, streams: Streams, fields: FilenameFields) -> dict[bytes, Sink]:
    """Where srun writes what ranks send it. Raises OSError."""
    width = len(str(max(0, len(plan.places) - 1))) if manner.label else 0
    whole = not (manner.unbuffered or manner.pty)
    opened: dict[bytes, Sink] = {}
    for kind, target, fd in ((wire.OUTPUT, streams.stdout, 1), (wire.ERROR, streams.stderr, 2)):
        if kind == wire.ERROR and streams.same and target.path:
            opened[kind] = opened[wire.OUTPUT]
            continue
        if target.path:
            path = os.path.join(_directory(plan), expand_filename(target.path, fields))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if manner.append else os.O_TRUNC)
            fd = os.open(path, flags, 0o666)
        opened[kind] = Sink(fd, whole_lines=whole, label_width=width)
    return opened


def _directory(plan: StepPlan) -> str:
    return os.path.join(os.getcwd(), plan.sides[0].wish.chdir)


def make_requests(prepared: Prepared, streams: Streams, fields: FilenameFields) -> list[dict[str, Any]]:
    """What each node is asked to run."""
    allocation, manner, plan, programs = prepared
    umask = os.umask(0o022)
    os.umask(umask)
    address = os.environ.get("OVERSPAN_ADDR", "127.0.0.1")
    facts = Facts(fields.step, fields.host, address, 0, os.getpid(), umask)
    directory = _directory(plan)
    bases = [
        step_environment(allocation, export_environment(os.environ, side.wish.export), plan, facts)
        for side in plan.sides
    ]
    requests = []
    for number, node in enumerate(plan.nodes):
        here = plan.on_node(number)
        base = bases[here[0].component] if here else {}
        rows = []
        for place in here:
            own = fields._replace(host=node.name, node=place.node, task=place.rank)
            rows.append(_make_row(plan, place, base, programs[place.rank], _name_streams(streams, own, directory)))
        window: Optional[tuple[int, int]] = read_window(0) if manner.pty else None
        requests.append(
            {
                "environment": base,
                "directory": directory,
                "umask": umask,
                "append": manner.append,
                "terminal": window,
                "ranks": rows,
            }
        )
    return requests


def _name_streams(streams: Streams, fields: FilenameFields, directory: str) -> dict[str, str]:
    names = {
        "stdin": streams.stdin.name(fields.task, fields, directory),
        "stdout": streams.stdout.name(fields.task, fields, directory),
        "stderr": streams.stderr.name(fields.task, fields, directory),
    }
    return names


def _make_row(
    plan: StepPlan, place: Place, base: Mapping[str, str], argv: Sequence[str], streams: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "number": place.rank,
        "argv": list(argv),
        "environment": rank_environment(plan, place, base),
        **streams,
    }
