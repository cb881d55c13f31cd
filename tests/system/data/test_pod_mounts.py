"""MOUNT in pods whose node gives them /dev/fuse: read through the store, with no right and no trace on the node."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rigs.device_plugin import RESOURCE, offer_fuse
from tests.rigs.kube import PYTHON_IMAGE, KubeRig
from tests.stores import TestStore, configure_store, lend_bucket, run_store
from tests.system.kubernetes.conftest import KubeSpan, kube, kube_namespace, kube_rig, list_processes
from tests.system.watchers import find_own_address
from tests.waiting import WaitUntil

__all__ = ["kube", "kube_namespace", "kube_rig"]

MOUNT = "resources: {cpus: 0.1, memory: 100M}\nfile_mounts: {/data: {source: s3://lab/run, mode: MOUNT}}\n"
KIND = "fuse.overspan"
WAITING = MOUNT + "grace_period: 2\nrun: cat /data/a; echo begun; while sleep 0.2; do cat /data/a; done\n"


@pytest.fixture(name="fuse_rig")
def offer(kube_rig: KubeRig) -> Iterator[KubeRig]:
    """The rig, whose first node alone gives the device; a kubelet that starts again has forgotten who offers it."""
    with offer_fuse(kube_rig, 1):
        yield kube_rig


@pytest.fixture(scope="module", name="shared_store")
def share_store(kube_rig: KubeRig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestStore]:
    """moto's server, where pods reach it."""
    with run_store(tmp_path_factory.mktemp("store"), find_own_address(kube_rig.find_node_address(1))) as store:
        yield store


@pytest.fixture
def store(shared_store: TestStore) -> Iterator[TestStore]:
    """The store with an empty bucket `lab`."""
    with lend_bucket(shared_store) as store:
        yield store


@pytest.fixture
def lab(kube: KubeSpan, fuse_rig: KubeRig, kube_namespace: str, store: TestStore, tmp_path: Path) -> KubeSpan:
    """A daemon that knows the rig, the store and the device."""
    kube.connect(fuse_rig, kube_namespace, image=PYTHON_IMAGE, data_fuse=RESOURCE)
    settings = json.loads(kube.config.read_text())
    settings["stores"] = configure_store(store, tmp_path)
    kube.config.write_text(json.dumps(settings))
    return kube


def only_pod(span: KubeSpan) -> dict[str, Any]:
    """The one pod of the namespace."""
    (pod,) = span.pods().values()
    return pod


def find_folder(span: KubeSpan, pod: dict[str, Any]) -> Path:
    """The folder of a pod on its node."""
    uid: str = pod["metadata"]["uid"]
    return span.rig.state / "node1" / "lib" / "kubelet" / "pods" / uid


def read_mounts(pid: int) -> str:
    """What a process has mounted."""
    return Path(f"/proc/{pid}/mounts").read_text()


def find_parent(pid: int) -> int:
    """The parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def find_first(pod: dict[str, Any]) -> int:
    """The first process of the task's container: it alone has 1 as its number there."""
    return next(pid for pid in list_processes(pod) if read_number(pid) == 1)


def read_number(pid: int) -> int:
    """A process's number in its own namespace; 0 for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return int(next(line.split()[-1] for line in lines if line.startswith("NSpid:")))


def test_a_large_object_is_read_in_part_a_new_one_is_seen_and_what_is_written_is_sent(
    lab: KubeSpan, store: TestStore, wait_until: WaitUntil
) -> None:
    bucket = store.open("lab")
    bucket.put("run/large", b"head" + bytes(60_000_000))
    job = lab.submit(
        MOUNT + "run: head -c 4 /data/large; echo; echo mine > /data/mine; echo begun;"
        " until [ -e /data/new ]; do sleep 0.2; done; cat /data/new; rm /data/large\n"
    )
    wait_until(lambda: "begun" in lab.log(job), 90, "the program to begin")
    pod = only_pod(lab)
    assert pod["spec"]["nodeName"] == "node1"
    # Nothing was brought: the node's disk has what was written alone.
    volumes = find_folder(lab, pod) / "volumes" / "kubernetes.io~empty-dir"
    (files,) = volumes.glob("overspan-data/data/*/*/files")
    assert [each.name for each in files.iterdir()] == ["mine"]
    bucket.put("run/new", b"seen\n")
    lab.until(job, "COMPLETED", timeout=90)
    assert "head" in lab.log(job) and "seen" in lab.log(job) and "s3://lab/run is read through" in lab.log(job)
    assert store.texts("lab", "run/") == {"run/new": b"seen\n", "run/mine": b"mine\n"}


def test_nothing_of_a_mount_is_on_the_node_nor_outlives_a_pod_that_is_deleted_at_once(
    lab: KubeSpan, store: TestStore, wait_until: WaitUntil
) -> None:
    store.open("lab").put("run/a", b"1\n")
    job = lab.submit(WAITING)
    wait_until(lambda: "begun" in lab.log(job), 90, "the program to begin")
    pod = only_pod(lab)
    first = find_first(pod)
    # The parent of its shim is a process of the node, and no pod's.
    node = find_parent(find_parent(first))
    assert KIND in read_mounts(first) and KIND not in read_mounts(node)
    lab.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
    wait_until(lambda: not list_processes(pod) and not os.path.exists(f"/proc/{first}"), 60, "the processes to end")
    assert KIND not in read_mounts(node)
    lab.run("scancel", str(job))
    lab.until(job, "CANCELLED", timeout=90)
    wait_until(lambda: not find_folder(lab, pod).exists(), 120, "the pod's folder to be gone")


def test_a_kubelet_that_is_started_again_changes_nothing(
    lab: KubeSpan, store: TestStore, wait_until: WaitUntil
) -> None:
    store.open("lab").put("run/a", b"1\n")
    job = lab.submit(
        MOUNT + "run: cat /data/a; echo begun; until [ -e /data/end ]; do sleep 0.2; done; cat /data/end\n"
    )
    wait_until(lambda: "begun" in lab.log(job), 90, "the program to begin")
    lab.rig.control("stop", "node1-kubelet")
    lab.rig.control("start", "node1-kubelet")
    store.open("lab").put("run/end", b"over\n")
    lab.until(job, "COMPLETED", timeout=120)
    assert "over" in lab.log(job)


def test_a_pod_that_may_not_mount_has_all_of_it_brought_and_says_so(lab: KubeSpan, store: TestStore) -> None:
    store.open("lab").put("run/a", b"1\n")
    # The runtime's filter lets no program make a user namespace.
    context = "securityContext: {seccompProfile: {type: RuntimeDefault}}"
    native = f"kubernetes: {{spec: {{containers: [{{name: main, {context}}}]}}}}\n"
    job = lab.submit(MOUNT + native + "run: cat /data/a; echo mine > /data/mine\n")
    lab.until(job, "COMPLETED", timeout=90)
    assert "s3://lab/run was brought here whole before the start" in lab.log(job)
    assert store.texts("lab", "run/")["run/mine"] == b"mine\n"


def test_a_pod_that_is_not_root_s_and_has_no_capability_mounts(lab: KubeSpan, store: TestStore) -> None:
    store.open("lab").put("run/a", b"1\n")
    context = "{runAsUser: 1000, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}"
    native = f"kubernetes: {{spec: {{containers: [{{name: main, securityContext: {context}}}]}}}}\n"
    job = lab.submit(MOUNT + native + "run: cat /data/a; id -u; echo mine > /data/mine; rm /data/a\n")
    lab.until(job, "COMPLETED", timeout=90)
    assert lab.log(job).split()[-2:] == ["1", "1000"] and "s3://lab/run is read through" in lab.log(job)
    assert store.texts("lab", "run/") == {"run/mine": b"mine\n"}


def test_the_check_tells_how_many_nodes_have_the_device(lab: KubeSpan) -> None:
    assert f"1 of 2 nodes have {RESOURCE}" in lab.look("check", "kube")
