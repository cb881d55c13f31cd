"""Pools on this machine: how soon an idle worker starts a job, the next one after one has ended, and what many cost."""

from __future__ import annotations

import json
import statistics
import threading
import time
from pathlib import Path

from benchmarks.installation import Installation, processor_seconds, until
from benchmarks.rows import Bar, Row
from overspan import Client

POOL = "pool: {{workers: {workers}}}\nresources: {{cpus: 1}}\n"
JOB = "#!/bin/sh\n#SBATCH --pool={pool} -o /dev/null\n{run}\n"
RUNS = 15
SHORT_JOBS = 200
WAITING = 1000
IDLE_SECONDS = 20.0


def pools() -> list[Row]:
    """A pool of one worker and one of two."""
    with Installation() as span, span.client() as client:
        _make(span, "one", 1)
        _make(span, "two", 2)
        rows = [*_time_starts(span, client), *_time_throughput(client), *_time_waiting(span, client)]
        for name in ("one", "two"):
            span.run("pool", "delete", name, "--cancel")
        until(lambda: not span.run("pool", "ls", "--json").count('"name"'), 60)
    return rows


def _make(span: Installation, name: str, workers: int) -> None:
    file = span.folder / f"{name}.yaml"
    file.write_text(POOL.format(workers=workers))
    span.run("pool", "apply", "-p", name, str(file))
    until(lambda: json.loads(span.run("pool", "show", name, "--json"))["pools"][0]["state"] == "READY", 60)


def _time_starts(span: Installation, client: Client) -> list[Row]:
    starts, turns = [], []
    clock = "date +%s.%N"
    for number in range(RUNS):
        begun = Path(span.folder, f"begun{number}")
        at = time.time()
        client.submit(JOB.format(pool="one", run=f"{clock} > {begun}")).wait(60)
        starts.append((float(begun.read_text()) - at) * 1000)
        first, second = Path(span.folder, f"first{number}"), Path(span.folder, f"second{number}")
        client.submit(JOB.format(pool="one", run=f"sleep 0.5; {clock} > {first}"))
        client.submit(JOB.format(pool="one", run=f"{clock} > {second}")).wait(60)
        turns.append((float(second.read_text()) - float(first.read_text())) * 1000)
    return [
        Row("a pool's idle worker starts a job, from its submission", statistics.median(starts), Bar(starts=5), "ms"),
        Row("a pool's next job starts, from the end of the one before", statistics.median(turns), Bar(starts=5), "ms"),
    ]


def _time_throughput(client: Client) -> list[Row]:
    begun = time.perf_counter()
    text = JOB.format(pool="two", run="true").replace("-o", f"-a 1-{SHORT_JOBS} -o")
    client.submit(text).wait(300)
    rate = SHORT_JOBS / (time.perf_counter() - begun)
    return [Row("short jobs through two workers of a pool", rate, Bar(per_start=2), "/s", at_least=True)]


def _submit(span: Installation, count: int) -> None:
    with span.client() as client:
        for _ in range(count):
            client.submit(JOB.format(pool="one", run="true"))


def _time_waiting(span: Installation, client: Client) -> list[Row]:
    """The daemon's processor while many jobs wait for a worker that is busy."""
    client.submit(JOB.format(pool="one", run="sleep 600"))
    shares = [threading.Thread(target=_submit, args=(span, WAITING // 8)) for _ in range(8)]
    for share in shares:
        share.start()
    for share in shares:
        share.join()
    (daemon,) = [int(json.loads(span.run("ping", "--json"))["pid"])]
    time.sleep(2)
    before = processor_seconds([daemon])
    time.sleep(IDLE_SECONDS)
    used = (processor_seconds([daemon]) - before) / IDLE_SECONDS * 100
    return [Row("1,000 jobs that wait in a pool: the daemon's processor", used, Bar(starts=20), "% of a core")]
