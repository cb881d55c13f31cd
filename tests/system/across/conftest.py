"""A real daemon with a real Slurm and a real Kubernetes that share a folder under names of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.leaks import nothing_is_dropped
from tests.rigs.joined import join_networks
from tests.rigs.kube import KubeRig
from tests.rigs.plugin import kube_namespace, kube_rig, slurm_rig
from tests.system.kubernetes.conftest import KubeSpan
from tests.system.slurm.conftest import Site, site
from tests.waiting import WaitUntil

__all__ = ["kube_namespace", "kube_rig", "nothing_is_dropped", "site", "slurm_rig"]

FOLDER = "/home/researcher"
"""The shared folder on Slurm's nodes."""
MOUNTED = "/mnt/lab"
"""The shared folder in pods."""


class Lab(KubeSpan):
    """The commands, with the clusters `leo`, a Slurm, and `kube`, a Kubernetes."""

    site: Site

    def join(self, site: Site, rig: KubeRig, namespace: str) -> None:
        """Write the configuration of both."""
        self.site = site
        self.connect(rig, namespace)
        settings: dict[str, Any] = json.loads(self.config.read_text())
        volume = {"hostPath": {"path": f"{site.rig.home}/researcher"}}
        settings["clusters"]["kube"]["paths"] = {"lab": {"path": MOUNTED, "volume": volume}}
        leo = {"kind": "slurm", "tick": 0.5, **site.access.settings, "paths": {"lab": FOLDER}}
        settings["clusters"]["leo"] = leo
        self.config.write_text(json.dumps(settings))


@pytest.fixture
def joined(site: Site, kube_rig: KubeRig) -> Iterator[None]:
    """Nodes and pods reach each other."""
    with join_networks(site.rig, kube_rig):
        yield


@pytest.fixture
def lab(site: Site, kube_rig: KubeRig, kube_namespace: str, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Lab]:
    """Both clusters, and a folder that both have."""
    span = Lab(tmp_path, wait_until)
    span.join(site, kube_rig, kube_namespace)
    yield span
    span.close()
