"""How many variables a statement has: SQLite before 3.32 allows 999."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from overspan.bridge.model.job import Job
from overspan.bridge.store.records import NewJob
from overspan.bridge.store.store import Store


@pytest.fixture
def few() -> Iterator[None]:
    """Connections with the limit of an old SQLite."""

    def limit(connection: sqlite3.Connection, record: object) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)

    event.listen(Engine, "connect", limit)
    yield
    event.remove(Engine, "connect", limit)


@pytest.mark.usefixtures("few")
def test_more_jobs_than_a_statement_has_variables_are_loaded(
    tmp_path: Path, make_job: Callable[..., Job], start_of: Callable[..., NewJob]
) -> None:
    store = Store.open(tmp_path / "span.db")
    try:
        asyncio.run(store.insert([start_of(make_job(number)) for number in range(1, 1201)]))
        assert len(asyncio.run(store.load_live())) == 1200
    finally:
        store.close()
