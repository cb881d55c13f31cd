"""The queue of a pool with many single jobs, which a daemon finds at its start: memory, time and idle processor."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path

from benchmarks.installation import Installation, find_daemon, processor_seconds, proportional_memory, until
from benchmarks.pools import JOB, make_pool
from benchmarks.rows import Bar, Row

JOBS = 100_000
SETTLE_SECONDS = 5.0
IDLE_SECONDS = 20.0


def pool_queue() -> list[Row]:
    """Jobs of one script behind one that holds the only worker; all but the first are copies in the store."""
    with Installation() as span:
        make_pool(span, "one", 1)
        with span.client() as client:
            client.submit(JOB.format(pool="one", run="sleep 3000"))
            waiting = client.submit(JOB.format(pool="one", run="true")).id
        span.run("shutdown")
        _copy(span.folder / "state" / "overspan.db", waiting, JOBS)
        begun = time.monotonic()
        until(lambda: "pid" in span.run("ping", "--json"), 200)
        rows = [Row(f"a daemon starts with {JOBS:,} waiting jobs of a pool", time.monotonic() - begun, None, "s")]
        daemon = find_daemon(span)
        time.sleep(SETTLE_SECONDS)
        rows.append(Row("the daemon then: memory (PSS)", proportional_memory([daemon]), Bar(size=200), "MB"))
        begun = time.monotonic()
        assert span.run("squeue", "--noheader", "-M", "one").count("\n") == JOBS + 1
        rows.append(Row("the first `squeue` of them all", time.monotonic() - begun, None, "s"))
        time.sleep(SETTLE_SECONDS)
        rows.append(Row("the daemon after it: memory (PSS)", proportional_memory([daemon]), None, "MB"))
        before = processor_seconds([daemon])
        time.sleep(IDLE_SECONDS)
        used = (processor_seconds([daemon]) - before) / IDLE_SECONDS * 100
        rows.append(Row("the daemon then: processor", used, Bar(starts=14), "% of a core"))
        # To cancel them all would take longer than the rest.
        span.abandoned = True
        for process in span.processes():
            os.kill(process, signal.SIGKILL)
    return rows


def _copy(database: Path, first: int, count: int) -> None:
    """Copy a waiting job of a store that nobody has open until there are so many."""
    with sqlite3.connect(database) as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(job)")]
        job = dict(zip(names, connection.execute("SELECT * FROM job WHERE id = ?", (first,)).fetchone(), strict=True))
        (document,) = connection.execute("SELECT document FROM spec WHERE job_id = ?", (first,)).fetchone()
        numbers = range(first + 1, first + count)
        marks = ", ".join("?" * len(names))
        rows = (tuple({**job, **_renumber(job, first, number)}.values()) for number in numbers)
        connection.executemany(f"INSERT INTO job ({', '.join(names)}) VALUES ({marks})", rows)
        copies = ((number, document) for number in numbers)
        connection.executemany("INSERT INTO spec (job_id, document) VALUES (?, ?)", copies)
    connection.close()


def _renumber(job: dict[str, object], first: int, number: int) -> dict[str, object]:
    named = {key: str(job[key]).replace(f"{first}.", f"{number}.") for key in ("handle", "native_id")}
    return {**named, "id": number, "submitted_at": float(str(job["submitted_at"])) + (number - first) / 1000}
