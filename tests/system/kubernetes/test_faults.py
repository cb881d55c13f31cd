"""What fails around a job that runs as pods: nodes, the API server, the way there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.system.kubernetes.conftest import KubeSpan, list_processes
from tests.system.kubernetes.gates import Gate
from tests.system.kubernetes.tolerations import SOON

SERVICE = """
---
name: lost
execution: parallel
primary_tasks: [trainer]
---
name: server
resources: {cpus: 0.1}
grace_period: 1s
run: |
  mkdir -p /tmp/www; echo attempt $OVERSPAN_ATTEMPT >/tmp/www/index.html; exec httpd -f -p 8000 -h /tmp/www
kubernetes:
  spec:
    affinity:
      nodeAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node2]}]}
---
name: trainer
resources: {cpus: 0.1}
run: |
  until timeout 2 wget -q -O- http://server-0.lost:8000/ | grep "attempt 1"; do sleep 0.5; done
kubernetes: {spec: {nodeSelector: {kubernetes.io/hostname: node1}}}
"""


def test_a_killed_node_costs_an_attempt_and_no_user_budget(kube: KubeSpan) -> None:
    kube.connect(kube.rig, kube.namespace, tolerations=SOON)
    job = kube.submit(SERVICE)
    kube.until(job, "RUNNING")
    assert kube.node_of("lost-server-0-a0") == 2
    with kube.rig.without_node(2):
        kube.wait_until(lambda: "lost-server-0-a1" in kube.pods(), 120, "the successor")
        kube.until(job, "COMPLETED", timeout=60)
        states = [attempt["state"] for attempt in kube.task(job, "server")["attempts"]]
        assert states == ["NODE_FAIL", "COMPLETED"]
        assert len(kube.task(job, "trainer")["attempts"]) == 1
    kube.until_empty(120)


def test_a_server_that_is_away_fails_nothing(kube: KubeSpan) -> None:
    gate = Gate(kube)
    kube.connect(kube.rig, kube.namespace, volumes=gate.volume)
    job = kube.wrap(f"{gate.run}; echo survived")
    kube.until(job, "RUNNING")
    with kube.rig.without_api():
        kube.wait_until(
            lambda: (
                "stale" in kube.run("ping").stdout.lower() or "does not answer" in kube.run("sinfo", check=False).stderr
            ),
            60,
            "the cluster to be stale",
        )
        assert kube.job(job)["state"] == "RUNNING"
        # It ends while nobody can tell.
        gate.open()
    kube.until(job, "COMPLETED", timeout=60)
    assert kube.log(job) == "done\nsurvived\n"
    assert len(kube.job(job)["tasks"][0]["attempts"]) == 1


def test_a_node_out_of_service_is_replaced_and_ends_its_old_work_when_it_is_back(kube: KubeSpan) -> None:
    served = "sleep 0.5; done\n"
    job = kube.submit(SERVICE.replace(served, f"{served}  echo served; until [ -e /tmp/stop ]; do sleep 0.1; done\n"))
    kube.until(job, "RUNNING")
    old = kube.pods()["lost-server-0-a0"]
    assert old["spec"]["nodeName"] == "node2"
    with kube.rig.frozen("node2-kubelet"), out_of_service(kube, "node2"):
        # Without that taint a silent node's pods stay for five minutes and longer: nobody knows whether they run.
        kube.wait_until(lambda: "served" in kube.log(job, "trainer"), 60, "the successor")
        assert kube.node_of("lost-server-0-a1") == 1 and list_processes(old)
    kube.wait_until(lambda: not list_processes(old), 60, "the node to end what it still has")
    states = [attempt["state"] for attempt in kube.task(job, "server")["attempts"]]
    assert states == ["NODE_FAIL", "RUNNING"]
    kube.kubectl("exec", "lost-trainer-0-a0", "--", "touch", "/tmp/stop")
    shown = kube.until(job, "COMPLETED", timeout=60)
    assert [len(task["attempts"]) for task in shown["tasks"]] == [2, 1]
    kube.until_empty(60)


@contextlib.contextmanager
def out_of_service(kube: KubeSpan, node: str) -> Iterator[None]:
    """A node has an administrator's word that nothing of it runs any more."""
    taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    kube.kubectl("taint", "node", node, taint)
    try:
        yield
    finally:
        kube.kubectl("taint", "node", node, f"{taint}-")
