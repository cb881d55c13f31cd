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

    Of a job's row or a call's: the job, with what its other columns say; 0 and nothing for other rows.
    """

    text: str
    job_id: int = 0
    array_id: int = 0
    cluster: str = ""
    handle: str = ""
    """As it is stored, with the launch's number."""


class TimelineEntry(Protocol):
    """What the lifecycle says about one move; `lifecycle.timeline.Transition` has this shape."""

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
    """One transition as it is stored; `seq` only grows and is its position in the event stream."""

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
    """A call that is owed to a cluster; `token` is unique and finds the call's own earlier effect."""

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
    """What was made of a submission, a job or a schedule (the other is 0), by the token that its sender drew."""

    token: str
    user: str
    at: float
    job_id: int = 0
    schedule_id: int = 0


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job with what only the daemon needs of it: where it is and how far its news was read."""

    job: Job
    cluster: str
    handle: str
    native_id: str
    cursor: str
    user: str


class HistoryRows(NamedTuple):
    """A job as listings of the history need it: `rows` is what the change that ended it left; None for none."""

    id: int
    array_id: int | None
    cluster: str
    handle: str
    rows: bytes | None


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to insert with all that starts it; `user` empty takes the one in the spec's origin."""

    job: Job
    cluster: str
    user: str = ""
    outbox: tuple[OutboxRow, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """New facts of a job, written only while the stored version is `expected_version`.

    `job.version` is the version to be written and must differ from the expected one. None leaves a column as it is.
    The user and the name are not written again; the spec only where one is given.
    """

    job: Job
    expected_version: int
    cluster: str | None = None
    handle: str | None = None
    native_id: str | None = None
    cursor: str | None = None
    spec: JobSpec | None = None
    account: bytes | None = None
    """What listings of the history are to say of it; None takes away what they said."""
    timeline: tuple[TimelineEntry, ...] = ()
    outbox_add: tuple[OutboxRow, ...] = ()
    outbox_done: tuple[str, ...] = ()


def join_changes(first: Change, second: Change) -> Change:
    """Two changes of a job as one, where nothing of the first was written."""
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
    """Which jobs: every given field must fit; empty means any.

    The window takes jobs that existed at some time in [since, until). `over` picks ended (True) or live (False) jobs.
    `limit` keeps the newest. A field takes up to 30,000 values (SQLite's limit of variables).
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
    limit: int | None = None
