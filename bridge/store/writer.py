"""Group commit: one thread owns the database, and writes all waiting requests in one transaction.

A request is answered after the commit. One that fails by its own fault is rolled back alone (savepoint); if the
database fails, the whole group is refused and nothing of it is written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any

from sqlalchemy import Connection

from overspan.bridge.model.errors import OverspanError, StoreFailed
from overspan.bridge.store import statements
from overspan.bridge.store.connection import DatabaseTarget, Session, connect
from overspan.bridge.store.requests import Call, StoreRequest
from overspan.bridge.store.rows import RowBatch, merge
from overspan.bridge.store.sqlite_errors import is_fatal, translate

GROUP = 512
"""Requests in one transaction at most, so that the first one does not wait long."""


class Writer:
    """The thread and its queue. `start` returns when the database is open, `stop` when everything is written."""

    def __init__(self, target: DatabaseTarget) -> None:
        self.target = target
        self.last_seq = 0
        self.trouble: OverspanError | None = None
        self._queue: SimpleQueue[StoreRequest | None] = SimpleQueue()
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._ids = threading.Lock()
        self._gate = threading.Lock()
        self._next_id = self._recorded_id = 1
        self._closed = False

    def start(self) -> None:
        """Open the database. Raises the errors of `connect`, translated."""
        self._thread.start()
        self._opened.result()

    def stop(self) -> None:
        """Write all queued requests, close the database and end the thread; a second call does nothing."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def put(self, request: StoreRequest) -> None:
        """Queue a request. Raises StoreFailed if the store is closed."""
        with self._gate:
            if self._closed:
                raise StoreFailed("the store is closed", remedy="the daemon is ending; ask again")
            self._queue.put(request)

    def draw_ids(self, count: int) -> int:
        """The first of `count` ids that were never used; recorded with the next transaction."""
        with self._ids:
            first = self._next_id
            self._next_id += count
            return first

    def reserve_ids(self, end: int) -> bool:
        """Use no new id below `end` any more; returns whether there was an unused one."""
        with self._ids:
            before, self._next_id = self._next_id, max(self._next_id, end)
            return before < end

    def _run(self) -> None:
        try:
            session = connect(self.target)
        except BaseException as error:
            self._closed = True
            self._opened.set_exception(translate(error, self.target.path))
            return
        self._next_id = self._recorded_id = session.next_id
        self.last_seq = session.last_seq
        self._opened.set_result(None)
        ending = False
        while not ending:
            requests, ending = self._take()
            writes = [request for request in requests if not request.reads]
            if writes:
                self._commit(session, writes)
                _deliver(writes)
            reads = [request for request in requests if request.reads]
            for request in reads:
                self._read(session, request)
            _deliver(reads)
        session.close()

    def _take(self) -> tuple[list[StoreRequest], bool]:
        requests: list[StoreRequest] = []
        request = self._queue.get()
        while request is not None:
            requests.append(request)
            if len(requests) == GROUP:
                return requests, False
            try:
                request = self._queue.get_nowait()
            except Empty:
                return requests, False
        return requests, True

    def _read(self, session: Session, request: StoreRequest) -> None:
        assert request.call is not None
        try:
            request.result = request.call(session.connection)
        except Exception as error:
            request.error = translate(error, session.place)

    def _commit(self, session: Session, requests: Sequence[StoreRequest]) -> None:
        with self._ids:
            next_id = self._next_id
        try:
            session.begin()
            session.check_epoch()
            if next_id > self._recorded_id:
                statements.set_meta(session.connection, "next_id", str(next_id))
            for plain, run in groupby(requests, key=lambda request: request.call is None):
                if plain:
                    _write_rows(session, list(run))
                else:
                    _make_calls(session, run)
            last_seq = statements.highest_seq(session.connection)
            session.commit()
        except Exception as error:
            self._refuse(session, requests, error)
        else:
            self._recorded_id, self.last_seq, self.trouble = next_id, last_seq, None

    def _refuse(self, session: Session, requests: Sequence[StoreRequest], error: Exception) -> None:
        self.trouble = translate(error, session.place)
        for request in requests:
            request.error = translate(error, session.place)
        try:
            session.rollback()
        except Exception as second:
            self.trouble = translate(second, session.place)


class _RowFailed(Exception):
    """One request failed by its own fault; its savepoint was rolled back."""

    def __init__(self, error: OverspanError) -> None:
        super().__init__(error.message)
        self.error = error


def _write_rows(session: Session, requests: list[StoreRequest]) -> None:
    """Write all requests at once, or one by one if that fails or if their order matters."""
    joined = merge(batch for request in requests for batch in request.batches)
    if joined is not None:
        try:
            written = _attempt(session, partial(_write_batch, joined))
        except _RowFailed:
            written = False
        if written:
            for request in requests:
                request.result = [True] * len(request.batches)
            return
    _make_calls(session, requests)


def _make_calls(session: Session, requests: Iterable[StoreRequest]) -> None:
    for request in requests:
        try:
            request.result = _attempt(session, request.call or partial(_write_batches, session, request.batches))
        except _RowFailed as failed:
            request.error = failed.error


def _write_batches(session: Session, batches: Sequence[RowBatch], connection: Connection) -> list[bool]:
    return [_attempt(session, partial(_write_batch, batch)) for batch in batches]


def _write_batch(batch: RowBatch, connection: Connection) -> bool:
    return statements.write(connection, batch)


def _attempt(session: Session, call: Call) -> Any:
    """Run a call in a savepoint, which is rolled back on failure or False. Fatal errors end the transaction."""
    session.execute("SAVEPOINT unit")
    try:
        result = call(session.connection)
    except Exception as error:
        # SQLite ends the transaction itself on some errors; further writes would then run without one.
        if is_fatal(error) or not session.raw.in_transaction:
            raise
        _roll_back(session)
        if isinstance(error, _RowFailed):
            raise
        raise _RowFailed(translate(error, session.place)) from error
    if result is False:
        _roll_back(session)
    else:
        session.execute("RELEASE unit")
    return result


def _roll_back(session: Session) -> None:
    session.execute("ROLLBACK TO unit")
    session.execute("RELEASE unit")


def _deliver(requests: Sequence[StoreRequest]) -> None:
    """Wake each event loop once for all of its requests."""
    by_loop: dict[asyncio.AbstractEventLoop, list[StoreRequest]] = {}
    for request in requests:
        by_loop.setdefault(request.loop, []).append(request)
    for loop, own in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, own)
        except RuntimeError:
            pass  # The loop is closed, so the waiter is gone.


def _resolve(requests: Sequence[StoreRequest]) -> None:
    for request in requests:
        if request.answer.done():
            continue
        if request.error is not None:
            request.answer.set_exception(request.error)
        else:
            request.answer.set_result(request.result)
