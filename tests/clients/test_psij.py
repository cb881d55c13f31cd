"""PSI/J, unmodified: submit and wait, exit codes, cancel, srun as launcher, and the list of jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PROGRAM = """
import json, time
from datetime import timedelta
from pathlib import Path
from psij import Job, JobAttributes, JobExecutor, JobSpec, ResourceSpecV1

executor = JobExecutor.get_instance("slurm")
executor.config.initial_queue_polling_delay = 1
executor.config.queue_polling_interval = 1
LONG = timedelta(seconds=300)

def submit(*arguments, **options):
    job = Job(JobSpec(executable="/bin/sh", arguments=["-c", *arguments], directory=Path.cwd(), **options))
    executor.submit(job)
    return job

limits = JobAttributes(duration=timedelta(minutes=5))
sleeping = submit("sleep 3600")
good = submit("echo hello", stdout_path=Path("good.out").absolute(), attributes=limits)
bad = submit("exit 7")
two = submit("echo $SLURM_PROCID", stdout_path=Path("two.out").absolute(), launcher="srun",
             resources=ResourceSpecV1(process_count=2))
found = {name: job.wait(LONG).state.name for name, job in (("good", good), ("bad", bad), ("two", two))}
found["code"] = bad.status.exit_code
found["listed"] = sleeping.native_id in executor.list()
sleeping.cancel()
found["cancelled"] = sleeping.wait(LONG).state.name
found["output"] = Path("good.out").read_text()
found["ranks"] = sorted(Path("two.out").read_text().split())
json.dump(found, open("found.json", "w"))
"""


def test_its_own_workload(run_client: Any, tmp_path: Path) -> None:
    check(run_client, tmp_path)


def test_its_own_workload_in_pods(run_in_pods: Any, tmp_path: Path) -> None:
    check(run_in_pods("psij"), tmp_path)


def check(run_client: Any, tmp_path: Path) -> None:
    """Run it, and compare what it found."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run_client("psij", "python", str(program))
    assert json.loads((tmp_path / "found.json").read_text()) == {
        "good": "COMPLETED",
        "bad": "FAILED",
        "code": 7,
        "two": "COMPLETED",
        "listed": True,
        "cancelled": "CANCELED",
        "output": "hello\n",
        "ranks": ["0", "1"],
    }
