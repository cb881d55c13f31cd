"""The configuration of a Kubernetes cluster changes under running pods: none ends, none is made twice, all is said.

Row CS07 of docs/acceptance.md.
"""

from __future__ import annotations

import json
from typing import Any

from tests.system.kubernetes.conftest import WAITS, KubeSpan


def configure(kube: KubeSpan, **namespaces: str) -> None:
    """Have entries for these namespaces of the rig, and a new daemon."""
    kube.run("shutdown", check=False)
    common = {"kind": "kubernetes", "kubeconfig": str(kube.rig.kubeconfig), "image": "rig/sh:1"}
    entries = {name: {**common, "namespace": namespace} for name, namespace in namespaces.items()}
    kube.config.write_text(json.dumps({"clusters": entries}))


def submit(kube: KubeSpan, cluster: str, command: str) -> int:
    text = {"name": "work", "resources": {"infra": f"kubernetes/{cluster}", "cpus": 0.01}, "run": command}
    return kube.submit(json.dumps(text))


def living(kube: KubeSpan) -> dict[str, str]:
    """The uids of the pods that are not being deleted."""
    metadata: list[dict[str, Any]] = [pod["metadata"] for pod in kube.pods().values()]
    return {each["name"]: each["uid"] for each in metadata if "deletionTimestamp" not in each}


def test_a_renamed_removed_or_moved_entry_leaves_its_pods_alone(kube: KubeSpan) -> None:
    home = kube.namespace
    configure(kube, lab=home, py=home)
    stays = submit(kube, "lab", WAITS)
    kube.until(stays, "RUNNING", timeout=60)
    (pod,) = pods = living(kube)
    for entries, words in (
        ({"lab3": home, "py": home}, "does not name the cluster lab"),
        ({"lab": "default", "py": home}, "jobs of lab are at kubernetes"),
    ):
        configure(kube, **entries)
        ended = submit(kube, "py", "true")
        kube.until(ended, "COMPLETED", timeout=60)
        # What that one had is let go, and nothing else.
        kube.wait_until(lambda: living(kube) == pods, 30, "the ended pod to be let go")
        assert kube.job(stays)["state"] == "RUNNING"
        checked, ping = kube.run("check", "lab", check=False), kube.run("ping", check=False)
        assert (checked.returncode, ping.returncode) == (1, 1)
        for text in (ping.stdout, checked.stdout, kube.run("clusters").stdout, kube.run("show", str(stays)).stdout):
            assert words in " ".join(text.split()), text
        kube.run("fsck", "py", "--release")
        assert living(kube) == pods
    configure(kube, lab=home, py=home)
    assert kube.run("ping").returncode == 0
    kube.let_go(pod)
    kube.until(stays, "COMPLETED", timeout=60)
