"""HyperQueue beside pools, where it is installed (`pip install hyperqueue`): short jobs through two workers of its own.

python -m benchmarks.hyperqueue JOBS CORES
"""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
import tempfile
import time

SCRIPT = "#!/bin/sh\ntrue\n"


def time_short_jobs(jobs: int, cores: int) -> float | None:
    """How many a second; None where HyperQueue is not installed. It has no durable state, nor an output for each."""
    words = [sys.executable, "-m", "benchmarks.hyperqueue", str(jobs), str(cores)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def main(jobs: int, cores: int) -> int:
    """Measure and print it."""
    with contextlib.suppress(ModuleNotFoundError), tempfile.TemporaryDirectory() as folder:
        queue = importlib.import_module("hyperqueue")
        config = importlib.import_module("hyperqueue.cluster").WorkerConfig(cores=cores)
        os.chdir(folder)
        script = os.path.join(folder, "script")
        with open(os.open(script, os.O_WRONLY | os.O_CREAT, 0o700), "w", encoding="utf-8") as file:
            file.write(SCRIPT)
        with queue.LocalCluster() as cluster:
            for _ in range(2):
                cluster.start_worker(config)
            client, job = cluster.client(), queue.Job()
            for _ in range(jobs):
                job.program([script])
            begun = time.perf_counter()
            client.wait_for_jobs([client.submit(job)])
            print(jobs / (time.perf_counter() - begun), flush=True)
        return 0
    return 1


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2])))
