"""Measures a daemon that starts again with 10,000 jobs in the local queue: until it answers, and until it is quiet."""

from __future__ import annotations

import os
import signal
import time

from benchmarks.installation import Installation, find_daemon, processor_seconds, submit_held, until
from benchmarks.rows import Bar, Row

WAITING = 10_000
CONFIG = "clusters:\n  local: {kind: local, cpus: 1, memory: 4T}\n"
_REASONS = "squeue", "--noheader", "-t", "PD", "-o", "%r"


def restart() -> list[Row]:
    """The daemon is killed; the next command starts another one."""
    with Installation(CONFIG) as span:
        span.run("sbatch", "--wrap", "sleep 600")
        submit_held(span, WAITING, hold=False)
        until(lambda: _count_queued(span) == WAITING, 300)
        entries = sum(len(folders) + len(files) for _, folders, files in os.walk(span.folder / "state" / "clusters"))
        os.kill(find_daemon(span), signal.SIGKILL)
        begun = time.perf_counter()
        span.run("ping")
        answered = time.perf_counter() - begun
        pid = find_daemon(span)
        used = processor_seconds([pid])
        time.sleep(5)
        settled = processor_seconds([pid])
        assert _count_queued(span) == WAITING
        return [
            Row("the next daemon's first answer, 10,000 jobs waiting", answered, Bar(starts=200), "s"),
            Row("its processor until then", used, None, "s"),
            Row("its processor in its first 5 s", settled, None, "s"),
            Row(
                "files and folders of the local cluster, 10,000 jobs waiting", float(entries), Bar(size=100), "entries"
            ),
        ]


def _count_queued(span: Installation) -> int:
    """Jobs that wait in the cluster's queue, as it says."""
    return sum(line.strip() in ("Priority", "Resources") for line in span.run(*_REASONS).splitlines())
