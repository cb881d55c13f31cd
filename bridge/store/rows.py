"""Converts jobs and records to table rows and back. Pure."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from overspan.bridge.model.documents import decode, encode, make_encoder
from overspan.bridge.model.events import event_from_document
from overspan.bridge.model.job import Job, make_tasks
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.store.records import Change, Damage, NewJob, OutboxRow, StoredJob, TimelineEntry, TimelineRow
from overspan.bridge.store.sqlite_errors import Unreadable, unreadable

Row = dict[str, Any]
_REMEMBERED = 64
"""Specs that are remembered by their documents while many jobs are read."""

# Escapes non-ASCII, so that a lone surrogate (an undecodable byte of a script) survives the round trip.
_write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
# What has columns of its own, or a table.
_encode_facts = make_encoder(Job, without=("spec", "id", "version"))


@dataclass(slots=True)
class RowBatch:
    """Rows of one atomic write."""

    jobs: list[Row] = field(default_factory=list)
    specs: list[Row] = field(default_factory=list)
    amended: list[Row] = field(default_factory=list)
    updates: list[Row] = field(default_factory=list)
    outbox_done: list[Row] = field(default_factory=list)
    outbox_add: list[Row] = field(default_factory=list)
    timeline: list[Row] = field(default_factory=list)
    schedules: list[Row] = field(default_factory=list)
    receipts: list[Row] = field(default_factory=list)


def insertion(jobs: Iterable[NewJob]) -> RowBatch:
    """One batch for all of the jobs: a statement for each table."""
    batch = RowBatch()
    for new in jobs:
        job, origin = new.job, new.job.spec.origin
        named = {"user": clean(new.user or origin.user), "name": clean(job.spec.name), "cluster": new.cluster}
        array_id = None if job.element is None else job.element.array
        launched = {"handle": new.handle, "native_id": new.native_id, "cursor": new.cursor}
        batch.jobs.append(_facts(job) | named | launched | {"id": job.id, "array_id": array_id})
        if array_id is None:
            batch.specs.append({"job_id": job.id, "document": _write(encode(job.spec))})
        batch.outbox_add += map(outbox_values, new.outbox)
        batch.timeline += [_timeline_values(job.id, entry) for entry in new.timeline]
    return batch


def alteration(change: Change) -> RowBatch:
    """The rows of one change of a job."""
    job = change.job
    if job.version == change.expected_version:
        raise ValueError(f"job {job.id}: the new version {job.version} is the expected one")
    update = _facts(job) | {
        "key": job.id,
        "expected_version": change.expected_version,
        "new_cluster": change.cluster,
        "new_handle": change.handle,
        "new_native_id": change.native_id,
        "new_cursor": change.cursor,
        "account": change.account,
    }
    amended = [] if change.spec is None else [{"key": job.id, "amended": _write(encode(change.spec))}]
    return RowBatch(
        amended=amended,
        updates=[update],
        outbox_done=[{"key": token} for token in change.outbox_done],
        outbox_add=[outbox_values(row) for row in change.outbox_add],
        timeline=[_timeline_values(job.id, entry) for entry in change.timeline],
    )


def drawing(elements: Iterable[NewJob], change: Change) -> RowBatch:
    """The rows of an array's new elements, and of the array without them, in one batch."""
    batch, altered = insertion(elements), alteration(change)
    altered.jobs = batch.jobs
    altered.outbox_add += batch.outbox_add
    altered.timeline += batch.timeline
    return altered


def merge(batches: Iterable[RowBatch]) -> RowBatch | None:
    """Join batches into one with the same effect; None if their order matters."""
    joined = RowBatch()
    for batch in batches:
        joined.jobs += batch.jobs
        joined.specs += batch.specs
        joined.amended += batch.amended
        joined.updates += batch.updates
        joined.outbox_done += batch.outbox_done
        joined.outbox_add += batch.outbox_add
        joined.timeline += batch.timeline
        joined.schedules += batch.schedules
        joined.receipts += batch.receipts
    added = {row["token"] for row in joined.outbox_add}
    if added and any(row["key"] in added for row in joined.outbox_done):
        return None
    return joined


def stored_job(row: Any, spec: JobSpec | None = None) -> StoredJob:
    """The job of a row of `job` joined with its spec. Raises StoreFailed if its documents cannot be read.

    `spec` is that of another row with the same document, so that they share one.
    """
    part = "spec"
    try:
        if spec is None:
            spec = decode(JobSpec, read_json(row.document))
        part = "record"
        document = read_json(row.facts)
        document["id"], document["version"] = row.id, row.version
        document["spec"] = spec
        document["tasks"] = _share_tasks(document["tasks"])
        job = decode(Job, document)
        _check(job, row)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise unreadable(f"the {part} of job {row.id}", error) from None
    return StoredJob(job, sys.intern(row.cluster), row.handle, row.native_id, row.cursor, sys.intern(row.user))


def _share_tasks(tasks: Any) -> Any:
    """The tasks of a job that waits, which others have too; any others as they are. Raises TypeError, LookupError."""
    fresh = all(len(task) == 1 and type(task["name"]) is str for task in tasks)
    return make_tasks(tuple(task["name"] for task in tasks)) if fresh else tasks


def _check(job: Job, row: Any) -> None:
    """Raise ValueError for inconsistent facts, which the daemon never writes."""
    texts = (row.cluster, row.handle, row.native_id, row.cursor, row.user)
    if not (isinstance(row.id, int) and isinstance(row.version, int) and all(isinstance(each, str) for each in texts)):
        raise ValueError("columns of other types")
    if [task.name for task in job.tasks] != [task.name for task in job.spec.tasks]:
        raise ValueError("other tasks than its spec")
    if (row.ended_at is None) is job.over:
        raise ValueError("over and not over")


class JobReader:
    """Reads the rows of jobs, in as many parts as they come; equal specs are one object in all of them."""

    def __init__(self) -> None:
        self._specs: dict[str, JobSpec] = {}

    def read(self, rows: Iterable[Any]) -> tuple[list[StoredJob], list[Damage]]:
        """The jobs of rows, and the damages of rows that cannot be read."""
        found: list[StoredJob] = []
        damages: list[Damage] = []
        for row in rows:
            try:
                found.append(self._read(row))
            except Unreadable as error:
                texts = [each if isinstance(each, str) else "" for each in (row.cluster, row.handle)]
                array = row.array_id if isinstance(row.array_id, int) else 0
                damages.append(Damage(error.message, row.id, array, *texts))
        return found, damages

    def _read(self, row: Any) -> StoredJob:
        # A loop of submissions makes many jobs of one spec, as the elements of an array have one.
        stored = stored_job(row, self._specs.get(row.document))
        if len(self._specs) >= _REMEMBERED:
            self._specs.clear()
        self._specs[row.document] = stored.job.spec
        return stored


def read_json(text: Any) -> Any:
    """The data of a document. Raises ValueError, also for non-ASCII text, which this program never writes."""
    if not isinstance(text, str) or not text.isascii():
        raise ValueError("not a text that was written here")
    return json.loads(text)


def outbox_row(row: Any) -> OutboxRow:
    """The record of a row of `outbox`. Raises Unreadable."""
    try:
        payload = read_json(row.payload)
        if not isinstance(payload["launch"], int) or (row.kind == "order" and not isinstance(payload["event"], dict)):
            raise ValueError("no call")
        if row.kind == "order":
            event_from_document(payload["event"])
        _ = row.next_try_at + row.tries + row.created_at
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise unreadable(f"a call that is owed for job {row.job_id}", error) from None
    return OutboxRow(
        row.token,
        row.job_id,
        row.cluster,
        row.kind,
        payload,
        row.created_at,
        row.tries,
        row.next_try_at,
        row.error,
    )


def timeline_row(row: Any) -> TimelineRow:
    """The record of a row of `timeline`."""
    return TimelineRow(*row)


def outbox_values(row: OutboxRow) -> Row:
    """The columns of an outbox row."""
    return row._asdict() | {"payload": _write(_plain(row.payload)), "error": clean(row.error)}


def clean(text: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot encode, replaced by '?'."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _facts(job: Job) -> Row:
    # A requeued job keeps the end of its earlier run in its facts; for queries it is live again.
    ended_at = None
    if job.over:
        ended_at = job.submitted_at if job.ended_at is None else job.ended_at
    return {
        "version": job.version,
        "state": job.state.value,
        "priority": job.priority,
        "submitted_at": job.submitted_at,
        "ended_at": ended_at,
        "facts": _write(_encode_facts(job)),
    }


def _timeline_values(job_id: int, entry: TimelineEntry) -> Row:
    return {
        "job_id": job_id,
        "task": entry.task,
        "at": entry.at,
        "start": _word(entry.start),
        "end": _word(entry.end),
        "reason": clean(_word(entry.reason)),
        "cause": _word(entry.cause),
        "text": clean(entry.text),
    }


def _word(value: str) -> str:
    return str(value.value) if isinstance(value, Enum) else value


def _plain(payload: Mapping[str, Any]) -> Any:
    return encode(dict(payload))
