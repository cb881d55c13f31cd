"""Step accounting: a line when a step starts and one when it ends, in the run directory.

steps/R.jsonl   the steps of launch R, as srun wrote them

The lines are facts for sacct and its like. Nothing is decided by them, so they are neither events nor forced to the
disk. A step without an end still runs, or its srun was killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.allocation import Allocation
from overspan.bridge.runtime.srun.output import fold_ranks
from overspan.bridge.runtime.srun.step_plan import StepPlan

_LONGEST_LINE = 16384
"""Letters of a command line that are kept."""


class ComponentRecord(NamedTuple):
    """A component of a step: its job's task, its nodes, and the folded numbers of its ranks on each (`0-3,7`).

    `places` are the nodes' numbers in the task.
    `cpus` are those of the step where it asked for a number (--exact), else 0: all that the job has on its nodes.
    `status` is the highest wait status of its ranks, as Slurm has it; None before the end.
    """

    task: str
    nodes: tuple[str, ...]
    places: tuple[int, ...]
    ranks: tuple[str, ...]
    ntasks: int
    layout: str = "Block"
    cpus: int = 0
    status: Optional[int] = None


class StepRecord(NamedTuple):
    """One step. Times are seconds since 1970; `started_by` is srun's pid and its start in clock ticks since boot."""

    number: int
    name: str
    line: str
    started_at: float
    started_by: tuple[int, int]
    host: str
    parts: tuple[ComponentRecord, ...]
    ended_at: Optional[float] = None
    cancelled: bool = False
    """Whether the user had it ended by its number."""

    @property
    def running(self) -> bool:
        """Whether its srun lives; to be asked on the machine that it runs on."""
        pid, start_time = self.started_by
        return self.ended_at is None and kernel.read_start_time(pid) == start_time


def describe_step(
    allocation: Allocation, plan: StepPlan, number: int, line: Sequence[str], started_at: float
) -> StepRecord:
    """What is to be kept of a step that this process is about to run."""
    first = plan.components[0].options
    name = os.path.basename(first.command[0]) if first.title is None else first.title or allocation.name
    pid = os.getpid()
    return StepRecord(
        number=number,
        name=name,
        line=" ".join(line),
        started_at=started_at,
        started_by=(pid, kernel.read_start_time(pid)),
        host=os.uname().nodename,
        parts=tuple(_describe_component(plan, component) for component in range(len(plan.components))),
    )


def _describe_component(plan: StepPlan, component: int) -> ComponentRecord:
    step_component = plan.components[component]
    before = sum(len(other.nodes) for other in plan.components[:component])
    ranks = [[place.rank for place in plan.on_node(before + node)] for node in range(len(step_component.nodes))]
    ntasks = sum(step_component.counts)
    return ComponentRecord(
        task=step_component.nodes[0].task,
        nodes=tuple(node.name for node in step_component.nodes),
        places=tuple(node.number for node in step_component.nodes),
        ranks=tuple(map(fold_ranks, ranks)),
        ntasks=ntasks,
        layout=name_layout(step_component.options.distribution, ntasks, len(step_component.nodes)),
        cpus=ntasks * (step_component.options.cpus_per_task or 1) if step_component.options.exact else 0,
    )


def name_layout(distribution: str, ntasks: int, nodes: int) -> str:
    """Slurm's name of a distribution; one task a node is dealt out in turns (measured on Slurm 22.05)."""
    first, colon, second = distribution.partition(",")[0].lower().partition(":")
    if first.startswith("plane"):
        return "Plane"
    if first == "arbitrary":
        return "Arbitrary"
    if colon:
        return ("C" if first == "cyclic" else "B") + ("Block" if second == "block" else "Cyclic")
    return "Cyclic" if first == "cyclic" or ntasks <= nodes else "Block"


def finish_step(
    record: StepRecord, plan: StepPlan, statuses: Mapping[int, int], ended_at: float, cancelled: bool
) -> StepRecord:
    """The record of a step that has ended; `statuses` are the wait statuses of its ranks."""
    parts = []
    for component, part in enumerate(record.parts):
        mine = [statuses.get(place.rank, 0) for place in plan.places if place.component == component]
        parts.append(part._replace(status=max(mine, default=0)))
    return record._replace(parts=tuple(parts), ended_at=ended_at, cancelled=cancelled)


def note_start(folder: str, launch: int, record: StepRecord) -> None:
    """Keep that a step has started; `folder` is that of the allocation. Raises OSError."""
    parts = [list(part[: ComponentRecord._fields.index("status")]) for part in record.parts]
    document = {
        "step": record.number,
        "started_at": record.started_at,
        "name": record.name,
        "line": record.line[:_LONGEST_LINE],
        "by": record.started_by,
        "host": record.host,
        "parts": parts,
    }
    _append(folder, launch, document)


def note_end(folder: str, launch: int, ended: StepRecord) -> None:
    """Keep how each component of a step has ended. Raises OSError."""
    statuses = [part.status or 0 for part in ended.parts]
    document = {"step": ended.number, "ended_at": ended.ended_at, "statuses": statuses, "cancelled": ended.cancelled}
    _append(folder, launch, document)


def read_steps(folder: str, launch: int) -> list[StepRecord]:
    """The steps of a launch by their numbers; none where none was kept. Raises OSError for a file that is no file."""
    try:
        with open(_path(folder, launch), "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    found: dict[int, StepRecord] = {}
    # What stands behind the last newline is not whole yet.
    for line in lines[:-1]:
        try:
            document = json.loads(line)
            if "ended_at" in document:
                _end(found, document)
            else:
                record = _read_start(document)
                found[record.number] = record
        except (ValueError, KeyError, TypeError):
            continue  # torn by a full disk
    return [found[number] for number in sorted(found)]


def _read_start(document: Mapping[str, Any]) -> StepRecord:
    pid, start_time = document["by"]
    return StepRecord(
        number=int(document["step"]),
        name=str(document["name"]),
        line=str(document["line"]),
        started_at=float(document["started_at"]),
        started_by=(int(pid), int(start_time)),
        host=str(document["host"]),
        parts=tuple(
            ComponentRecord(str(task), tuple(nodes), tuple(places), tuple(ranks), int(ntasks), str(layout), int(cpus))
            for task, nodes, places, ranks, ntasks, layout, cpus in document["parts"]
        ),
    )


def _end(found: dict[int, StepRecord], document: Mapping[str, Any]) -> None:
    record = found[document["step"]]
    statuses = document["statuses"]
    parts = tuple(part._replace(status=int(status)) for part, status in zip(record.parts, statuses))
    ended_at, cancelled = float(document["ended_at"]), bool(document["cancelled"])
    found[record.number] = record._replace(parts=parts, ended_at=ended_at, cancelled=cancelled)


def _append(folder: str, launch: int, document: Mapping[str, Any]) -> None:
    line = json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"
    fd = os.open(_path(folder, launch), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # One write: steps that start side by side do not mix their lines.
        os.write(fd, line)
    finally:
        os.close(fd)


def _path(folder: str, launch: int) -> str:
    return os.path.join(folder, f"{launch}.jsonl")
