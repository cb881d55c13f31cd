"""One squeue for all jobs of a cluster: the command, and its answer as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from overspan.adapters.slurm.commands.listings import (
    ExitStatus,
    TimeLimit,
    ask,
    join_format,
    read_elapsed,
    read_exit,
    read_limit,
    read_number,
    read_text,
    read_time,
    split_records,
)
from overspan.adapters.slurm.commands.states import NativeState, read_reason, read_state
from overspan.bridge.model.ids import ArraySpec, parse_array
from overspan.bridge.model.slurm.hostlists import expand

FIELDS = (
    "JobArrayID",
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "HetJobOffset",
    "State",
    "Reason",
    "exit_code",
    "RestartCnt",
    "UserName",
    "Partition",
    "NodeList",
    "BatchHost",
    "NumNodes",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "TimeUsed",
    "PriorityLong",
    "Name",
    "Comment",
)
"""Fields of squeue's --Format; all of them exist from Slurm 20.02 (HetJobID) to 26.05."""
_ALL_STATES = "all"
SPLIT = "--array"
"""The option that makes each waiting element of an array a record of its own."""
MAX_IDS = 500
"""Ids on one command line; for more than that, all jobs of the user are asked for."""


@dataclass(frozen=True)
class QueueRecord:
    """A line of squeue: a job, an element, the waiting elements of an array together, or a hetjob component.

    `shown` is its id as Slurm writes it (N, N_i, N_[a-b%t], N+k), `raw` its own id. `waiting` are the indices of
    waiting elements. Times are seconds since 1970; `start` is an estimate while the job waits, `end` until its end.
    """

    shown: str
    raw: int
    array_job: int | None
    array_index: int | None
    waiting: ArraySpec | None
    het_job: int | None
    het_offset: int | None
    state: NativeState
    reason: str
    exit: ExitStatus | None
    restarts: int
    user: str
    partition: str
    nodes: tuple[str, ...]
    batch_host: str
    num_nodes: int | None
    submit: float | None
    start: float | None
    end: float | None
    limit: TimeLimit
    used: int | None
    priority: int | None
    name: str
    comment: str


@dataclass(frozen=True)
class QueueListing:
    """The records of one answer, by their fields too, and how many lines of it could not be read."""

    records: tuple[QueueRecord, ...]
    unreadable: int = 0
    by_fields: Mapping[tuple[str, ...], QueueRecord] = field(default_factory=dict, repr=False)
    torn: bool = False


def ask_queue(ids: Sequence[int] = (), user: str = "", clusters: str = "", *, split: bool = False) -> tuple[str, ...]:
    """The command for the jobs of those native ids, of that user, or for all; also ended ones (MinJobAge).

    Waiting elements of an array are one record unless `split` is set: only then do single elements' changes and
    requeues show. A single id is given twice, because squeue fails if its only id is unknown.
    """
    words = ["squeue", "--noheader", "--all", f"--states={_ALL_STATES}"]
    if split:
        words.append(SPLIT)
    if clusters:
        words.append(f"--clusters={clusters}")
    if ids and len(ids) <= MAX_IDS:
        listed = [*ids, *ids[:1]] if len(ids) == 1 else ids
        words.append("--jobs=" + ",".join(map(str, listed)))
    elif user:
        words.append(f"--user={user}")
    return ask(*words, f"--Format={join_format(FIELDS)}")


def read_queue(text: str, known: Mapping[tuple[str, ...], QueueRecord] | None = None) -> QueueListing:
    """Read the answer to `ask_queue`; lines in `known` (an earlier `QueueListing.by_fields`) are not parsed again."""
    answer = split_records(text, len(FIELDS))
    by_fields: dict[tuple[str, ...], QueueRecord] = {}
    records, wrong = [], answer.unreadable
    for fields in answer.records:
        record = known.get(fields) if known else None
        record = record or _read_record(dict(zip(FIELDS, fields, strict=True)))
        if record is None:
            wrong += 1
        else:
            by_fields[fields] = record
            records.append(record)
    return QueueListing(tuple(records), wrong, by_fields, answer.torn)


def _read_record(row: dict[str, str]) -> QueueRecord | None:
    raw = read_number(row["JobID"])
    if raw is None:
        return None
    index, waiting = _read_indices(row["ArrayTaskID"])
    array = index is not None or waiting is not None
    return QueueRecord(
        shown=row["JobArrayID"].strip(),
        raw=raw,
        array_job=read_number(row["ArrayJobID"]) if array else None,
        array_index=index,
        waiting=waiting,
        het_job=read_number(row["HetJobID"]),
        het_offset=read_number(row["HetJobOffset"]),
        state=read_state(row["State"]),
        reason=read_reason(row["Reason"]),
        exit=read_exit(row["exit_code"]),
        restarts=read_number(row["RestartCnt"]) or 0,
        user=row["UserName"].strip(),
        partition=row["Partition"].strip(),
        nodes=read_nodes(row["NodeList"]),
        batch_host=read_text(row["BatchHost"]),
        num_nodes=read_number(row["NumNodes"].partition("-")[0]),
        submit=read_time(row["SubmitTime"]),
        start=read_time(row["StartTime"]),
        end=read_time(row["EndTime"]),
        limit=read_limit(row["TimeLimit"]),
        used=read_elapsed(row["TimeUsed"]),
        priority=read_number(row["PriorityLong"]),
        name=row["Name"],
        comment=read_text(row["Comment"]),
    )


def _read_indices(text: str) -> tuple[int | None, ArraySpec | None]:
    word = text.strip()
    index = read_number(word)
    if index is not None or read_text(word) == "":
        return index, None
    try:
        return None, parse_array(word)
    except ValueError:
        # Old versions of squeue shorten long lists with dots.
        return None, ArraySpec(())


def read_nodes(text: str) -> tuple[str, ...]:
    """The names in a node list; empty if there is none, or if it cannot be read."""
    word = read_text(text)
    if not word or word.startswith("("):
        return ()
    try:
        return tuple(expand(word))
    except ValueError:
        return ()
