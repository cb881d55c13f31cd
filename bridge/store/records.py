"""Records that the store takes and returns; used by the controller and the API. Standard library only.

Times are seconds since the epoch. Payloads are JSON objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobSpec


class Damage(NamedTuple):
    """A row that cannot be read, and is left as it is: `text` says which and why, without its values.

    The other fields identify the job of a damaged job or outbox row; they are 0 and empty for other rows.
    """

    text: str
    job_id: int = 0
    array_id: int = 0
    cluster: str = ""
    handle: str = ""
    """The handle as stored, with the launch's number."""


class TimelineEntry(Protocol):
    """What the lifecycle says about one transition; `lifecycle.timeline.Transition` has this shape."""

    @property
    def at(self) -> float: ...
    @property
    def task(self) -> str: ...
    @property
    def start(self) -> str: ...
    @property
    def end(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def cause(self) -> str: ...
    @property
    def text(self) -> str: ...


class TimelineRow(NamedTuple):
    """One stored transition; `seq` only grows, and is its position in the event stream."""

    seq: int
    job_id: int
    task: str
    at: float
    start: str
    end: str
    reason: str
    cause: str
    text: str


class OutboxRow(NamedTuple):
    """A call to a cluster that has no answer yet; `token` is its idempotency key, and unique."""

    token: str
    job_id: int
    cluster: str
    kind: str
    payload: Mapping[str, Any]
    created_at: float
    tries: int = 0
    next_try_at: float = 0.0
    error: str = ""


class Receipt(NamedTuple):
    """The job or schedule that a submission created (the other is 0), by the idempotency key of its sender."""

    token: str
    user: str
    at: float
    job_id: int = 0
    schedule_id: int = 0


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job with the daemon's own data about it: its cluster and handle, and how far its events were read."""

    job: Job
    cluster: str
    handle: str
    native_id: str
    cursor: str
    user: str


class HistoryRows(NamedTuple):
    """An ended job for listings of the history: `rows` were written by the change that ended it; None for none."""

    id: int
    array_id: int | None
    cluster: str
    handle: str
    rows: bytes | None


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to insert with its first outbox and timeline rows; an empty `user` means the one in the spec's origin."""

    job: Job
    cluster: str
    user: str = ""
    outbox: tuple[OutboxRow, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    handle: str = ""
    """Of a launch that its cluster has accepted already, as `native_id` and `cursor`."""
    native_id: str = ""
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """New facts of a job, as a compare-and-set: written only if the stored version is `expected_version`.

    `job.version` is the version to write, and must differ from the expected one. None leaves a column as it is. User
    and name are never written again, the spec only if one is given.
    """

    job: Job
    expected_version: int
    cluster: str | None = None
    handle: str | None = None
    native_id: str | None = None
    cursor: str | None = None
    spec: JobSpec | None = None
    account: bytes | None = None
    """The rows for listings of the history; None removes them."""
    timeline: tuple[TimelineEntry, ...] = ()
    outbox_add: tuple[OutboxRow, ...] = ()
    outbox_done: tuple[str, ...] = ()


def join_changes(first: Change, second: Change) -> Change:
    """Join two changes of a job, of which the first was not written."""
    added = {row.token for row in first.outbox_add}
    done = tuple(token for token in second.outbox_done if token not in added)
    kept = tuple(row for row in first.outbox_add if row.token not in second.outbox_done)
    return replace(
        second,
        expected_version=first.expected_version,
        cluster=first.cluster if second.cluster is None else second.cluster,
        handle=first.handle if second.handle is None else second.handle,
        native_id=first.native_id if second.native_id is None else second.native_id,
        cursor=first.cursor if second.cursor is None else second.cursor,
        spec=first.spec if second.spec is None else second.spec,
        timeline=(*first.timeline, *second.timeline),
        outbox_add=(*kept, *second.outbox_add),
        outbox_done=(*first.outbox_done, *done),
    )


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A filter of jobs: all fields have to match; an empty field matches any.

    `since` and `until` select jobs that existed at some time in [since, until). `over` selects ended (True) or live
    (False) jobs. `limit` keeps the newest. A field takes up to 30,000 values (SQLite's limit of variables).
    """

    ids: tuple[int, ...] = ()
    arrays: tuple[int, ...] = ()
    """Elements of these arrays."""
    users: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    over: bool | None = None
    writes: bool = False
    """Only jobs whose spec may have a folder of an object store that it writes to: a few more may be among them."""
    limit: int | None = None
