"""What sacct can show: field names, widths and texts (sacct(1), src/sacct/sacct.c), and its three layouts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from overspan.bridge.cli.columns import job_id, seconds_used, tres
from overspan.bridge.cli.layout import Column
from overspan.bridge.client.records import JobRow
from overspan.bridge.model.durations import format_elapsed_long, format_timestamp
from overspan.bridge.model.errors import InvalidRequest

DEFAULT_FIELDS = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
BRIEF_FIELDS = "JobID,State,ExitCode"


class AccountField(NamedTuple):
    """A chosen field: a negative width is left-justified, as in `%-30`."""

    column: Column
    width: int


def _state(row: JobRow, now: float) -> str:
    if row.state == "CANCELLED" and row.ended_by_uid is not None:
        return f"CANCELLED by {row.ended_by_uid}"
    return row.state


def _memory(row: JobRow, now: float) -> str:
    from overspan.bridge.model.sizes import format_memory

    return format_memory(row.memory)


def _started(row: JobRow) -> bool:
    return row.started_at is not None


def _elapsed(row: JobRow, now: float) -> float:
    return seconds_used(row, now)


_TABLE: tuple[Column, ...] = (
    Column("Account", 10, lambda row, now: row.account),
    Column("AllocCPUS", 10, lambda row, now: str(row.cpus if _started(row) else 0)),
    Column("AllocNodes", 10, lambda row, now: str(row.nodes if _started(row) else 0)),
    Column("AllocTRES", 10, lambda row, now: tres(row) if _started(row) else ""),
    Column("AveRSS", 10, lambda row, now: ""),
    Column("Cluster", 10, lambda row, now: row.cluster),
    Column("Comment", 14, lambda row, now: row.comment),
    Column("CPUTime", 10, lambda row, now: format_elapsed_long(_elapsed(row, now) * row.cpus)),
    Column("CPUTimeRAW", 10, lambda row, now: str(int(_elapsed(row, now) * row.cpus))),
    Column("DerivedExitCode", 15, lambda row, now: "0:0"),
    Column("Elapsed", 10, lambda row, now: format_elapsed_long(_elapsed(row, now))),
    Column("ElapsedRaw", 10, lambda row, now: str(int(_elapsed(row, now)))),
    Column("Eligible", 19, lambda row, now: format_timestamp(row.begin or row.submitted_at, "Unknown")),
    Column("End", 19, lambda row, now: format_timestamp(row.ended_at, "Unknown")),
    Column("ExitCode", 8, lambda row, now: f"{row.exit_code}:{row.signal}"),
    Column("Flags", 19, lambda row, now: ""),
    Column("JobID", -12, job_id),
    Column("JobIDRaw", -12, lambda row, now: str(row.raw_id)),
    Column("JobName", 10, lambda row, now: row.name),
    Column("MaxRSS", 10, lambda row, now: ""),
    Column("NCPUS", 10, lambda row, now: str(row.cpus if _started(row) else 0)),
    Column("NNodes", 8, lambda row, now: str(row.nodes)),
    Column("NodeList", 15, lambda row, now: row.node_list or "None assigned"),
    Column("NTasks", 8, lambda row, now: ""),
    Column("Partition", 10, lambda row, now: row.partition),
    Column("Priority", 10, lambda row, now: str(row.priority or 0)),
    Column("QOS", 10, lambda row, now: row.qos),
    Column("Reason", 22, lambda row, now: row.reason),
    Column("ReqCPUS", 8, lambda row, now: str(row.cpus)),
    Column("ReqMem", 10, _memory),
    Column("ReqNodes", 8, lambda row, now: str(row.nodes)),
    Column("ReqTRES", 10, tres),
    Column("Restarts", 8, lambda row, now: str(row.restarts)),
    Column("Start", 19, lambda row, now: format_timestamp(row.started_at, "Unknown")),
    Column("State", 10, _state),
    Column("StdErr", 20, lambda row, now: row.stderr),
    Column("StdOut", 20, lambda row, now: row.stdout),
    Column("Submit", 19, lambda row, now: format_timestamp(row.submitted_at, "Unknown")),
    Column("SubmitLine", 20, lambda row, now: row.command),
    Column("Timelimit", 10, lambda row, now: format_elapsed_long(row.time_limit)),
    Column(
        "TimelimitRaw", 10, lambda row, now: "UNLIMITED" if row.time_limit is None else str(-(-row.time_limit // 60))
    ),
    Column("TotalCPU", 10, lambda row, now: "00:00:00"),
    Column("UID", 6, lambda row, now: "" if row.uid is None else str(row.uid)),
    Column("User", 9, lambda row, now: row.user),
    Column("WorkDir", 20, lambda row, now: row.work_dir),
)
FIELDS: dict[str, Column] = {column.header: column for column in _TABLE}
_BY_NAME = {name.lower(): column for name, column in FIELDS.items()}


def parse_fields(text: str) -> list[AccountField]:
    """Read a --format list; `%width` or `%-width` after a name. A unique beginning of a name is enough.

    Raises InvalidRequest in sacct's words.
    """
    fields = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([A-Za-z]+)(?:%(-?[0-9]+))?", item)
        name = match[1].lower() if match else ""
        column = _BY_NAME.get(name) or next((c for n, c in _BY_NAME.items() if name and n.startswith(name)), None)
        if match is None or column is None:
            raise InvalidRequest(f'Invalid field requested: "{item}"', remedy="`sacct --helpformat` lists the fields")
        fields.append(AccountField(column, int(match[2]) if match[2] else column.width))
    return fields


def render_accounts(fields: Sequence[AccountField], rows: Sequence[JobRow], now: float, header: bool = True) -> str:
    """Write the table with fixed widths: a longer text ends in `+`."""
    lines = []
    if header:
        lines.append("".join(_cell(field.column.header, field.width) + " " for field in fields))
        lines.append("".join("-" * abs(field.width) + " " for field in fields))
    for row in rows:
        lines.append("".join([_cell(field.column.text(row, now), field.width) + " " for field in fields]))
    return "".join(line + "\n" for line in lines)


def render_parsable(lines: Iterable[str], delimiter: str, trailing: bool, header: bool) -> str:
    """Write delimited lines (the header is first), with a delimiter at the end of each for `-p`."""
    end = delimiter if trailing else ""
    return "".join(f"{line}{end}\n" for number, line in enumerate(lines) if header or number)


def _cell(text: str, width: int) -> str:
    size = abs(width)
    if len(text) > size:
        text = text[: max(size - 1, 0)] + "+"
    return f"{text:<{size}}" if width < 0 else f"{text:>{size}}"
