"""Jobs of a pool run once an attempt and never twice at once, whoever is killed: a file counts the runs."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

Span = Any

JOBS = int(os.environ.get("OVERSPAN_POOL_JOBS", "200"))
"""How many jobs are under way while the daemon is killed again and again."""


def make_pool(span: Span, workers: int) -> None:
    """A pool of so many workers of 4 CPUs."""
    file = span.folder / "pool.yaml"
    file.write_text(f"pool: {{workers: {workers}}}\nresources: {{cpus: 4}}\n")
    span.run("pool", "apply", "-p", "p", str(file))
    span.wait_until(lambda: len(list_workers(span)) == workers, 20, "the workers to be ready")


def list_workers(span: Span) -> list[dict[str, Any]]:
    """The workers that are ready."""
    pools = json.loads(span.look("pool", "show", "p", "--json"))["pools"]
    return [worker for worker in pools[0]["workers"] if worker["state"] == "READY"]


def find_processes(span: Span, comm: str, job: int) -> list[int]:
    """The processes of a worker, by its job."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path(f"/proc/{name}/comm").read_text().strip() == comm:
                variables = set(Path(f"/proc/{name}/environ").read_bytes().split(b"\0"))
                if {b"OVERSPAN_JOB_ID=%d" % job, b"SPAN_STATE_DIR=%s" % str(span.state).encode()} <= variables:
                    found.append(int(name))
        except OSError:
            continue
    return found


def find_above(pid: int, comm: str) -> int:
    """The nearest process of that name above another one."""
    while Path(f"/proc/{pid}/comm").read_text().strip() != comm:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def test_a_daemon_that_is_killed_in_the_midst_runs_each_job_once(span: Span, tmp_path: Path) -> None:
    """PL13 with the daemon's death: no job is lost, and none runs twice."""
    ran = tmp_path / "ran"
    make_pool(span, 2)
    run = f"echo $SLURM_ARRAY_TASK_ID ${{SLURM_RESTART_COUNT:-0}} >> {ran}"
    array = int(span.run("sbatch", "--parsable", "--pool", "p", f"--array=1-{JOBS}", "--wrap", run).stdout)

    def count() -> int:
        return len(ran.read_text().splitlines()) if ran.exists() else 0

    for part in (1, 2, 3):
        span.wait_until(lambda part=part: count() >= JOBS * part // 5, 60, f"{part} fifths of the jobs")
        span.kill_daemon()
        span.run("ping")
    span.until(array, "COMPLETED", timeout=120)
    assert Counter(ran.read_text().splitlines()) == {f"{number} 0": 1 for number in range(1, JOBS + 1)}
    assert len(list_workers(span)) == 2


def test_a_worker_that_is_killed_without_a_daemon_costs_its_jobs_one_launch(span: Span, tmp_path: Path) -> None:
    """What ran is put back once by the next daemon; nothing that the dead worker started goes on."""
    ran, ends = tmp_path / "ran", tmp_path / "ends"
    make_pool(span, 1)
    run = (
        f"echo $SLURM_ARRAY_TASK_ID ${{SLURM_RESTART_COUNT:-0}} >> {ran}; sleep 3; echo $SLURM_ARRAY_TASK_ID >> {ends}"
    )
    array = int(span.run("sbatch", "--parsable", "--pool", "p", "--array=1-4", "--wrap", run).stdout)
    span.wait_until(lambda: ran.exists() and len(ran.read_text().splitlines()) == 4, 20, "four jobs to run")
    (worker,) = list_workers(span)
    span.kill_daemon()
    for pid in find_processes(span, "span-worker", worker["job"]):
        os.kill(pid, signal.SIGKILL)
    span.until(array, "COMPLETED", timeout=60)
    assert Counter(ran.read_text().splitlines()) == {
        f"{number} {launch}": 1 for number in range(1, 5) for launch in (0, 1)
    }
    assert sorted(ends.read_text().split()) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("shim", [False, True], ids=["slots", "slots-and-shim"])
def test_a_worker_that_is_killed_with_what_watches_it_leaves_nothing_running(
    span: Span, tmp_path: Path, shim: bool
) -> None:
    """Whoever watched the program is gone with the worker: it ends before the job runs again."""
    ran, ends = tmp_path / "ran", tmp_path / "ends"
    make_pool(span, 1)
    run = f"echo ${{SLURM_RESTART_COUNT:-0}} >> {ran}; sleep 6; echo ${{SLURM_RESTART_COUNT:-0}} >> {ends}"
    job = span.wrap(run, "--pool", "p")
    span.wait_until(lambda: ran.exists() and ran.read_text(), 20, "the job to run")
    (worker,) = list_workers(span)
    slots, (own,) = (find_processes(span, comm, worker["job"]) for comm in ("span-slot", "span-worker"))
    above = [find_above(own, "span-shim")] if shim else []
    assert slots
    for pid in (*above, *slots, own):
        os.kill(pid, signal.SIGKILL)
    span.until(job, "COMPLETED", timeout=60)
    assert ran.read_text().split() == ["0", "1"] and ends.read_text().split() == ["1"]


def test_a_worker_that_was_stopped_keeps_its_jobs_and_tells_their_ends_later(span: Span, tmp_path: Path) -> None:
    """Without contact nothing is given to another: the worker finishes what it holds, and says so when it can."""
    ran = tmp_path / "ran"
    make_pool(span, 1)
    job = span.wrap(f"echo $SLURM_JOB_ID >> {ran}; sleep 1", "--pool", "p")
    span.until(job, "RUNNING")
    (worker,) = list_workers(span)
    stopped = find_processes(span, "span-worker", worker["job"])
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    span.kill_daemon()
    span.wait_until(lambda: span.job(job)["state"] == "RUNNING", 20, "the next daemon")
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    span.until(job, "COMPLETED")
    assert ran.read_text().split() == [str(job)] and span.job(job)["restarts"] == 0
