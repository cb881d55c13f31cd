"""PL01 to PL05, PL13 and PL15 on the rigs: workers in Slurm allocations and in pods, which share nothing with the daemon."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.rigs.kube import KubeRig
from tests.rigs.reach import find_address
from tests.system.across.conftest import Lab
from tests.system.watchers import find_own_address

POOL = """
pool: {{workers: {workers}}}
cluster: {cluster}
resources: {{cpus: {cpus}}}
setup: echo set up
"""
JOB = "resources: {{cpus: 1}}\nrun: |\n  {run}\n"


@pytest.fixture
def pools(lab: Lab, kube_rig: KubeRig) -> Lab:
    """Both clusters, whose nodes and pods reach the daemon's port for jobs."""
    settings: dict[str, Any] = json.loads(lab.config.read_text())
    nodes = json.loads(lab.kubectl("get", "nodes", "-o", "json"))["items"]
    node = next(each["address"] for each in nodes[0]["status"]["addresses"] if each["type"] == "InternalIP")
    settings["clusters"]["kube"] |= {"image": "rig/python:1", "daemon_address": find_own_address(node)}
    settings["clusters"]["leo"]["daemon_address"] = find_own_address(find_address(lab.site.rig))
    lab.config.write_text(json.dumps(settings))
    return lab


def apply(lab: Lab, workers: int, cluster: str, cpus: int = 2) -> None:
    """Make the pool `warm`, and wait for its workers."""
    file = lab.folder / "warm.yaml"
    file.write_text(POOL.format(workers=workers, cluster=cluster, cpus=cpus))
    lab.run("pool", "apply", "-p", "warm", str(file))
    lab.wait_until(lambda: len(list_ready(lab)) == workers, 120, f"{workers} workers")


def show(lab: Lab) -> dict[str, Any]:
    """The pool as it is now."""
    pool: dict[str, Any] = json.loads(lab.look("pool", "show", "warm", "--json"))["pools"][0]
    return pool


def list_ready(lab: Lab) -> list[dict[str, Any]]:
    """The workers that are ready."""
    return [worker for worker in show(lab)["workers"] if worker["state"] == "READY"]


def send(lab: Lab, run: str, *words: str) -> int:
    """Submit a job to the pool."""
    return lab.submit(JOB.format(run=run), "-p", "warm", *words)


def test_pods_are_workers(pools: Lab) -> None:
    apply(pools, 2, "kube", cpus=1)
    assert {worker["cluster"] for worker in list_ready(pools)} == {"kube"}
    jobs = [send(pools, f"echo job {number} on $(hostname); echo trouble >&2") for number in range(6)]
    for number, job in enumerate(jobs):
        pools.until(job, "COMPLETED")
        told = pools.log(job)
        assert f"job {number} on " in told and "trouble" in told, told
