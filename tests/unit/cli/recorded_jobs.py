"""The jobs of the rig at the time when Slurm's answers about them were recorded, as rows of ours.

The answers are in tests/differential/recorded/formats; tests/differential/formats.py tells how the jobs were made.
"""

from __future__ import annotations

import calendar
from pathlib import Path
from typing import Any

from overspan.bridge.client import JobRow, StepRow

FORMATS = Path(__file__).parents[2] / "differential" / "recorded" / "formats"
HOME = "/home/researcher"
DAY = 86400


def at(text: str) -> float:
    """Seconds since 1970 of a time of the day of the recording, or of another day."""
    day, _, clock = text.rpartition("T")
    year, month, number = (int(part) for part in (day or "2026-11-21").split("-"))
    hour, minute, second = (int(part) for part in clock.split(":"))
    return float(calendar.timegm((year, month, number, hour, minute, second)))


EARLY, LATE = at("14:52:50"), at("14:52:54")


def _job(number: int, name: str, state: str, **facts: Any) -> JobRow:
    output = f"{HOME}/slurm-{number}.out"
    defaults: dict[str, Any] = {
        "submitted_at": EARLY,
        "time_limit": DAY,
        "memory": 100,
        "stdout": output,
        "stderr": facts.get("stdout", output),
        "priority": 1,
    }
    return JobRow(
        **{
            "id": number,
            "raw_id": number,
            "name": name,
            "user": "researcher",
            "uid": 1000,
            "state": state,
            "partition": "main",
            "cluster": "rig",
            "work_dir": HOME,
            "host": "ctl",
            **defaults,
            **facts,
        }
    )


def _ended(number: int, name: str, state: str, start: str, node: str, **facts: Any) -> JobRow:
    times = {"started_at": at(start), "ended_at": at(start)}
    return _job(
        number, name, state, **{"memory": 4000, **times, "node_list": node, "priority": 4294901760 - number, **facts}
    )


_PAIR: dict[str, Any] = {"id": 17, "tasks": 2, "submitted_at": LATE, "started_at": LATE}
_ARRAY: dict[str, Any] = {
    "array_id": 15,
    "submitted_at": LATE,
    "time_limit": 1200,
    "priority": 4294901747,
    "array_throttle": 2,
}
JOBS = [
    _ended(1, "timeout", "TIMEOUT", "14:52:50", "node1", ended_at=at("14:54:19"), time_limit=60, memory=100, signal=15,
           reason="TimeLimit", stdout="/dev/null", stderr="/dev/null", priority=4294901759),
    _ended(2, "completed", "COMPLETED", "14:52:50", "node2", priority=4294901758),
    _ended(3, "failed", "FAILED", "14:52:50", "node3", exit_code=3, reason="NonZeroExitCode", priority=4294901757),
    _ended(4, "killed", "FAILED", "14:52:51", "node2", signal=9, reason="JobLaunchFailure", priority=4294901756),
    _ended(5, "cancelled", "CANCELLED", "14:52:51", "node1", ended_at=at("14:52:52"), memory=100, signal=15,
           ended_by_uid=1000, priority=4294901755),
    _ended(7, "nolog", "FAILED", "14:52:51", "node3", signal=53, reason="JobLaunchFailure", priority=4294901754,
           stdout=f"{HOME}/missing/folder/7.out", stderr=f"{HOME}/missing/folder/7.out"),
    _ended(8, "steps", "COMPLETED", "14:52:52", "node2", cpus=2, ntasks=2, priority=4294901753,
           submit_line="sbatch --parsable -J steps -n2 --wrap srun true; srun -n1 false; exit 0"),
    _job(9, "running", "RUNNING", submitted_at=at("14:52:52"), started_at=at("14:52:52"), end_limit=at("15:22:52"),
         time_limit=1800, comment="a note", node_list="node1", stdout=f"{HOME}/run-9.log", priority=4294901752,
         submit_line="sbatch --parsable -J running -t 30 --comment a note -o run-%j.log --mem=100 --wrap sleep 900"),
    _job(10, "wide", "RUNNING", submitted_at=at("14:52:52"), started_at=at("14:52:53"), nodes=2, cpus=2, memory=500,
         end_limit=at("2026-11-22T14:52:53"), node_list="node[1-2]", gpus=2, ntasks_per_node=1, ntasks=2,
         stderr=f"{HOME}/wide.err", priority=4294901751),
    _job(11, "held", "PENDING", reason="JobHeldUser", submitted_at=at("14:52:53"), time_limit=5400, cpus=2,
         cpus_per_task=2, nice=5),
    _job(12, "dependent", "PENDING", reason="Dependency", submitted_at=LATE, time_limit=9000, partition="short,main",
         dependency="afterok:9(unfulfilled),afterok:10(unfulfilled)", priority=4294901750),
    _job(13, "never", "PENDING", reason="DependencyNeverSatisfied", submitted_at=LATE, cpus=3, ntasks=3,
         dependency="afternotok:2(failed)", priority=4294901749),
    _job(14, "later", "PENDING", reason="BeginTime", submitted_at=LATE, cpus=2, ntasks=2, memory=400,
         memory_per_cpu=200, begin=at("2031-05-06T07:08:09"), priority=4294901748),
    _job(19, "array", "RUNNING", array_index=1, started_at=LATE, end_limit=LATE + 1200, node_list="node1",
         **{**_ARRAY, "stdout": f"{HOME}/slurm-15_1.out"}),
    _job(20, "array", "RUNNING", array_index=2, started_at=LATE, end_limit=LATE + 1200, node_list="node2",
         **{**_ARRAY, "stdout": f"{HOME}/slurm-15_2.out"}),
    _job(15, "array", "PENDING", reason="JobArrayTaskLimit", array_waiting="3-6%2", **_ARRAY),
    _job(16, "sparse", "PENDING", reason="JobHeldUser", array_id=16, array_waiting="0,5,7,10,15,20", submitted_at=LATE),
    _job(17, "pair", "RUNNING", task_offset=0, node_list="node2", time_limit=900, end_limit=LATE + 900,
         priority=4294901746, **_PAIR),
    _job(18, "pair", "RUNNING", task_offset=1, node_list="node3", time_limit=1500, end_limit=LATE + 1500,
         cpus=2, ntasks=2,
         priority=4294901745, **_PAIR),
    _job(21, "a-rather-long-name-of-a-job", "PENDING", reason="PartitionTimeLimit", submitted_at=LATE, nodes=3, cpus=3,
         time_limit=5 * DAY, options={"exclusive": ""}, priority=4294901744),
]  # fmt: skip
_RAN: dict[str, Any] = {"job_id": 8, "started_at": at("14:52:52"), "ended_at": at("14:52:52"), "node_list": "node2"}
STEPS = {
    8: [
        StepRow(number=0, name="true", ntasks=2, layout="Block", submit_line="srun true", **_RAN),
        StepRow(number=1, name="false", exit_code=1, layout="Cyclic", submit_line="srun -n1 false", **_RAN),
    ]
}
"""Left out: job 6, cancelled while held, keeps its reason in Slurm; 22 has an expected start."""
OMITTED = ("6", "22")
