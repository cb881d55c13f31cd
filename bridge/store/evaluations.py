"""Watches and evaluations in the store: rows, statements, and the port that the controller uses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, delete, func, insert, or_, select, update

from overspan.bridge.model.documents import decode, encode
from overspan.bridge.store.evaluation_records import (
    EvaluationFacts,
    EvaluationTally,
    JobLabel,
    StoredEvaluation,
    StoredWatch,
    WatchFacts,
)
from overspan.bridge.store.records import Damage
from overspan.bridge.store.requests import StoreRequests
from overspan.bridge.store.rows import read_json
from overspan.bridge.store.sqlite_errors import unreadable
from overspan.bridge.store.tables import evaluation, job, watch

# As in `rows`: escapes non-ASCII, so that undecodable bytes survive.
_write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def keep_watch(connection: Connection, new: StoredWatch) -> int:
    """Insert a watch, or find the one that its job has under this name; its id."""
    chosen = select(watch.c.id).where(watch.c.job_id == new.job_id, watch.c.name == new.name)
    known = connection.scalar(chosen)
    if known is not None:
        return int(known)
    key = connection.execute(insert(watch), _watch_values(new)).inserted_primary_key
    assert key is not None
    return int(key[0])


def change_watch(connection: Connection, changed: StoredWatch) -> int:
    """Write what is known of a watch."""
    statement = update(watch).where(watch.c.id == changed.id).values(**_watch_values(changed))
    return connection.execute(statement).rowcount


def read_watches(
    connection: Connection, jobs: Sequence[int] | None, ids: Sequence[int]
) -> tuple[list[StoredWatch], list[Damage]]:
    """The watches of jobs, or of these ids; with None all that are open."""
    statement = select(watch).order_by(watch.c.id)
    if ids:
        statement = statement.where(watch.c.id.in_(ids))
    elif jobs is None:
        statement = statement.where(watch.c.closed.is_(False))
    else:
        statement = statement.where(watch.c.job_id.in_(jobs))
    return _read_watches(connection, statement)


def read_newest_watches(
    connection: Connection, limit: int, user: str, jobs: Sequence[int]
) -> tuple[list[StoredWatch], list[Damage]]:
    """The newest watches and all open ones, oldest first; with a user the own ones, and those of these jobs."""
    fits = or_(watch.c.user == user, watch.c.job_id.in_(jobs)) if user else watch.c.id > 0
    newest = select(watch.c.id).where(fits).order_by(watch.c.id.desc()).limit(limit)
    chosen = or_(watch.c.id.in_(newest), watch.c.closed.is_(False))
    return _read_watches(connection, select(watch).where(fits, chosen).order_by(watch.c.id))


def _read_watches(connection: Connection, statement: Select[Any]) -> tuple[list[StoredWatch], list[Damage]]:
    found: list[StoredWatch] = []
    damages: list[Damage] = []
    for row in connection.execute(statement):
        try:
            facts = decode(WatchFacts, read_json(row.facts))
            found.append(StoredWatch(row.id, row.job_id, row.name, row.user, bool(row.closed), facts))
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            damages.append(Damage(unreadable(f"the evaluation {row.name} of job {row.job_id}", error).message))
    return found, damages


def keep_evaluation(connection: Connection, new: StoredEvaluation) -> int:
    """Insert an evaluation; 0 where there is one of that checkpoint, content and run already."""
    same = (
        evaluation.c.watch_id == new.watch_id,
        evaluation.c.checkpoint == new.checkpoint,
        evaluation.c.content == new.content,
        evaluation.c.run == new.run,
    )
    if connection.scalar(select(evaluation.c.id).where(*same)) is not None:
        return 0
    key = connection.execute(insert(evaluation), _evaluation_values(new)).inserted_primary_key
    assert key is not None
    return int(key[0])


def change_evaluation(connection: Connection, changed: StoredEvaluation) -> int:
    """Write what is known of an evaluation."""
    statement = update(evaluation).where(evaluation.c.id == changed.id).values(**_evaluation_values(changed))
    return connection.execute(statement).rowcount


def read_evaluations(
    connection: Connection, watches: Sequence[int], live_only: bool
) -> tuple[list[StoredEvaluation], list[Damage]]:
    """The evaluations of watches, oldest first; with `live_only` those that are not over."""
    statement = select(evaluation).where(evaluation.c.watch_id.in_(watches)).order_by(evaluation.c.id)
    if live_only:
        statement = statement.where(evaluation.c.over.is_(False))
    found: list[StoredEvaluation] = []
    damages: list[Damage] = []
    for row in connection.execute(statement):
        try:
            facts = decode(EvaluationFacts, read_json(row.facts))
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            damages.append(Damage(unreadable(f"the evaluation of {row.checkpoint}", error).message))
            continue
        values = (row.id, row.watch_id, row.checkpoint, row.content, row.run, row.job_id, bool(row.over), facts)
        found.append(StoredEvaluation(*values))
    return found, damages


def read_tallies(connection: Connection, watches: Sequence[int]) -> list[EvaluationTally]:
    """The evaluations of watches that are over, counted by state; SQLite reads the documents, which is much quicker."""
    score, state = _read_fact("score"), func.coalesce(_read_fact("state"), "UNKNOWN")
    bounds = (func.max(score), func.min(score), func.max(_read_fact("ended_at")))
    statement = (
        select(evaluation.c.watch_id, state, func.count(), *bounds)
        .where(evaluation.c.watch_id.in_(watches), evaluation.c.over)
        .group_by(evaluation.c.watch_id, state)
    )
    return [EvaluationTally(*row) for row in connection.execute(statement)]


def _read_fact(name: str) -> ColumnElement[Any]:
    """A member of the facts; null in a damaged document, which would make the statement fail."""
    return case((func.json_valid(evaluation.c.facts) == 1, func.json_extract(evaluation.c.facts, f"$.{name}")))


def read_watched_jobs(connection: Connection, jobs: Sequence[int]) -> dict[int, JobLabel]:
    """Name and state of jobs, by id."""
    statement = select(job.c.id, job.c.name, job.c.state).where(job.c.id.in_(jobs))
    return {int(row.id): JobLabel(str(row.name), str(row.state)) for row in connection.execute(statement)}


def read_names(connection: Connection, watch_id: int) -> list[tuple[str, str]]:
    """Checkpoint and content of all evaluations of a watch, also of those whose facts are damaged."""
    statement = select(evaluation.c.checkpoint, evaluation.c.content).where(evaluation.c.watch_id == watch_id)
    return [(str(name), str(content)) for name, content in connection.execute(statement)]


def forget(connection: Connection) -> int:
    """Delete the closed watches of jobs that were dropped, with their evaluations; how many watches."""
    dropped = select(watch.c.id).where(watch.c.closed, ~select(job.c.id).where(job.c.id == watch.c.job_id).exists())
    ids = list(connection.scalars(dropped))
    connection.execute(delete(evaluation).where(evaluation.c.watch_id.in_(ids)))
    connection.execute(delete(watch).where(watch.c.id.in_(ids)))
    return len(ids)


def _watch_values(one: StoredWatch) -> dict[str, Any]:
    return {
        "job_id": one.job_id,
        "name": one.name,
        "user": one.user,
        "closed": one.closed,
        "facts": _write(encode(one.facts)),
    }


def _evaluation_values(one: StoredEvaluation) -> dict[str, Any]:
    return {
        "watch_id": one.watch_id,
        "checkpoint": one.checkpoint,
        "content": one.content,
        "run": one.run,
        "job_id": one.job_id,
        "over": one.over,
        "facts": _write(encode(one.facts)),
    }


@dataclass(frozen=True)
class EvaluationStore:
    """The store's port for watches and evaluations."""

    requests: StoreRequests

    async def keep_watch(self, new: StoredWatch) -> int:
        """Write a watch unless its job has one of that name; the id of the one that there is."""
        return await self.requests.call(lambda connection: keep_watch(connection, new))

    async def change_watch(self, changed: StoredWatch) -> None:
        """Write what is known of a watch."""
        await self.requests.call(lambda connection: change_watch(connection, changed))

    async def find_watches(self, jobs: Sequence[int] | None = None, ids: Sequence[int] = ()) -> list[StoredWatch]:
        """The watches of jobs, or of these ids; with None all that are open."""
        return await self.requests.read_intact(lambda connection: read_watches(connection, jobs, ids))

    async def find_newest_watches(self, limit: int, user: str = "", jobs: Sequence[int] = ()) -> list[StoredWatch]:
        """The newest watches and all open ones, oldest first; with a user the own ones, and those of these jobs."""
        return await self.requests.read_intact(lambda connection: read_newest_watches(connection, limit, user, jobs))

    async def count_ended(self, watches: Sequence[int]) -> list[EvaluationTally]:
        """The evaluations of watches that are over, counted by state."""
        return await self.requests.read(lambda connection: read_tallies(connection, watches))

    async def label_jobs(self, jobs: Sequence[int]) -> dict[int, JobLabel]:
        """Name and state of jobs, by id."""
        return await self.requests.read(lambda connection: read_watched_jobs(connection, jobs))

    async def keep(self, new: StoredEvaluation) -> int:
        """Write an evaluation; its id, or 0 where this checkpoint, content and run has one."""
        return await self.requests.call(lambda connection: keep_evaluation(connection, new))

    async def change(self, changed: StoredEvaluation) -> None:
        """Write what is known of an evaluation."""
        await self.requests.call(lambda connection: change_evaluation(connection, changed))

    async def find(self, watches: Sequence[int], live_only: bool = False) -> list[StoredEvaluation]:
        """The evaluations of watches, oldest first; with `live_only` those that are not over."""
        return await self.requests.read_intact(lambda connection: read_evaluations(connection, watches, live_only))

    async def list_names(self, watch_id: int) -> list[tuple[str, str]]:
        """Checkpoint and content of all evaluations of a watch."""
        return await self.requests.read(lambda connection: read_names(connection, watch_id))

    async def forget(self) -> int:
        """Delete the closed watches of jobs that were dropped; how many."""
        return await self.requests.call(forget)
