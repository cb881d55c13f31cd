"""Pods reach a daemon behind NAT on a real Kubernetes: by a pod in which the daemon's tunnel ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.kube import KubeRig
from tests.system.kubernetes.conftest import KubeSpan
from tests.system.watchers import open_for_jobs, train_and_evaluate, write_programs

PYTHON = "rig/python:1"
HOST, PORT = "way-home", 7433


@pytest.fixture
def span(kube: KubeSpan, kube_rig: KubeRig, kube_namespace: str, tmp_path: Path) -> Iterator[KubeSpan]:
    """A daemon that listens for jobs on its own machine alone, with a folder for checkpoints."""
    folder = tmp_path / "checkpoints"
    write_programs(folder)
    volume = {"hostPath": {"path": str(folder)}, "path": "/checkpoints"}
    settings = {"image": PYTHON, "cpus": 0.1, "volumes": {"checkpoints": volume}, "daemon_tunnel": True}
    kube.connect(kube_rig, kube_namespace, **settings)
    open_for_jobs(kube, f"{HOST}:{PORT}")
    yield kube
    # What the tunnel has there stays for the next daemon, and one that has no tunnel leaves it alone.
    kube.run("shutdown")
    kube.connect(kube_rig, kube_namespace)
    kube.kubectl("delete", "pod,service", HOST, "--ignore-not-found")


def find_tunnel(span: KubeSpan) -> dict[str, object]:
    """What `span check` says of it."""
    answer = json.loads(span.look("check", "--json", "kube", check=False))
    (found,) = (finding for finding in answer["findings"] if finding["what"] == "tunnel for jobs")
    return dict(found)


def test_a_watcher_in_a_pod_launches_evaluations_by_the_tunnel_also_when_its_pod_was_deleted(span: KubeSpan) -> None:
    train_and_evaluate(span, "/checkpoints")
    assert find_tunnel(span)["works"]
    span.kubectl("delete", "pod", HOST, "--grace-period=0", "--force")
    job = span.submit("name: asks\nresources: {cpus: 0.1}\nrun: until squeue -h -o %j; do sleep 1; done\n")
    span.until(job, "COMPLETED", timeout=120)
    assert "asks" in span.log(job)
    assert find_tunnel(span)["works"]


def test_a_name_that_something_else_has_is_said_and_left_alone(span: KubeSpan) -> None:
    span.kubectl("create", "service", "clusterip", HOST, "--tcp=80")
    span.wait_until(lambda: "is not a tunnel's" in str(find_tunnel(span)["seen"]), 60, "the conflict")
    assert HOST not in span.pods()
    span.kubectl("delete", "service", HOST)
    span.wait_until(lambda: find_tunnel(span)["works"], 90, "the tunnel to be open")
