"""HyperQueue beside pools, where it is installed (`pip install hyperqueue`): the same measurements with its workers.

python -m benchmarks.hyperqueue JOBS CORES RUNS
"""

from __future__ import annotations

import contextlib
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

SHORT = "true"
CLOCK = "date +%s.%N"


class HyperQueueTimes(NamedTuple):
    """Milliseconds from a submission to the start at an idle worker, and from an end to the next start; jobs a second.

    It has no durable state, nor an output for each job.
    """

    first: float
    following: float
    rate: float


def time_hyperqueue(jobs: int, cores: int, runs: int) -> HyperQueueTimes | None:
    """Starts, the median of `runs`, and short jobs through two workers; None where HyperQueue is not installed."""
    words = [sys.executable, "-m", "benchmarks.hyperqueue", *map(str, (jobs, cores, runs))]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300)
    return HyperQueueTimes(*map(float, done.stdout.split()[-3:])) if done.returncode == 0 else None


def main(jobs: int, cores: int, runs: int) -> int:
    """Measure and print."""
    with contextlib.suppress(ModuleNotFoundError), tempfile.TemporaryDirectory() as folder:
        queue = importlib.import_module("hyperqueue")
        os.chdir(folder)
        print(*_time_starts(queue, Path(folder), runs), _time_rate(queue, Path(folder), jobs, cores), flush=True)
        return 0
    return 1


@contextlib.contextmanager
def _serve(queue: Any, workers: int, cores: int) -> Any:
    config = importlib.import_module("hyperqueue.cluster").WorkerConfig(cores=cores)
    with queue.LocalCluster() as cluster:
        for _ in range(workers):
            cluster.start_worker(config)
        yield cluster.client()


def _write(path: Path, run: str) -> list[str]:
    path.write_text(f"#!/bin/sh\n{run}\n")
    path.chmod(0o700)
    return [str(path)]


def _time_starts(queue: Any, folder: Path, runs: int) -> tuple[float, float]:
    starts, turns = [], []

    def submit(client: Any, name: str, run: str) -> tuple[Any, Path]:
        told, job = folder / f"{name}.told", queue.Job()
        job.program(_write(folder / name, f"{run}{CLOCK} > {told}"), stdout=None, stderr=None)
        return client.submit(job), told

    with _serve(queue, 1, 1) as client:
        for number in range(-1, runs):
            at = time.time()
            job, told = submit(client, f"start{number}", "")
            client.wait_for_jobs([job])
            starts.append((float(told.read_text()) - at) * 1000)
            first, ended = submit(client, f"first{number}", "sleep 0.5; ")
            second, begun = submit(client, f"second{number}", "")
            client.wait_for_jobs([first, second])
            turns.append((float(begun.read_text()) - float(ended.read_text())) * 1000)
    # The first has waited for the worker.
    return statistics.median(starts[1:]), statistics.median(turns[1:])


def _time_rate(queue: Any, folder: Path, jobs: int, cores: int) -> float:
    script = _write(folder / "short", SHORT)
    with _serve(queue, 2, cores) as client:
        job = queue.Job()
        for _ in range(jobs):
            job.program(script)
        begun = time.time()
        client.wait_for_jobs([client.submit(job)])
    # Its client looks once a second: the last job has begun, and all but ended, when its output file was made.
    return jobs / (max(path.stat().st_mtime for path in folder.glob("*.stdout")) - begun)


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:4])))
