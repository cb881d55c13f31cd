"""Pools with workers on a real Slurm and in pods: made, looked at, and given jobs."""

from __future__ import annotations

import json
from typing import Any

from tests.system.across.conftest import Lab

POOL = """
pool: {{workers: {workers}}}
{place}
setup: echo set up by $(hostname)
"""
JOB = "resources: {{cpus: {cpus}}}\nmax_recoveries: 1\nrun: |\n  {run}\n"
BOTH = """
failover_after: 3s
resources:
  ordered:
    - {infra: slurm/leo, cpus: 4}
    - {infra: kubernetes/kube, cpus: 1}
"""
"""Slurm's three nodes have four CPUs each."""


def configure(lab: Lab, **clusters: dict[str, Any]) -> None:
    """Change settings of the clusters."""
    settings: dict[str, Any] = json.loads(lab.config.read_text())
    for name, changes in clusters.items():
        settings["clusters"][name] |= changes
    lab.config.write_text(json.dumps(settings))


def delete(lab: Lab) -> None:
    """End the pool and its workers."""
    lab.run("pool", "delete", "warm", "--cancel")
    lab.wait_until(lambda: lab.run("pool", "show", "warm", check=False).returncode, 60, "the end of the pool")


def apply(lab: Lab, workers: int, place: str) -> None:
    """Make the pool `warm`, and wait for its workers."""
    file = lab.folder / "warm.yaml"
    file.write_text(POOL.format(workers=workers, place=place))
    lab.run("pool", "apply", "-p", "warm", str(file))
    lab.wait_until(lambda: len(list_ready(lab)) == workers, 120, f"{workers} workers")


def show(lab: Lab) -> dict[str, Any]:
    """The pool as it is now."""
    pool: dict[str, Any] = json.loads(lab.look("pool", "show", "warm", "--json"))["pools"][0]
    return pool


def list_ready(lab: Lab) -> list[dict[str, Any]]:
    """The workers that are ready."""
    return [worker for worker in show(lab)["workers"] if worker["state"] == "READY"]


def find_holder(lab: Lab, job: int) -> dict[str, Any]:
    """The worker that holds a job."""
    (found,) = [worker for worker in list_ready(lab) if job in worker["jobs"]]
    return found


def find_worker(lab: Lab, job: int) -> str:
    """The worker that a job was on."""
    return lab.look("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "NodeList").strip()


def send(lab: Lab, run: str, cpus: float = 1) -> int:
    """Submit a job to the pool."""
    return lab.submit(JOB.format(run=run, cpus=cpus), "-p", "warm")


def play_short_jobs(lab: Lab) -> None:
    """What jobs print, a script with its own output file, and set-up's log; none of it is on a disk of the daemon's."""
    jobs = [send(lab, f"echo job {number}; echo trouble >&2") for number in range(8)]
    for number, job in enumerate(jobs):
        lab.until(job, "COMPLETED")
        told = lab.log(job)
        assert f"job {number}" in told and "trouble" in told, told
    text = "#!/bin/sh\n#SBATCH --output=/no/such/folder/out-%j\ncd $SLURM_SUBMIT_DIR && seq 20000\nexit 3\n"
    script = int(lab.run("sbatch", "--parsable", "--pool", "warm", stdin=text, cwd=str(lab.folder)).stdout)
    assert lab.until(script, "FAILED")["exit_code"] == 3
    assert lab.log(script).splitlines() == [str(number) for number in range(1, 20001)]
    assert "set up by" in lab.run("pool", "logs", "warm").stdout
    lines = lab.folder / "lines.txt"
    lines.write_text("".join(f"{number}\n" for number in range(40)))
    lab.run("map", "-p", "warm", "--over", str(lines), "--chunk", "10", "echo line {}")
    results = (lab.folder / "lines.txt.map/results.txt").read_text().splitlines()
    assert results == [f"line {number}" for number in range(40)]
