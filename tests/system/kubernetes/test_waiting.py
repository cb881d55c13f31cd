"""A group in pods that waits for a server that does not become ready: what is told, and how it ends."""

from __future__ import annotations

from tests.system.kubernetes.conftest import KubeSpan

FILE = """
name: slow
execution: parallel
primary_tasks: [t]
---
name: t
resources: {cpus: 0.1}
run: "true"
needs: s
---
name: s
resources: {cpus: 0.1}
run: sleep 600
ready: {tcp: 9999, timeout: 30s}
on_failure: fail_group
grace_period: 1
"""


def test_whoever_waits_says_for_whom_and_the_end_says_why(kube: KubeSpan) -> None:
    job = kube.submit(FILE)
    words = "t waits for s: tcp s-0:9999, "
    kube.wait_until(lambda: words in kube.run("show", str(job)).stdout, 60, "an answer of the probe")
    shown = next(line for line in kube.run("show", str(job)).stdout.splitlines() if line.startswith(words))
    assert shown.endswith("connection refused")
    assert kube.task(job, "t")["reason"] == "Dependency"
    kube.until(job, "FAILED", timeout=90)
    shown = kube.run("show", str(job)).stdout
    assert "s attempt 0: FAILED not_ready" in shown and "not ready within 30 s: tcp s-0:9999, " in shown
    kube.until_empty()
