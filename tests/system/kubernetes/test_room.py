"""A group that can never have all of its places: it says what is missing, and gives back what it holds.

Its pods are made again only when there is room, so that it does not hold nearly the whole cluster for ever.
"""

from __future__ import annotations

import json
import time

from tests.system.kubernetes.conftest import KubeSpan


def test_a_group_that_does_not_fit_says_what_is_missing_and_stays_away(kube: KubeSpan) -> None:
    kube.connect(kube.rig, kube.namespace, gang="soft", gang_timeout=10)
    nodes = json.loads(kube.rig.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    # Two fit on a node at most, and one is too many for both.
    least = min(int(node["status"]["allocatable"]["cpu"].removesuffix("m")) for node in nodes)
    assert least >= 1, nodes
    size = int(least) * 0.4
    task = {"name": "w", "num_nodes": 2 * len(nodes) + 1, "resources": {"cpus": size}, "run": "sleep 600"}
    other = {**task, "name": "v", "num_nodes": 1, "resources": {"cpus": 0.01}}
    job = kube.submit("\n---\n".join(map(json.dumps, [{"name": "wide", "execution": "parallel"}, task, other])))

    def reason() -> str:
        return str(kube.job(job)["reason"])

    told = kube.wait_until(lambda: "have a place" in reason() and reason(), 60, "the facts")
    assert told.startswith("Resources: ") and f" of {2 * len(nodes) + 2} have a place" in told
    assert "Insufficient cpu" in told
    assert kube.run("squeue", "-h", "-j", str(job), "-o", "%r").stdout.split() == ["Resources"] * 2
    kube.wait_until(lambda: not kube.pods(), 60, "its pods to be given back")
    # Other work has the cluster for as long as this one finds no room.
    until = time.monotonic() + 10
    while time.monotonic() < until:
        assert kube.pods() == {} and "have a place" in reason()
        time.sleep(0.5)
    kube.run("scancel", str(job))
    kube.until(job, "CANCELLED", timeout=30)
