"""Pods of a real Kubernetes that an earlier version started are adopted, ended and accounted for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.kube import KubeRig
from tests.system.kubernetes.conftest import KINDS, WAITS
from tests.upgrade.changes import change, list_accounts, list_starts, old
from tests.upgrade.installation import Installation, end_processes
from tests.upgrade.old_version import OldVersion
from tests.waiting import WaitUntil

__all__ = ["old"]

GROUP = f"""
---
name: NAME
execution: parallel
primary_tasks: [trainer]
---
name: server
grace_period: 10s
resources: {{cpus: 0.1}}
run: |
  trap 'echo stopped; exit 0' TERM
  echo serving; while :; do sleep 0.1; done
---
name: trainer
grace_period: 10s
resources: {{cpus: 0.1}}
run: |
  echo training; {WAITS}; echo trained
"""


@pytest.fixture
def outside(kube_rig: KubeRig, kube_namespace: str, old: OldVersion, tmp_path: Path) -> Iterator[Installation]:
    """An installation of the old version whose cluster `pods` is a new namespace."""
    found = Installation(tmp_path, old.span)
    settings = {"kubeconfig": str(kube_rig.kubeconfig), "namespace": kube_namespace, "image": "rig/sh:1"}
    found.configure({"pods": {"kind": "kubernetes", **settings}})
    yield found
    found.end()
    end_processes(found.state)


def test_groups_of_the_old_version_are_adopted_end_and_are_cancelled(
    outside: Installation, kube_rig: KubeRig, kube_namespace: str, wait_until: WaitUntil
) -> None:
    ends, cancelled = (outside.submit(name, GROUP.replace("NAME", name), "-M", "pods") for name in ("ends", "other"))
    for job in (ends, cancelled):
        outside.until(job, "RUNNING", timeout=60)
        wait_until(lambda job=job: "training" in outside.log(job), 30, "its first line")  # type: ignore[misc]
    before = list_starts(outside, ends, cancelled)
    change(outside)
    assert list_starts(outside, ends, cancelled) == before
    kube_rig.kubectl("exec", "ends-trainer-0-a0", "-c", "main", "--", "touch", "/tmp/end", namespace=kube_namespace)
    outside.run("scancel", str(cancelled))
    assert outside.until(ends, "COMPLETED", "FAILED", timeout=60)["state"] == "COMPLETED"
    outside.until(cancelled, "CANCELLED", timeout=60)
    assert list_starts(outside, ends, cancelled) == before
    assert list_accounts(outside, ends) == [[f"{ends}+0", "COMPLETED", "0:0"], [f"{ends}+1", "COMPLETED", "0:0"]]
    lines = ["server-0  | serving", "server-0  | stopped", "trainer-0 | trained", "trainer-0 | training"]
    # The shell has a word of its own for what the signal ended in it.
    assert sorted(line for line in outside.log(ends).splitlines() if line in lines) == lines

    def left() -> str:
        words = ("get", KINDS, "-l", "app.kubernetes.io/managed-by=overspan", "-o", "name")
        return str(kube_rig.kubectl(*words, namespace=kube_namespace).stdout).strip()

    wait_until(lambda: not left(), 60, "nothing to be left in the namespace")
