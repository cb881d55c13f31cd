"""A real daemon with a real Kubernetes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.leaks import nothing_is_dropped
from tests.rigs.kube import KubeRig
from tests.rigs.plugin import kube_namespace, kube_rig
from tests.system.conftest import Span
from tests.waiting import WaitUntil

__all__ = ["kube_namespace", "kube_rig", "nothing_is_dropped"]

KINDS = "pods,services,secrets,podgroups,configmaps"
WAITS = "until [ -e /tmp/end ]; do sleep 0.1; done"
"""What a program does until the test lets it go on."""


class KubeSpan(Span):
    """The commands, with a cluster `kube` that is a namespace of the rig."""

    rig: KubeRig
    namespace: str

    def connect(self, rig: KubeRig, namespace: str, **settings: Any) -> None:
        """Write the configuration; settings of the cluster as the file has them."""
        self.rig, self.namespace = rig, namespace
        # The scripts of several tests share small nodes, and are not about CPUs.
        usual = {"image": "rig/sh:1", "cpus": 0}
        given = {"kubeconfig": str(rig.kubeconfig), "namespace": namespace, **usual, **settings}
        clusters = {"kube": {"kind": "kubernetes", **given}}
        self.config.write_text(json.dumps({"default_cluster": "kube", "clusters": clusters}))

    def kubectl(self, *words: str) -> str:
        """What kubectl says of the namespace."""
        done = self.rig.kubectl(*words, namespace=self.namespace)
        assert done.rc == 0, done.stderr
        return done.stdout

    def pods(self) -> dict[str, dict[str, Any]]:
        """The namespace's pods by name."""
        return {
            item["metadata"]["name"]: item for item in json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        }

    def let_go(self, pod: str) -> None:
        """Let a program go on that waits for it."""
        self.kubectl("exec", pod, "-c", "main", "--", "touch", "/tmp/end")

    def node_of(self, pod: str) -> int:
        """The number of the node that a pod is on."""
        return int(self.pods()[pod]["spec"]["nodeName"].removeprefix("node"))

    def time_of(self, job: int, cause: str) -> float:
        """When the first event of a kind was in a job's timeline."""
        told = next(row["at"] for row in self.timeline(job) if row["cause"] == cause)
        return datetime.fromisoformat(told).replace(tzinfo=UTC).timestamp()

    def left(self) -> list[str]:
        """What of Overspan's is in the namespace."""
        found = self.kubectl("get", KINDS, "-l", "app.kubernetes.io/managed-by=overspan", "-o", "json")
        return [f"{item['kind']} {item['metadata']['name']}" for item in json.loads(found)["items"]]

    def until_empty(self, timeout: float = 30) -> None:
        """Wait until nothing is left in the namespace."""
        self.wait_until(lambda: not self.left(), timeout, "nothing to be left in the namespace")

    def close(self) -> None:
        """Cancel what runs, see that nothing stays, and end the daemon."""
        self.run("scancel", "--me", check=False)
        self.until_empty()
        super().close()


def log_in(kube: KubeSpan, account: str) -> Path:
    """A kubeconfig with a new token of a service account."""
    done = kube.kubectl("create", "token", account, "--duration=10m").strip()
    config = yaml.safe_load(kube.rig.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": done}
    file = Path(kube.folder) / "kubeconfig"
    file.write_text(json.dumps(config))
    return file


def list_processes(pod: dict[str, Any]) -> list[int]:
    """The processes of a pod's containers, by their control groups."""
    containers = [each["containerID"].rpartition("/")[2] for each in pod["status"]["containerStatuses"]]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            groups = (folder / "cgroup").read_text()
            if any(container in groups for container in containers):
                found.append(int(folder.name))
    return found


@pytest.fixture
def kube(kube_rig: KubeRig, kube_namespace: str, tmp_path: Path, wait_until: WaitUntil) -> Iterator[KubeSpan]:
    """A daemon of its own whose cluster `kube` is a new namespace; afterwards nothing is left in it."""
    span = KubeSpan(tmp_path, wait_until)
    span.connect(kube_rig, kube_namespace)
    yield span
    span.close()
