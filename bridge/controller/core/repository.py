"""The repository: what the controller asks of the store. `store.store.Store` implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from overspan.bridge.model.errors import OverspanError
from overspan.bridge.store.evaluation_records import EvaluationTally, JobLabel, StoredEvaluation, StoredWatch
from overspan.bridge.store.pool_records import StoredPool
from overspan.bridge.store.records import (
    Change,
    Damage,
    HistoryRows,
    JobQuery,
    NewJob,
    OutboxRow,
    Receipt,
    StoredJob,
    TimelineRow,
)
from overspan.bridge.store.schedule_records import Crontab, StoredSchedule


class ScheduleRepository(Protocol):
    """The store's port for schedules and crontabs."""

    async def load(self) -> list[StoredSchedule]:
        """Every schedule, by id."""

    async def add(self, new: StoredSchedule, receipt: Receipt | None = None) -> int:
        """Write a new schedule and its receipt; its id."""

    async def change(self, changed: StoredSchedule) -> bool:
        """Write a schedule's next facts; False when the stored version is not the one before."""

    async def remove(self, schedule_id: int) -> bool:
        """Delete a schedule; False when there was none."""

    async def read_crontab(self, user: str) -> str | None:
        """The text of a user's crontab."""

    async def replace_crontab(self, new: Crontab) -> list[int]:
        """Write a crontab and its entries in place of the user's former one; the entries' ids."""


class EvaluationRepository(Protocol):
    """The store's port for watches and evaluations."""

    async def keep_watch(self, new: StoredWatch) -> int:
        """Write a watch unless its job has one of that name; the id of the one that there is."""

    async def change_watch(self, changed: StoredWatch) -> None:
        """Write what is known of a watch."""

    async def find_watches(self, jobs: Sequence[int] | None = None, ids: Sequence[int] = ()) -> list[StoredWatch]:
        """The watches of jobs, or of these ids; with None all that are open."""

    async def find_newest_watches(self, limit: int, user: str = "", jobs: Sequence[int] = ()) -> list[StoredWatch]:
        """The newest watches and all open ones, oldest first; with a user the own ones, and those of these jobs."""

    async def count_ended(self, watches: Sequence[int]) -> list[EvaluationTally]:
        """The evaluations of watches that are over, counted by state."""

    async def label_jobs(self, jobs: Sequence[int]) -> dict[int, JobLabel]:
        """Name and state of jobs, by id."""

    async def keep(self, new: StoredEvaluation) -> int:
        """Write an evaluation; its id, or 0 where this checkpoint, content and run has one."""

    async def change(self, changed: StoredEvaluation) -> None:
        """Write what is known of an evaluation."""

    async def find(self, watches: Sequence[int], live_only: bool = False) -> list[StoredEvaluation]:
        """The evaluations of watches, oldest first; with `live_only` those that are not over."""

    async def list_names(self, watch_id: int) -> list[tuple[str, str]]:
        """Checkpoint and content of all evaluations of a watch."""

    async def forget(self) -> int:
        """Delete the closed watches of jobs that were dropped; how many."""


class PoolRepository(Protocol):
    """The store's port for pools."""

    async def load(self) -> list[StoredPool]:
        """Every pool, by name."""

    async def keep(self, kept: StoredPool) -> bool:
        """Write a pool, new (version 1) or changed; False when the stored version is not the one before."""

    async def remove(self, name: str) -> None:
        """Delete a pool."""


class Repository(Protocol):
    """The store's port, with those of what is beside jobs. Every write raises StoreFailed when nothing was written."""

    @property
    def damages(self) -> Sequence[Damage]:
        """The rows that could not be read; they are left as they are."""

    async def load_live(self) -> list[StoredJob]:
        """Every job that is not over."""

    async def next_ids(self, count: int) -> int:
        """Reserve `count` consecutive ids; the first of them."""

    async def reserve_ids(self, end: int) -> bool:
        """Never give an id below `end` again; whether any of them was still free."""

    async def insert(
        self, jobs: Sequence[NewJob], schedule: StoredSchedule | None = None, receipt: Receipt | None = None
    ) -> None:
        """Write new jobs with all that starts them, the schedule they are a run of, the receipt, in one transaction.

        Conflict when the schedule's version is not the one before.
        """

    async def find_receipt(self, token: str, user: str) -> Receipt | None:
        """What was made of a user's submission; None if nothing was."""

    async def draw(self, elements: Sequence[NewJob], change: Change) -> bool:
        """Write an array's new elements and the array without them, all or none; False for another version."""

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        """Write changes in one transaction; False for one whose expected version was not there."""

    async def outbox(self, cluster: str | None = None) -> list[OutboxRow]:
        """The calls that are owed, oldest first."""

    async def defer(self, token: str, next_try_at: float, error: str) -> bool:
        """Count a failed try of a call; False when it is not owed any more."""

    async def settle(self, tokens: Sequence[str]) -> int:
        """Delete calls that were made and changed no job; how many."""

    async def find(self, query: JobQuery) -> list[StoredJob]:
        """Jobs of any age, newest last."""

    async def find_ids(self, query: JobQuery) -> list[int]:
        """The same jobs by id, in the order of listings: an array's elements together, and before it."""

    async def history_rows(self, ids: Sequence[int]) -> list[HistoryRows]:
        """What listings of the history need of these jobs, in their order."""

    async def keep_history_rows(self, accounts: Sequence[tuple[int, int, bytes]]) -> None:
        """Keep what listings say of jobs that are over: (id, version, rows) each, while they have that version."""

    async def timeline(self, job_id: int) -> list[TimelineRow]:
        """The transitions of a job, oldest first."""

    async def events(self, since: int, limit: int) -> list[TimelineRow]:
        """Transitions of all jobs after that seq, oldest first."""

    @property
    def last_seq(self) -> int:
        """The seq of the newest transition; 0 for none."""

    @property
    def trouble(self) -> OverspanError | None:
        """Why the last transaction failed; None when it went well."""

    async def forget(self, before: float) -> int:
        """Drop jobs that ended before that time; how many."""

    async def withdraw(self, job_id: int) -> bool:
        """Delete a job that is over and owes no call, with its receipt; False if it is not such a job."""

    @property
    def schedules(self) -> ScheduleRepository:
        """Schedules and crontabs."""

    @property
    def evaluations(self) -> EvaluationRepository:
        """Watches and evaluations."""

    @property
    def pools(self) -> PoolRepository:
        """Pools."""

    async def meta(self, key: str) -> str | None:
        """A single value of the daemon's own."""

    async def set_meta(self, key: str, value: str) -> None:
        """Write a single value."""

    def close(self) -> None:
        """Commit what is queued and close the database. Blocks."""
