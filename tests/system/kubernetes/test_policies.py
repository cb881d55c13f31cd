"""What a site and a file ask of pods, as it is on the pods of a real cluster: classes, labels, overlays, claims."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator

import pytest
import yaml
from tests.system.kubernetes.conftest import KubeSpan
from tests.system.kubernetes.gates import Gate
from tests.system.kubernetes.priorities import priority_class

GATE = "kueue.x-k8s.io/admission"
QUEUE = "kueue.x-k8s.io/queue-name"
MEMBERS = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"


def test_class_labels_and_overlays_are_on_every_pod(kube: KubeSpan) -> None:
    gate = Gate(kube)
    run = "id -u; until [ -e /gate/open ]; do sleep 0.1; done"
    with priority_class(kube, 77) as high:
        kube.connect(
            kube.rig,
            kube.namespace,
            labels={"site": "here"},
            annotations={"cost": "team-1"},
            priority_classes={"urgent": high},
            kubernetes={"spec": {"containers": [{"securityContext": {"allowPrivilegeEscalation": False}}]}},
            volumes=gate.volume,
        )
        resources = {"cpus": 0.1, "priority_class": "urgent", "labels": {"team": "rl"}}
        overlay = {"metadata": {"labels": {"phase": "train"}}, "spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}
        documents = [
            {"name": "marked", "execution": "parallel", "kubernetes": overlay},
            {"name": "a", "num_nodes": 2, "resources": resources, "run": run},
            {
                "name": "b",
                "resources": resources,
                "run": run,
                "kubernetes": {"spec": {"securityContext": {"runAsUser": 1234}}},
            },
        ]
        job = kube.submit(yaml.safe_dump_all(documents))
        kube.until(job, "RUNNING")
        pods = kube.pods()
        assert set(pods) == {"marked-a-0-a0", "marked-a-1-a0", "marked-b-0-a0"}
        for name, pod in pods.items():
            labels, spec = pod["metadata"]["labels"], pod["spec"]
            assert {key: labels.get(key) for key in ("site", "team", "phase")} == {
                "site": "here",
                "team": "rl",
                "phase": "train",
            }
            assert pod["metadata"]["annotations"]["cost"] == "team-1"
            assert (spec["priorityClassName"], spec["priority"]) == (high, 77)
            assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
            main = next(one for one in spec["containers"] if one["name"] == "main")
            assert main["securityContext"]["allowPrivilegeEscalation"] is False
            assert (spec.get("securityContext") or {}).get("runAsUser") == (1234 if "-b-" in name else None)
        chosen = f"overspan.io/name=marked,overspan.io/user={getpass.getuser()},overspan.io/task=a"
        assert kube.kubectl("get", "pods", "-o", "name", "-l", chosen).split() == [
            "pod/marked-a-0-a0",
            "pod/marked-a-1-a0",
        ]
        gate.open()
        kube.until(job, "COMPLETED", timeout=60)
        assert (kube.log(job, "a", "--node", "1"), kube.log(job, "b")) == ("0\n", "1234\n")


def test_a_restricted_namespace_takes_groups_scripts_and_files(kube: KubeSpan) -> None:
    kube.kubectl("label", "namespace", kube.namespace, "pod-security.kubernetes.io/enforce=restricted")
    refused = kube.run("check", "kube", check=False)
    assert "violates PodSecurity" in refused.stdout and "`security: restricted`" in refused.stdout
    kube.run("shutdown")
    # The image's user is root: somebody else has to be named.
    somebody = {"spec": {"securityContext": {"runAsUser": 1000}}}
    kube.connect(kube.rig, kube.namespace, security="restricted", kubernetes=somebody)
    assert kube.run("check", "kube").returncode == 0
    source = kube.folder / "words"
    source.mkdir()
    (source / "text").write_text("from here\n")
    small = {"resources": {"cpus": 0.1}, "file_mounts": {"/tmp/words": str(source)}}
    documents = [
        {"name": "closed", "execution": "parallel"},
        {"name": "a", "run": "id -u; cat /tmp/words/text", **small},
        {"name": "b", "run": "id -u", **small},
    ]
    job = kube.submit(yaml.safe_dump_all(documents))
    script = kube.wrap("id -u")
    kube.until(job, "COMPLETED", timeout=60)
    kube.until(script, "COMPLETED", timeout=60)
    assert (kube.log(job, "a"), kube.log(job, "b"), kube.log(script)) == ("1000\nfrom here\n", "1000\n", "1000\n")


def test_a_claim_is_mounted_in_all_members(kube: KubeSpan) -> None:
    name, folder = f"data-{kube.namespace}", kube.folder / "volume"
    folder.mkdir()
    (folder / "words").write_text("from the volume\n")
    common = {"storageClassName": "", "accessModes": ["ReadWriteMany"]}
    volume = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder)}, **common}
    claim = {"volumeName": name, "resources": {"requests": {"storage": "1Gi"}}, **common}
    kube.rig.apply(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim},
        namespace=kube.namespace,
    )
    try:
        kube.rig.await_field("pvc", "data", ".status.phase", "Bound", kube.namespace)
        small = {"resources": {"cpus": 0.1}, "volumes": {"/data": "data"}}
        run = "cat /data/words; echo $OVERSPAN_HOST > /data/$OVERSPAN_HOST"
        documents = [
            {"name": "claims", "execution": "parallel"},
            {"name": "a", "num_nodes": 2, "run": run, **small},
            {"name": "b", "run": run, **small},
        ]
        job = kube.submit(yaml.safe_dump_all(documents))
        kube.until(job, "COMPLETED", timeout=60)
        hosts = {"a-0.claims", "a-1.claims", "b-0.claims"}
        assert {path.name: path.read_text() for path in folder.iterdir() if path.name != "words"} == {
            host: f"{host}\n" for host in hosts
        }
        assert kube.log(job, "a", "--node", "1") == "from the volume\n" == kube.log(job, "b")
        kube.until_empty()
    finally:
        # A claim that a pod uses is kept by its own finalizer until the pod has gone.
        kube.rig.kubectl("delete", "pvc", "data", "--wait=false", namespace=kube.namespace)
        kube.rig.kubectl("delete", "pv", name, "--wait=false")


LOCAL_QUEUE = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "localqueues.kueue.x-k8s.io"},
    "spec": {
        "group": "kueue.x-k8s.io",
        "names": {"kind": "LocalQueue", "plural": "localqueues", "singular": "localqueue"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}
"""So much of Kueue is in the cluster: its queues. The test plays the rest."""


@pytest.fixture
def queue(kube: KubeSpan) -> Iterator[str]:
    """A LocalQueue."""
    name, path = "team-queue", f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{kube.namespace}/localqueues"
    kube.rig.apply(LOCAL_QUEUE, namespace=kube.namespace)
    try:
        body = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": {"name": name}}
        kube.wait_until(lambda: kube.rig.call("POST", path, body).status == 201, 30, "a queue")
        yield name
    finally:
        kube.rig.kubectl("delete", "crd", "localqueues.kueue.x-k8s.io")


def test_pods_that_a_queue_gates_are_marked_as_one_group_and_wait_until_all_are_let_go(
    kube: KubeSpan, queue: str
) -> None:
    # The gate is what Kueue's webhook would add, and its removal is an admission.
    gated = {"spec": {"schedulingGates": [{"name": GATE}]}}
    kube.connect(kube.rig, kube.namespace, gang="kueue", queue=queue, kubernetes=gated)
    documents = [
        {"name": "queued", "execution": "parallel"},
        {"name": "a", "num_nodes": 2, "resources": {"cpus": 0.1}, "run": "echo ran"},
        {"name": "b", "resources": {"cpus": 0.1}, "run": "echo ran"},
    ]
    job = kube.submit(yaml.safe_dump_all(documents))
    kube.wait_until(lambda: len(kube.pods()) == 3 and kube.job(job)["reason"] == "Resources", 30, "the gated wait")
    pods = kube.pods()
    assert {pod["metadata"]["labels"][QUEUE] for pod in pods.values()} == {queue}
    assert len({pod["metadata"]["labels"][MEMBERS] for pod in pods.values()}) == 1
    assert {pod["metadata"]["annotations"][TOTAL] for pod in pods.values()} == {"3"}
    assert not any(pod["spec"].get("nodeName") for pod in pods.values())
    assert kube.job(job)["state"] == "PENDING"
    for name in pods:
        kube.kubectl("patch", "pod", name, "--type=merge", "-p", json.dumps({"spec": {"schedulingGates": None}}))
    kube.until(job, "COMPLETED", timeout=60)
    assert kube.log(job, "a", "--node", "1") == "ran\n"
    kube.until_empty()
