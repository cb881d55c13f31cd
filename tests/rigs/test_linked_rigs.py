"""Slurm's nodes and Kubernetes' pods reach each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.rigs.kube import PYTHON_IMAGE, KubeRig, make_pod
from tests.rigs.links import link_rigs
from tests.rigs.reach import find_address
from tests.rigs.slurm import SlurmRig

SERVE = "cd /tmp && echo {page} > page && exec python3 -m http.server 8000"
FETCH = """\
import sys, time, urllib.request
for _ in range(1200):
    try:
        print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())
        break
    except OSError:
        time.sleep(0.1)
"""


@pytest.fixture
def linked(kube_rig: KubeRig, slurm_rig: SlurmRig) -> Iterator[None]:
    with link_rigs(kube_rig, slurm_rig):
        yield


@pytest.mark.usefixtures("linked")
class TestLinkedRigs:
    def test_a_step_reaches_a_pod(self, kube_rig: KubeRig, slurm_rig: SlurmRig, kube_namespace: str) -> None:
        kube_rig.apply(make_pod("server", SERVE.format(page="pod"), PYTHON_IMAGE), namespace=kube_namespace)
        kube_rig.await_field("pod", "server", ".status.phase", "Running", kube_namespace)
        pod = kube_rig.call("GET", f"/api/v1/namespaces/{kube_namespace}/pods/server").body
        done = slurm_rig.run(["srun", "python3", "-c", FETCH, f"http://{pod['status']['podIP']}:8000/page"])
        assert done.stdout.split() == ["pod"], done.stderr

    def test_a_pod_reaches_a_step(self, kube_rig: KubeRig, slurm_rig: SlurmRig, kube_namespace: str) -> None:
        job = slurm_rig.run(["sbatch", "--parsable", "-w", "node2", "--wrap", SERVE.format(page="step")])
        try:
            pod = make_pod("client", "", PYTHON_IMAGE)
            address = find_address(slurm_rig, "node2")
            pod["spec"]["containers"][0]["command"] = ["python3", "-c", FETCH, f"http://{address}:8000/page"]
            kube_rig.apply(pod, namespace=kube_namespace)
            kube_rig.await_field("pod", "client", ".status.phase", "Succeeded", kube_namespace)
            assert kube_rig.kubectl("logs", "client", namespace=kube_namespace).stdout.split() == ["step"]
        finally:
            slurm_rig.run(["scancel", job.stdout.strip()])
