"""Elastic tasks in pods follow the room there is, without an order, and give it back on demand. Row JG41."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

from tests.system.elastic_members import await_members, list_members
from tests.system.kubernetes.conftest import KubeSpan

MEMBER = 400
"""Thousandths of a CPU that a member asks for."""
GROUP = """\
name: rl
execution: parallel
primary_tasks: [trainer]
termination_delay: {default: 0, rollout: 1s}
---
name: trainer
resources: {cpus: 0.1}
run: |
  echo begun
  while :; do sleep 0.2; done
---
name: rollout
elastic: {min: 1, max: 3, scale_up_after: 2s}
resources: {cpus: 0.4}
grace_period: 5
run: |
  trap 'cat $OVERSPAN_RUN_DIR/notice; exit 0' TERM
  sleep 600 & wait
"""
OTHER = "name: other\nresources: {cpus: 0.4}\nrun: sleep 600\n"


def read_cpus(text: str) -> int:
    """Thousandths of a CPU, out of a quantity."""
    return int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)


def count_free(kube: KubeSpan, node: str) -> int:
    """Thousandths of a CPU of a node that no pod has asked for."""
    shown = json.loads(kube.rig.kubectl("get", "node", node, "-o", "json").stdout)
    where = f"--field-selector=spec.nodeName={node}"
    pods = json.loads(kube.rig.kubectl("get", "pods", "-A", where, "-o", "json").stdout)["items"]
    used = sum(
        read_cpus(container.get("resources", {}).get("requests", {}).get("cpu", "0"))
        for pod in pods
        if pod["status"]["phase"] in ("Pending", "Running")
        for container in pod["spec"]["containers"]
    )
    return read_cpus(shown["status"]["allocatable"]["cpu"]) - used


@contextlib.contextmanager
def fill(kube: KubeSpan, node: str, left: int) -> Iterator[None]:
    """Somebody else's pod on a node, that leaves so many thousandths of a CPU."""
    name, size = f"filler-{node}", count_free(kube, node) - left
    container = {
        "name": "main",
        "image": "rig/sh:1",
        "command": ["sleep", "3600"],
        "resources": {"requests": {"cpu": f"{size}m"}},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    done = kube.rig.kubectl("apply", "-f", "-", stdin=json.dumps(pod), namespace=kube.namespace)
    assert done.rc == 0, done.stderr
    try:
        kube.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
        yield
    finally:
        kube.kubectl("delete", "pod", name, "--wait=true")


def test_members_come_with_room_and_go_when_a_job_waits(kube: KubeSpan) -> None:
    """JG41: none without room; up to `max` with it; the last one makes way for a job that waits, and comes again."""
    with fill(kube, "node2", 50):
        with fill(kube, "node1", 100 + MEMBER + 50):
            group = kube.submit(GROUP)
            kube.until(group, "RUNNING", task="rollout", timeout=60)
            # Several looks at the nodes find none for a member.
            time.sleep(12)
            assert list_members(kube, group) == {}
        await_members(kube, group, "rollout-1", "rollout-2", timeout=60)
        kube.kill_daemon()

        ids = {name: job["id"] for name, job in list_members(kube, group).items()}
        with fill(kube, "node1", 50):
            # Nothing is free, and both members came without an order.
            other = kube.submit(OTHER)
            kube.until(other, "RUNNING", timeout=60)
            left = kube.until(ids["rollout-2"], "COMPLETED", timeout=30)
            assert left["reason"] == "ScaledDown"
            kube.wait_until(lambda: '"scaled_down"' in kube.log(left["id"]), 20, "its last words")
            await_members(kube, group, "rollout-1", timeout=60)
            assert list_members(kube, group)["rollout-1"]["id"] == ids["rollout-1"]

            kube.run("scancel", str(other))
            await_members(kube, group, "rollout-1", "rollout-2", timeout=60)
    assert kube.task(group, "trainer")["restarts"] == 0
    assert kube.log(group, "trainer").count("begun") == 1
    kube.run("scancel", str(group))
    kube.until(group, "CANCELLED", timeout=40)
    kube.wait_until(lambda: not list_members(kube, group), 40, "the members to end")
