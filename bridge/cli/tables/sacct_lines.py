"""Lines of sacct: one for a job, task or element, one for each of its steps; and sacct's three layouts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from overspan.bridge.cli.tables.steps import StepLine, StepsByJob, derived_exit, list_steps
from overspan.bridge.listings.layout import Column
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.listings.texts import eligible_at, job_id, seconds_used
from overspan.bridge.listings.values import Document

_UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024, "P": 1024**3}


class AccountLine(NamedTuple):
    """A line: a row, or a step of it. `unit` is that of --units, empty for Slurm's choice.

    `derived` is the highest end of the row's steps.
    """

    row: JobRow
    step: StepLine | None = None
    unit: str = ""
    derived: tuple[int, int] = (0, 0)

    @property
    def id(self) -> str:
        """JobID."""
        return f"{job_id(self.row)}.{self.step.id}" if self.step else job_id(self.row)

    @property
    def raw_id(self) -> str:
        """JobIDRaw."""
        return f"{self.row.raw_id}.{self.step.id}" if self.step else str(self.row.raw_id)

    @property
    def name(self) -> str:
        """JobName."""
        return self.step.name if self.step else self.row.name

    @property
    def started(self) -> bool:
        """Whether it ever had an allocation."""
        return self.row.started_at is not None and self.row.state != "PENDING"

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return self.step.nodes if self.step else self.row.nodes

    @property
    def cpus(self) -> int:
        """CPUs allocated or, before, asked for."""
        return self.step.cpus if self.step else self.row.cpus

    @property
    def node_list(self) -> str:
        """Nodes, in sacct's words where there are none."""
        return self.step.node_list if self.step else self.row.node_list or "None assigned"

    @property
    def submitted_at(self) -> float | None:
        """A step is submitted when it starts."""
        return self.step.started_at if self.step else self.row.submitted_at

    @property
    def eligible_at(self) -> float | None:
        """Since when it could start."""
        return self.step.started_at if self.step and not self.step.batch else eligible_at(self.row)

    @property
    def started_at(self) -> float | None:
        """When it started."""
        return self.step.started_at if self.step else self.row.started_at

    @property
    def ended_at(self) -> float | None:
        """When it ended."""
        return self.step.ended_at if self.step else self.row.ended_at

    @property
    def state(self) -> str:
        """The state, with who cancelled."""
        row = self.row
        if self.step:
            return self.step.state
        if row.state == "CANCELLED" and row.ended_by_uid is not None:
            return f"CANCELLED by {row.ended_by_uid}"
        return row.state

    @property
    def exit_text(self) -> str:
        """CODE:SIGNAL; a job that was stopped has 0:0, its script the signal (measured on Slurm 22.05)."""
        row = self.row
        if self.step:
            return self.step.exit_text
        if row.state in ("TIMEOUT", "CANCELLED", "PREEMPTED"):
            return "0:0"
        return "0:125" if row.state == "OUT_OF_MEMORY" else f"{row.exit_code}:{row.signal}"

    @property
    def memory_text(self) -> str:
        """ReqMem: of all nodes together."""
        if self.step:
            return ""
        return format_amount(self.row.memory * max(self.row.nodes, 1), self.unit)

    def elapsed(self, now: float) -> int:
        """Wall seconds."""
        return self.step.elapsed(now) if self.step else int(seconds_used(self.row, now))

    def suspended(self, now: float) -> int:
        """Seconds for which it was suspended."""
        since = self.row.paused_at
        return int(self.row.paused + (now - since if since is not None else 0))

    def tres_text(self) -> str:
        """Trackable resources as the accounting has them: by name, without billing for a step."""
        row = self.row
        parts = [f"cpu={self.cpus}"] if self.step else [f"billing={row.cpus}", f"cpu={row.cpus}"]
        if row.gpus and not self.step:
            parts.append(f"gres/gpu={row.gpus:g}")
        if row.memory:
            parts.append(f"mem={format_amount(row.memory * max(self.nodes, 1))}")
        parts.append(f"node={self.nodes}")
        return ",".join(parts)

    def tres_amounts(self) -> list[Document]:
        """The same for documents."""
        amounts = [("cpu", "", 1, self.cpus), ("mem", "", 2, self.row.memory * max(self.nodes, 1))]
        amounts.append(("node", "", 4, self.nodes))
        if self.row.gpus:
            amounts.append(("gres", "gpu", 1001, int(self.row.gpus)))
        return [{"type": kind, "name": name, "id": key, "count": count} for kind, name, key, count in amounts]

    def times(self, now: float) -> Document:
        """Its times for documents; what a program used is not measured."""
        unmeasured = {"seconds": 0, "microseconds": 0}
        return {
            "elapsed": self.elapsed(now),
            "eligible": int(self.eligible_at or 0),
            "end": int(self.ended_at or 0),
            "start": int(self.started_at or 0),
            "suspended": 0,
            **dict.fromkeys(("system", "total", "user"), unmeasured),
        }


def as_lines(rows: Iterable[JobRow], found: StepsByJob, unit: str = "", jobs_only: bool = False) -> list[AccountLine]:
    """A line a row and, unless only jobs are wanted, one for each of its steps."""
    lines = []
    for row in rows:
        steps = list_steps(row, found)
        derived = derived_exit(steps) if row.ended_at is not None else (0, 0)
        lines.append(AccountLine(row, None, unit, derived))
        if not jobs_only:
            lines += [AccountLine(row, step, unit) for step in steps]
    return lines


def format_amount(mib: int, unit: str = "") -> str:
    """Memory in a unit with two decimals, or in the largest one that needs none."""
    if mib == 0:
        return "0"
    if unit:
        amount = mib / _UNITS[unit]
        return f"{amount:.0f}{unit}" if amount == int(amount) else f"{amount:.2f}{unit}"
    for name in ("T", "G"):
        if mib % _UNITS[name] == 0:
            return f"{mib // int(_UNITS[name])}{name}"
    return f"{mib}M"


def render_accounts(
    fields: Sequence[tuple[Column, int]], lines: Sequence[AccountLine], now: float, header: bool = True
) -> str:
    """Write the table with fixed widths: a longer text ends in `+`, a longer header is cut."""
    written = []
    if header:
        written.append("".join(_cell(column.header[: abs(width)], width) + " " for column, width in fields))
        written.append("".join("-" * abs(width) + " " for _, width in fields))
    for line in lines:
        written.append("".join([_cell(column.text(line, now), width) + " " for column, width in fields]))
    return "".join(text + "\n" for text in written)


def render_parsable(lines: Iterable[str], delimiter: str, trailing: bool, header: bool) -> str:
    """Write delimited lines (the header is first), with a delimiter at the end of each for `-p`."""
    end = delimiter if trailing else ""
    return "".join(f"{line}{end}\n" for number, line in enumerate(lines) if header or number)


def _cell(text: str, width: int) -> str:
    size = abs(width)
    if len(text) > size:
        text = text[: size - 1] + "+" if size else ""
    return f"{text:<{size}}" if width < 0 else f"{text:>{size}}"
