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
working = one.submit(Work())
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
deadline = time.monotonic() + 300
while not os.path.exists("started"):
    assert time.monotonic() < deadline
    time.sleep(0.05)
working._interrupt(timeout=False)
found["rounds"] = working.result()
json.dump(found, open("found.json", "w"))
"""


def test_its_own_workload(run_client: Any, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run_client("submitit", "python", str(program))
    assert json.loads((tmp_path / "found.json").read_text()) == {
        "result": 12,
        "array": [11, 22, 33],
        "ids": ["0", "1", "2"],
        "failure": True,
        "ranks": [[0, 2], [1, 2]],
        "rounds": 2,
    }
