"""A real daemon with a real Slurm and a real Kubernetes, both of which are full until a test says otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.leaks import nothing_is_dropped
from tests.rigs.kube import KubeRig
from tests.rigs.plugin import kube_namespace, kube_rig, slurm_rig
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site, site
from tests.waiting import WaitUntil

__all__ = ["kube_namespace", "kube_rig", "nothing_is_dropped", "site", "slurm_rig"]

LABEL = "overspan-test/free"


class Pair(Span):
    """The commands, with the clusters `leo`, a Slurm, and `kube`, a Kubernetes."""

    site: Site
    rig: KubeRig
    namespace: str
    busy = ""

    def connect(self, site: Site, rig: KubeRig, namespace: str) -> None:
        """Write the configuration, and fill both clusters."""
        self.site, self.rig, self.namespace = site, rig, namespace
        kube = {"kubeconfig": str(rig.kubeconfig), "namespace": namespace, "image": "rig/sh:1"}
        clusters = {
            "leo": {"kind": "slurm", "tick": 0.5, **site.access.settings},
            "kube": {"kind": "kubernetes", **kube, "node_selector": {LABEL: "yes"}},
        }
        self.config.write_text(json.dumps({"clusters": clusters}))
        # A session that was broken off may have left the node free.
        self.fill_kube()
        self.busy = site.slurm("sbatch", "--parsable", "--exclusive", "--nodes=3", "--wrap", "sleep 900").strip()
        self.wait_until(lambda: self.slurm_state(self.busy) == "RUNNING", 60, "Slurm's nodes to be taken")

    def free_slurm(self) -> None:
        """Give Slurm's nodes back."""
        if self.busy:
            self.site.slurm("scancel", self.busy)

    def free_kube(self) -> None:
        """Let the pods have a node."""
        assert self.rig.kubectl("label", "node", "node1", f"{LABEL}=yes", "--overwrite").rc == 0

    def fill_kube(self) -> None:
        """Let no more pods have one."""
        assert self.rig.kubectl("label", "node", "node1", f"{LABEL}-").rc == 0

    def slurm_state(self, native: str) -> str:
        """What Slurm's queue says of a native job, or of those of a set: each state once."""
        told = self.site.slurm("squeue", "-ht", "all", "-j", native, "-o", "%T")
        return " ".join(sorted(set(told.split())))

    def pods(self) -> list[dict[str, Any]]:
        """The pods that are there."""
        done = self.rig.kubectl("get", "pods", "-o", "json", namespace=self.namespace)
        found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
        return found

    def until_waiting(self, job: int, pods: int = 1) -> str:
        """Wait until both clusters have the job in their queues; gives the ids of the native jobs."""

        def look() -> str:
            shown = self.job(job)
            places = {each["cluster"]: each["native_id"] for each in (shown, *shown["bids"])}
            return str(places["leo"]) if places.get("leo") and places.get("kube") else ""

        native: str = self.wait_until(look, 60, "both clusters to have the job")
        self.wait_until(lambda: self.slurm_state(native) == "PENDING", 60, "Slurm to keep it")
        self.wait_until(lambda: len(self.pods()) == pods, 60, "Kubernetes to keep it")
        return native

    def until_released(self, native: str) -> None:
        """Wait until neither cluster has anything left of the native jobs and of pods."""
        ended = ("CANCELLED", "COMPLETED", "")
        self.wait_until(lambda: self.slurm_state(native) in ended, 60, "Slurm to have let go")
        self.wait_until(lambda: not self.pods(), 60, "no pod to be left")


@pytest.fixture
def pair(site: Site, kube_rig: KubeRig, kube_namespace: str, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Pair]:
    """Two full clusters, which are empty afterwards."""
    span = Pair(tmp_path, wait_until)
    try:
        span.connect(site, kube_rig, kube_namespace)
        yield span
    finally:
        span.close()
        span.free_slurm()
        span.fill_kube()
