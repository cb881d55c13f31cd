"""A thousand jobs that end in every way, and a daemon that dies twice among them: nothing of them stays in the cluster.

Row K815 of docs/acceptance.md.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from tests.system.kubernetes.conftest import KubeSpan

from overspan import Client

pytestmark = pytest.mark.timeout(2700)

WAITING, GROUPS, RUNNING = 840, 60, 100
"""Jobs that no node takes, groups of two of the same kind, and jobs that run."""
NOWHERE = {"spec": {"nodeSelector": {"none": "such"}}}
SMALL = {"cpus": 0.01, "memory": "8M"}
BUILT_IN = {"ConfigMap kube-root-ca.crt"}


def write_job(number: int, **more: Any) -> dict[str, Any]:
    """A job file of one task."""
    return {"name": f"many{number}", "resources": SMALL, "grace_period": "1s", **more}


def write_group(number: int) -> str:
    """A group of two with a secret, and a Service of its name: one document after the other."""
    tasks = [
        {"name": name, "run": "true", "resources": SMALL, "secrets": {"KEY": "word"}, "kubernetes": NOWHERE}
        for name in ("a", "b")
    ]
    return "\n---\n".join(map(json.dumps, [{"name": f"pair{number}"}, *tasks]))


def list_all(kube: KubeSpan) -> list[str]:
    """Everything that is in the namespace, whoever made it, but for what every namespace has."""
    kinds = "pods,services,endpoints,endpointslices,configmaps,secrets,podgroups,persistentvolumeclaims"
    items = json.loads(kube.kubectl("get", kinds, "-o", "json"))["items"]
    return sorted({f"{item['kind']} {item['metadata']['name']}" for item in items} - BUILT_IN)


def count_states(kube: KubeSpan) -> Counter[str]:
    """How many tasks are in each state, those that have ended among them."""
    rows = kube.run("sacct", "-n", "-X", "-P", "-S", "now-1days", "-o", "State").stdout.splitlines()
    return Counter(row.split()[0] for row in rows)


def test_nothing_is_left_of_a_thousand_jobs(kube: KubeSpan) -> None:
    kube.run("ping")
    with Client(environment=kube.environment) as client:
        for number in range(WAITING):
            client.submit(write_job(number, run="true", kubernetes=NOWHERE))
            if number == WAITING // 2:
                # The first half is cancelled while the second is submitted.
                kube.run("scancel", "--me")
        for number in range(GROUPS):
            client.submit(write_group(number))
    kube.kill_daemon()
    kube.wait_until(lambda: len(kube.left()) > 3 * GROUPS, 60, "objects of waiting jobs")
    kube.run("scancel", "--me")
    with Client(environment=kube.environment) as client:
        ran = [client.submit(write_job(number, run=f"echo {number}; exit {number % 2}")) for number in range(RUNNING)]
    assert len(ran) == RUNNING
    kube.wait_until(lambda: count_states(kube)["COMPLETED"] > RUNNING // 10, 120, "some to have run")
    kube.kill_daemon()
    kube.wait_until(lambda: not kube.run("squeue", "--noheader").stdout.strip(), 180, "all to end")
    kube.wait_until(lambda: not list_all(kube), 60, "nothing to be left")
    half = RUNNING // 2
    assert count_states(kube) == {"CANCELLED": WAITING + GROUPS * 2, "COMPLETED": half, "FAILED": half}
