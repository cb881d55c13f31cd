"""Pools on this machine: how soon an idle worker starts a job, the next one after one has ended, and what many cost."""

from __future__ import annotations

import json
import statistics
import threading
import time
from pathlib import Path

from benchmarks.hyperqueue import HyperQueueTimes, time_hyperqueue
from benchmarks.installation import Installation, find_daemon, processor_seconds, proportional_memory, until
from benchmarks.rows import Bar, Row
from overspan import Client

POOL = "pool: {{workers: {workers}}}\nresources: {{cpus: {cpus}}}\n"
JOB = "#!/bin/sh\n#SBATCH --pool={pool} -o /dev/null\n{run}\n"
RUNS = 15
SHORT_JOBS = 800
AT_ONCE = 4
"""Jobs that a worker has at once."""
WAITING = 1000
ELEMENTS = 100_000
IDLE_SECONDS = 20.0


def pools() -> list[Row]:
    """A pool of one worker and one of two."""
    with Installation() as span, span.client() as client:
        make_pool(span, "one", 1)
        make_pool(span, "two", 2, AT_ONCE)
        beside = time_hyperqueue(SHORT_JOBS, AT_ONCE, RUNS)
        rows = [*_time_starts(span, client), *_time_throughput(span, client)]
        rows += [*_compare(rows, beside), *_time_waiting(span, client)]
        for name in ("one", "two"):
            span.run("pool", "delete", name, "--cancel")
        until(lambda: not span.run("pool", "ls", "--json").count('"name"'), 60)
    return rows


def make_pool(span: Installation, name: str, workers: int, cpus: int = 1) -> None:
    file = span.folder / f"{name}.yaml"
    file.write_text(POOL.format(workers=workers, cpus=cpus))
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


def _time_throughput(span: Installation, client: Client) -> list[Row]:
    """Short jobs through two workers, and what one costs."""
    daemon, workers = find_daemon(span), _find_workers(span)
    before, begun = (processor_seconds([daemon]), processor_seconds(workers)), time.perf_counter()
    text = JOB.format(pool="two", run="true").replace("-o", f"-a 1-{SHORT_JOBS} -o")
    client.submit(text).wait(300)
    rate = SHORT_JOBS / (time.perf_counter() - begun)
    used = processor_seconds([daemon]) - before[0], processor_seconds(workers) - before[1]
    daemon_ms, worker_ms = (each * 1000 / SHORT_JOBS for each in used)
    return [
        Row("short jobs through two workers of a pool", rate, Bar(per_start=2), "/s", at_least=True),
        Row("a short job of a pool: the daemon's processor", daemon_ms, Bar(starts=0.5), "ms"),
        Row("a short job of a pool: its worker's processor", worker_ms, Bar(starts=0.3), "ms"),
    ]


def _compare(rows: list[Row], beside: HyperQueueTimes | None) -> list[Row]:
    """What HyperQueue's workers took for the same in the same minutes, and pools beside that."""
    if beside is None:
        return []
    first, following, rate = (row.value for row in rows[:3])
    return [
        Row("HyperQueue's idle worker starts a job, from its submission", beside.first, None, "ms"),
        Row("its next job starts, from the end of the one before", beside.following, None, "ms"),
        Row("short jobs through two of its workers", beside.rate, None, "/s"),
        Row("a pool's start beside that", first / beside.first, None, "times"),
        Row("a pool's next start beside that", following / beside.following, None, "times"),
        Row("a pool's rate beside that", rate / beside.rate, Bar(size=0.33), "times", at_least=True),
    ]


def _find_workers(span: Installation) -> list[int]:
    return [pid for pid in span.processes() if Path(f"/proc/{pid}/comm").read_text().strip() == "span-worker"]


def _submit(span: Installation, count: int) -> None:
    with span.client() as client:
        for _ in range(count):
            client.submit(JOB.format(pool="one", run="true"))


def _time_waiting(span: Installation, client: Client) -> list[Row]:
    """The daemon's processor while many jobs wait for a worker that is busy."""
    client.submit(JOB.format(pool="one", run="sleep 600"))
    empty = proportional_memory([find_daemon(span)])
    shares = [threading.Thread(target=_submit, args=(span, WAITING // 8)) for _ in range(8)]
    for share in shares:
        share.start()
    for share in shares:
        share.join()
    few, one = _watch_idle(span), (proportional_memory([find_daemon(span)]) - empty) / WAITING * 1024
    text = JOB.format(pool="one", run="true").replace("-o", f"-a 1-{ELEMENTS} -o")
    client.submit(text)
    many, memory = _watch_idle(span), proportional_memory([find_daemon(span)])
    return [
        Row("1,000 jobs that wait in a pool: the daemon's processor", few, Bar(starts=20), "% of a core"),
        Row("a job that waits in a pool: the daemon's memory (PSS)", one, Bar(size=4), "KB"),
        Row("and 100,000 elements of an array: the daemon's processor", many, Bar(starts=14), "% of a core"),
        Row("and 100,000 elements of an array: the daemon's memory (PSS)", memory, Bar(size=200), "MB"),
    ]


def _watch_idle(span: Installation) -> float:
    """The share of a core that the daemon takes while nothing happens, per cent."""
    daemon = find_daemon(span)
    time.sleep(2)
    before = processor_seconds([daemon])
    time.sleep(IDLE_SECONDS)
    return (processor_seconds([daemon]) - before) / IDLE_SECONDS * 100
