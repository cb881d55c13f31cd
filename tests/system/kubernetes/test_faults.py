"""What fails around a job that runs as pods: nodes, the API server, the way there."""

from __future__ import annotations

from tests.system.kubernetes.conftest import KubeSpan

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
SOON = [
    {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
    for why in ("not-ready", "unreachable")
]
"""A lost node's pods are given up after two seconds."""


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
    job = kube.wrap("sleep 6; echo survived")
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
    kube.until(job, "COMPLETED", timeout=60)
    assert kube.log(job) == "survived\n"
    assert len(kube.job(job)["tasks"][0]["attempts"]) == 1
