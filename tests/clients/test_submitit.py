"""submitit, unmodified: functions as jobs, arrays, failures, several ranks, and a checkpoint with a requeue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PROGRAM = """
import json, os, sys, time
import submitit

def add(a, b):
    return a + b

def fail():
    raise RuntimeError("no luck")

def rank():
    environment = submitit.JobEnvironment()
    return environment.global_rank, environment.num_tasks

class Work:
    def __init__(self):
        self.rounds = 0

    def __call__(self):
        self.rounds += 1
        if self.rounds < 2:
            open("started", "w").close()
            time.sleep(3600)
        return self.rounds

    def checkpoint(self, *args, **kwargs):
        return submitit.helpers.DelayedSubmission(self, *args, **kwargs)

def executor(**options):
    made = submitit.AutoExecutor(folder="logs", cluster="slurm")
    made.update_parameters(timeout_min=60, name="sm", **options)
    return made

found = {}
one = executor(mem_gb=1, cpus_per_task=1)
# A pod has no scontrol by which a job requeues itself.
working = one.submit(Work()) if "requeue" in sys.argv else None
found["result"] = one.submit(add, 5, 7).result()
several = one.map_array(add, [1, 2, 3], [10, 20, 30])
found["array"] = [job.result() for job in several]
found["ids"] = [job.job_id.partition("_")[2] for job in several]
failing = one.submit(fail)
try:
    failing.result()
except submitit.core.utils.FailedJobError as error:
    found["failure"] = "no luck" in str(error)
found["ranks"] = executor(nodes=1, tasks_per_node=2).submit(rank).results()
if working is not None:
    deadline = time.monotonic() + 300
    while not os.path.exists("started"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    working._interrupt(timeout=False)
    found["rounds"] = working.result()
found["stdout"] = "Starting" in (failing.stdout() or "") or "starting" in (failing.stdout() or "").lower()
json.dump(found, open("found.json", "w"))
"""


def test_its_own_workload(run_client: Any, tmp_path: Path) -> None:
    assert find(run_client, tmp_path, "requeue") == {**FOUND, "rounds": 2}


def test_its_own_workload_in_pods(run_in_pods: Any, tmp_path: Path) -> None:
    assert find(run_in_pods("submitit"), tmp_path) == FOUND


FOUND = {
    "result": 12,
    "array": [11, 22, 33],
    "ids": ["0", "1", "2"],
    "failure": True,
    "ranks": [[0, 2], [1, 2]],
    "stdout": True,
}


def find(run_client: Any, tmp_path: Path, *words: str) -> Any:
    """Run it, and give what it found."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run_client("submitit", "python", str(program), *words)
    return json.loads((tmp_path / "found.json").read_text())
