"""Measures every bar, of Slurm too where the rig runs, and prints a Markdown table; words choose cases.

Bars are ratios to what the machine takes for bare things in the same run, before and after each case.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.across import across
from benchmarks.arrays import arrays, mixed, throttle
from benchmarks.checkpoints import checkpoints
from benchmarks.data import data, mounts, small_files, transfers
from benchmarks.history import history
from benchmarks.installation import (
    Installation,
    processor_seconds,
    proportional_memory,
    submit_held,
    until,
    whole_process,
)
from benchmarks.kubernetes import kubernetes, kubernetes_scale
from benchmarks.pool_mailboxes import pool_mailboxes
from benchmarks.pool_queue import pool_queue
from benchmarks.pools import pools
from benchmarks.references import measure, slower
from benchmarks.restart import restart
from benchmarks.rows import Bar, Reference, Row
from benchmarks.slurm import slurm
from benchmarks.top import top, top_many, top_running
from overspan.adapters.local.supervisors.forkserver import ForkServer
from overspan.bridge.runtime.zip_application import build_archive


def start_up() -> list[Row]:
    """The bare interpreter for comparison, help, and a durable submission."""
    with Installation() as span:
        bare = whole_process([sys.executable, "-c", "pass"], span.environment)
        help_ = whole_process([span.program, "--help"], span.environment)
        words = [span.program, "sbatch", "--hold", "--wrap", "true"]
        sbatch = whole_process(words, span.environment)
        return [
            Row("bare interpreter, for comparison", bare, None, "ms"),
            Row("`span --help`", help_, Bar(starts=6), "ms"),
            Row("`span sbatch`, answered and durable", sbatch, Bar(starts=7, commits=5), "ms"),
        ]


def supervisor() -> list[Row]:
    """A supervisor with nothing to do, from its start to its end: as a process of its own, and forked."""
    with tempfile.TemporaryDirectory() as root:
        folder = f"{root}/hosts/h"
        os.makedirs(folder)
        archive = build_archive(f"{root}/cache")
        alone = whole_process([sys.executable, "-I", "-S", archive, folder], dict(os.environ))
        server = ForkServer(root, sys.executable)
        times = []
        for _ in range(16):
            begun = time.perf_counter()
            with server.fork(folder).status_socket as line:
                line.setblocking(True)
                while line.recv(128):
                    pass
            times.append((time.perf_counter() - begun) * 1000)
        server.close()
        return [
            Row("start of the supervisor's zip application", alone, Bar(starts=3), "ms"),
            Row(
                "start of a supervisor by the fork server", statistics.median(times[1:]), Bar(starts=2, forks=10), "ms"
            ),
        ]


def queue() -> list[Row]:
    """`span squeue` of 1,000 and 10,000 waiting jobs, and the rate of submissions that made them."""
    rows = []
    with Installation() as span:
        begun = time.perf_counter()
        submit_held(span, 1000)
        rate = 1000 / (time.perf_counter() - begun)
        rows.append(Row("submissions through the API, 8 connections", rate, Bar(per_start=3), "/s", at_least=True))
        rows.append(
            Row(
                "`span squeue`, 1,000 jobs",
                whole_process([span.program, "squeue"], span.environment),
                Bar(starts=6),
                "ms",
            )
        )
        submit_held(span, 9000)
        rows.append(
            Row(
                "`span squeue`, 10,000 jobs",
                whole_process([span.program, "squeue"], span.environment),
                Bar(starts=8),
                "ms",
            )
        )
        begun = time.perf_counter()
        span.run("scancel", "--me", "-t", "PENDING")
        rows.append(Row("cancel of 10,000 waiting jobs", time.perf_counter() - begun, Bar(starts=5000), "s"))
    return rows


GROUP = """
name: g{number}
execution: parallel
primary_tasks: [trainer]
---
name: trainer
resources: {{cpus: 0.1}}
run: {run}
---
name: server
resources: {{cpus: 0.1}}
run: |
  trap 'date +%s.%N > {folder}/term; exit 0' TERM
  touch {folder}/up
  while :; do sleep 0.01; done
"""


def endings() -> list[Row]:
    """From the end of a primary to its auxiliary's TERM, and from a process's end to its state in the store."""
    terms, stores = [], []
    with Installation() as span, span.client() as client:
        for number in range(7):
            with tempfile.TemporaryDirectory() as folder:
                run = f"while [ ! -e {folder}/up ]; do sleep 0.01; done; date +%s.%N > {folder}/done"
                job = client.submit(GROUP.format(number=number, run=run, folder=folder))
                job.wait(60)
                done, term = (float(Path(folder, name).read_text()) for name in ("done", "term"))
                terms.append((term - done) * 1000)
        for _ in range(15):
            job = client.submit({"name": "one", "run": "date +%s.%N", "resources": {"cpus": 0.1}})
            job.wait(60)
            seen = time.time()
            printed = span.run("logs", str(job.id)).split()
            stores.append((seen - float(printed[-1])) * 1000)
    return [
        Row("primary's end to the auxiliary's TERM", statistics.median(terms), Bar(starts=5), "ms"),
        Row(
            "a process's end to its state in the store, as a client sees it",
            statistics.median(stores),
            Bar(starts=5),
            "ms",
        ),
    ]


ENDED = 1000


def disk() -> list[Row]:
    """What ended jobs leave in the state folder, the database among it."""
    with Installation() as span, span.client() as client:
        span.run("sbatch", "--wait", "--wrap", "true")  # brings the zip application
        before = _measure_folder(span.folder / "state")
        jobs = [client.submit({"name": "one", "run": "true"}) for _ in range(ENDED)]
        for job in jobs:
            job.wait(120)
        until(lambda: _measure_folder(span.folder / "state")[0] - before[0] <= 2.1 * ENDED, 120)
        entries, size = _measure_folder(span.folder / "state")
        return [
            Row("an ended job: files and folders", (entries - before[0]) / ENDED, Bar(size=2.1), "entries"),
            Row("an ended job: disk", (size - before[1]) / ENDED / 1024, Bar(size=15), "KB"),
        ]


def _measure_folder(root: Path) -> tuple[int, int]:
    """Entries, and bytes of files."""
    entries = size = 0
    for folder, folders, files in os.walk(root):
        entries += len(folders) + len(files)
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                size += os.lstat(os.path.join(folder, name)).st_size
    return entries, size


def idle() -> list[Row]:
    """The whole process tree with nothing to do."""
    with Installation() as span:
        span.run("sbatch", "--wait", "--wrap", "true")
        until(lambda: len(span.processes()) == 1, 60)
        pids = span.processes()
        before = processor_seconds(pids)
        time.sleep(20)
        used = (processor_seconds(pids) - before) / 20 * 100
        return [
            Row("idle: memory (PSS)", proportional_memory(pids), Bar(size=100), "MB"),
            Row("idle: processor", used, Bar(starts=0.5), "% of a core"),
        ]


_PAIR = (
    "name: g{}\nexecution: parallel\n---\nname: a\nresources: {{cpus: 0.1}}\nrun: sleep 600\n"
    "---\nname: b\nresources: {{cpus: 0.1}}\nrun: sleep 600\n"
)


def groups() -> list[Row]:
    """20 live groups of two tasks: what runs beside the work, without the daemon."""
    with Installation() as span, span.client() as client:
        before = span.processes()
        for number in range(20):
            client.submit(_PAIR.format(number))
        until(lambda: span.run("squeue", "--noheader", "-t", "R").count("\n") == 40, 120)
        memory = proportional_memory([pid for pid in span.processes() if pid not in before])
        return [Row("a live group of two tasks: memory (PSS)", memory / 20, Bar(size=5), "MB")]


def busy() -> list[Row]:
    """300 live single jobs and 20 live groups: daemon, supervisors and shims together."""
    with Installation() as span, span.client() as client:
        for _ in range(300):
            client.submit({"name": "one", "run": "sleep 600", "resources": {"cpus": 0.1}})
        for number in range(20):
            client.submit(_PAIR.format(number))
        until(lambda: span.run("squeue", "--noheader", "-t", "R").count("\n") == 340, 120)
        pids = span.processes()
        before = processor_seconds(pids)
        time.sleep(10)
        used = (processor_seconds(pids) - before) / 10 * 100
        return [
            Row("300 jobs and 20 groups running: memory (PSS)", proportional_memory(pids), Bar(size=400), "MB"),
            Row("300 jobs and 20 groups running: processor", used, Bar(starts=20), "% of a core"),
        ]


def demo() -> list[Row]:
    """The reinforcement-learning group from submission to its end."""
    with Installation() as span:
        span.environment["PYTHON"] = sys.executable
        folder = Path(__file__).resolve().parent.parent / "examples" / "rlhf"
        begun = time.perf_counter()
        job = span.run("submit", "rlhf.yaml", "--parsable", folder=folder).strip()
        span.run("wait", job)
        assert span.show(job)["state"] == "COMPLETED"
        return [Row("the demo's group", time.perf_counter() - begun, Bar(beside=10, starts=3000), "s")]


CASES: dict[str, Callable[[], list[Row]]] = {
    "start_up": start_up,
    "supervisor": supervisor,
    "queue": queue,
    "history": history,
    "arrays": arrays,
    "mixed": mixed,
    "throttle": throttle,
    "checkpoints": checkpoints,
    "data": data,
    "small_files": small_files,
    "transfers": transfers,
    "mounts": mounts,
    "endings": endings,
    "pools": pools,
    "disk": disk,
    "restart": restart,
    "idle": idle,
    "groups": groups,
    "busy": busy,
    "demo": demo,
    "top": top,
    "top_running": top_running,
    "top_many": top_many,
    "slurm": slurm,
    "kubernetes": kubernetes,
    "kubernetes_scale": kubernetes_scale,
    "across": across,
    "pool_mailboxes": pool_mailboxes,
    "pool_queue": pool_queue,
}


def main(words: list[str]) -> int:
    """Print the table; 1 when a bar is missed."""
    parser = argparse.ArgumentParser("benchmarks.run", description="Measure, and print docs/performance.md's table.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"one of {', '.join(CASES)}; all of them without")
    names: list[str] = parser.parse_args(words).cases
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"there is no case {unknown[0]!r}; there are {', '.join(CASES)}")
    before = measure()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"a start is {before.start:.1f} ms, a commit {before.commit:.2f} ms, a fork {before.fork:.2f} ms\n")
    print("| what | measured | bar | of the machine | |\n|---|---|---|---|---|")
    done: list[tuple[Row, Reference]] = []
    for name in names or CASES:
        rows = CASES[name]()
        after = measure()
        reference, before = slower(before, after), after
        for row in rows:
            done.append((row, reference))
            print(_describe(row, reference), flush=True)
    result = Path(os.environ.get("SPAN_BENCH_JSON", os.devnull))
    result.write_text(json.dumps([_document(*each) for each in done]))
    return 0 if all(row.is_met(reference) for row, reference in done) else 1


def _describe(row: Row, reference: Reference) -> str:
    if row.bar is None:
        return f"| {row.what} | {row.value:.1f} {row.unit} | | | |"
    sign = "at least " if row.at_least else ""
    met = "met" if row.is_met(reference) else "**missed**"
    limit = f"{sign}{row.bar.limit(reference, row.unit):.3g} {row.unit}"
    return f"| {row.what} | {row.value:.1f} {row.unit} | {limit} | {row.bar} | {met} |"


def _document(row: Row, reference: Reference) -> dict[str, object]:
    limit = None if row.bar is None else row.bar.limit(reference, row.unit)
    return {**row._asdict(), "bar": limit, "ratio": str(row.bar or ""), "met": row.is_met(reference)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
