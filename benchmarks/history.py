"""The history: `sacct` of many jobs that have ended, and what the daemon keeps of having read them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from benchmarks.installation import Installation, proportional_memory, until, whole_process
from benchmarks.rows import Bar, Row
from overspan.bridge.controller.core.history_rows import decode_history_rows, encode_history_rows, read_row
from overspan.bridge.controller.core.packed_rows import encode_row
from overspan.bridge.listings.rows import COLUMNS

JOBS = 20_000


def fill(database: Path, jobs: int) -> None:
    """Copy the one job of a store that nobody has open until there are that many; times and spec are the same."""
    with sqlite3.connect(database) as connection:
        connection.create_function("renumber", 2, _renumber)
        names = [row[1] for row in connection.execute("PRAGMA table_info(job)")]
        other = {"id": "n.value", "handle": "'0:' || n.value || '.0'", "native_id": "n.value || '.0'"}
        other["account"] = "renumber(account, n.value)"
        columns = ", ".join(f'"{name}"' for name in names)
        values = ", ".join(other.get(name, f'"{name}"') for name in names)
        numbers = f"WITH RECURSIVE n(value) AS (VALUES (2) UNION ALL SELECT value + 1 FROM n WHERE value < {jobs})"
        connection.execute(f"{numbers} INSERT INTO job ({columns}) SELECT {values} FROM job, n WHERE id = 1")
        connection.execute(
            f"{numbers} INSERT INTO spec (job_id, document) SELECT n.value, document FROM spec, n WHERE job_id = 1"
        )
    connection.close()


def _renumber(kept: bytes, number: int) -> bytes:
    """The account of the first job as that of another."""
    rows = [read_row(row) for row in decode_history_rows(kept) or ()]
    for row in rows:
        row[COLUMNS.index("id")] = row[COLUMNS.index("raw_id")] = number
    return encode_history_rows(map(encode_row, rows))


def history() -> list[Row]:
    """`sacct` of all jobs, and the daemon's memory after it."""
    with Installation() as span:
        span.run("sbatch", "--wait", "-o", "/dev/null", "--wrap", "true")
        span.run("shutdown")
        fill(span.folder / "state" / "overspan.db", JOBS)
        span.run("ping")
        before = proportional_memory(span.processes())
        listed = whole_process([span.program, "sacct"], span.environment, runs=5)
        short = whole_process([span.program, "sacct", "-X", "-n", "-o", "jobid,state"], span.environment, runs=5)
        until(lambda: len(span.processes()) == 1, 60)
        after = proportional_memory(span.processes())
        return [
            Row(f"`span sacct`, {JOBS:,} ended jobs", listed / 1000, Bar(starts=200), "s"),
            Row(f"`span sacct -X -o jobid,state`, {JOBS:,} ended jobs", short / 1000, Bar(starts=200), "s"),
            Row("the daemon before: memory (PSS)", before, Bar(size=150), "MB"),
            Row("the daemon after: memory (PSS)", after, Bar(size=150), "MB"),
        ]
