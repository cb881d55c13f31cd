"""sacct, for jobs that squeue no longer knows: the command, and its answer as records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from overspan.adapters.slurm.commands.listings import (
    FIELD_END,
    ExitStatus,
    TimeLimit,
    ask,
    read_exit,
    read_limit,
    read_number,
    read_text,
    read_time,
    split_parsable,
)
from overspan.adapters.slurm.commands.squeue import read_nodes
from overspan.adapters.slurm.commands.states import NativeState, read_reason, read_state

FIELDS = (
    "JobID",
    "JobIDRaw",
    "Partition",
    "State",
    "Reason",
    "ExitCode",
    "DerivedExitCode",
    "Submit",
    "Start",
    "End",
    "ElapsedRaw",
    "TimelimitRaw",
    "NNodes",
    "NodeList",
    "User",
    "JobName",
    "Comment",
)
"""Fields that sacct has from Slurm 20.02 to 26.05. SubmitLine came with 21.08 and is asked for only where it exists."""
SUBMIT_LINE = "SubmitLine"
SUBMIT_LINE_SINCE = (21, 8)
JOB_ID = re.compile(r"(\d+)(?:_(\d+)|_\[([^\]]*)\]|\+(\d+))?(?:\.(\w+))?")


@dataclass(frozen=True)
class AccountingRecord:
    """One run of a job, an element or a component, or a step of one, as the accounting keeps it.

    `shown` is the id as sacct writes it, `raw` the job's own id; `step` is empty for the job itself. `rest` are the
    indices of an array's waiting elements, as text. With duplicates, a requeued job has one record for each run,
    oldest first.
    """

    shown: str
    raw: int
    array_job: int | None
    array_index: int | None
    rest: str
    het_job: int | None
    het_offset: int | None
    step: str
    state: NativeState
    reason: str
    exit: ExitStatus | None
    derived: ExitStatus | None
    name: str
    partition: str
    submit: float | None
    start: float | None
    end: float | None
    elapsed: int | None
    limit: TimeLimit
    num_nodes: int | None
    nodes: tuple[str, ...]
    user: str
    comment: str
    submit_line: str = ""


@dataclass(frozen=True)
class AccountingListing:
    """The records of one answer, and how many lines of it could not be read."""

    records: tuple[AccountingRecord, ...]
    unreadable: int = 0
    torn: bool = False


def list_fields(version: tuple[int, ...]) -> tuple[str, ...]:
    """The fields that a Slurm of that version has."""
    return (*FIELDS, SUBMIT_LINE) if version >= SUBMIT_LINE_SINCE else FIELDS


def ask_accounts(
    ids: Sequence[int | str], version: tuple[int, ...] = (), *, steps: bool = False, clusters: str = ""
) -> tuple[str, ...]:
    """The command for those native ids: every run of each, with or without its steps."""
    return _ask((f"--jobs={','.join(map(str, ids))}",), version, steps, clusters)


def ask_since(user: str, since: float, version: tuple[int, ...] = (), clusters: str = "") -> tuple[str, ...]:
    """The command for all jobs of a user since a time, to find one by the token in its comment or submit line.

    The time is given as Slurm's `uts` seconds, so that time zones do not matter.
    """
    return _ask((f"--user={user}", f"--starttime=uts{int(since)}", "--endtime=now"), version, False, clusters)


def _ask(filters: tuple[str, ...], version: tuple[int, ...], steps: bool, clusters: str) -> tuple[str, ...]:
    words = ["sacct", "--noheader", "--parsable", f"--delimiter={FIELD_END}", "--duplicates"]
    if not steps:
        words.append("--allocations")
    if clusters:
        words.append(f"--clusters={clusters}")
    return ask(*words, *filters, f"--format={','.join(list_fields(version))}")


def read_accounts(text: str, version: tuple[int, ...] = ()) -> AccountingListing:
    """Read the answer to a command that was made for the same version."""
    fields = list_fields(version)
    answer = split_parsable(text, len(fields))
    records, wrong = [], answer.unreadable
    for values in answer.records:
        record = _read_record(dict(zip(fields, values, strict=True)))
        if record is None:
            wrong += 1
        else:
            records.append(record)
    return AccountingListing(tuple(records), wrong, answer.torn)


def _read_record(row: dict[str, str]) -> AccountingRecord | None:
    match = JOB_ID.fullmatch(row["JobID"].strip())
    raw = read_number(row["JobIDRaw"].partition(".")[0])
    if match is None or raw is None:
        return None
    job, index, rest, offset, step = match.groups()
    array = index is not None or rest is not None
    return AccountingRecord(
        shown=row["JobID"].strip(),
        raw=raw,
        array_job=int(job) if array else None,
        array_index=None if index is None else int(index),
        rest=rest or "",
        het_job=None if offset is None else int(job),
        het_offset=None if offset is None else int(offset),
        step=step or "",
        state=read_state(row["State"]),
        reason=read_reason(row["Reason"]),
        exit=read_exit(row["ExitCode"]),
        derived=read_exit(row["DerivedExitCode"]),
        name=row["JobName"],
        partition=row["Partition"].strip(),
        submit=read_time(row["Submit"]),
        start=read_time(row["Start"]),
        end=read_time(row["End"]),
        elapsed=read_number(row["ElapsedRaw"]),
        limit=_read_minutes(row["TimelimitRaw"]),
        num_nodes=read_number(row["NNodes"]),
        nodes=read_nodes(row["NodeList"]),
        user=row["User"].strip(),
        comment=read_text(row["Comment"]),
        submit_line=row.get(SUBMIT_LINE, ""),
    )


def _read_minutes(text: str) -> TimeLimit:
    minutes = read_number(text)
    return read_limit(text) if minutes is None else TimeLimit(minutes * 60)
