"""A member whose place comes late, on a real Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.system.kubernetes.conftest import KubeSpan

LATE_SECONDS = 20
GROUP = """
name: g
execution: parallel
primary_tasks: [early]
---
name: early
resources: {cpus: 0.1}
run: echo "early at $(date +%s)"
---
name: late
resources: {cpus: 0.1}
kubernetes: {spec: {nodeSelector: {LABEL: "yes"}}}
run: trap 'exit 0' TERM; while :; do sleep 0.1; done
"""


@contextmanager
def labelled(kube: KubeSpan, label: str) -> Iterator[None]:
    """The first node has a label until the end of the block."""
    kube.rig.kubectl("label", "node", "node1", f"{label}=yes")
    try:
        yield
    finally:
        kube.rig.kubectl("label", "node", "node1", f"{label}-")


@pytest.mark.parametrize("settings", [{}, {"gang": "soft", "gang_timeout": 8}], ids=["discovered", "soft"])
def test_who_comes_late_fails_nobody(kube: KubeSpan, settings: dict[str, Any]) -> None:
    kube.connect(kube.rig, kube.namespace, **settings)
    label = f"overspan-test/{kube.namespace}"
    job = kube.submit(GROUP.replace("LABEL", label))
    submitted = datetime.now(UTC).timestamp()
    waited = submitted + LATE_SECONDS
    kube.wait_until(lambda: datetime.now(UTC).timestamp() > waited, LATE_SECONDS + 10, "the place to be late")
    assert kube.job(job)["state"] == "PENDING"
    assert "early" not in kube.log(job, "early")
    with labelled(kube, label):
        kube.until(job, "COMPLETED", timeout=90)
    assert int(kube.log(job, "early").split()[-1]) >= int(waited)
    assert [len(task["attempts"]) for task in kube.job(job)["tasks"]] == [1, 1]
    kube.until_empty()
