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
---
name: trainer
resources: {cpus: 0.1}
run: |
  until wget -T 2 -q -O- http://server-0.lost:8000/ | grep "attempt 1"; do sleep 0.5; done
kubernetes: {spec: {nodeSelector: {kubernetes.io/hostname: node1}}}
"""


def test_a_killed_node_costs_an_attempt_and_no_user_budget(kube: KubeSpan) -> None:
    settings = {
        "tolerations": [
            {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
            for why in ("not-ready", "unreachable")
        ]
    }
    kube.connect(kube.rig, kube.namespace, **settings)
    text = SERVICE.replace(
        "grace_period: 1s\n", "grace_period: 1s\nkubernetes: {spec: {nodeSelector: {kubernetes.io/hostname: node2}}}\n"
    )
    text = text.replace(
        "nodeSelector: {kubernetes.io/hostname: node2}",
        "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node2]}]}}]}}",
    )
    job = kube.submit(text, "-M", "kube")
    kube.until(job, "RUNNING")
    assert kube.node_of("lost-server-0-a0") == 2
    with kube.rig.without_node(2):
        kube.wait_until(lambda: "lost-server-0-a1" in kube.pods(), 120, "the successor")
        kube.until(job, "COMPLETED", timeout=60)
        task = kube.task(job, "server")
        assert (task["errors"], task["recoveries"]) == (0, 1)
        assert task["attempts"][0]["state"] == "NODE_FAIL"
        assert kube.task(job, "trainer")["recoveries"] == 0
    kube.until_empty(120)


def test_a_server_that_is_away_fails_nothing(kube: KubeSpan) -> None:
    job = kube.wrap("sleep 6; echo survived", "-M", "kube")
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
    assert kube.job(job)["tasks"][0]["recoveries"] == 0
