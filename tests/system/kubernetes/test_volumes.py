"""`span volume` with a real Kubernetes: a trainer and an evaluator that share checkpoints, from an empty namespace."""

from __future__ import annotations

import json
from typing import Any

import yaml
from tests.system.kubernetes.conftest import KubeSpan

NAME = "train-eval-ckpts"
SMALL = {"infra": "kubernetes", "cpus": 0.1}
GROUP: list[dict[str, Any]] = [
    {"name": "train-eval", "execution": "parallel", "primary_tasks": ["trainer"], "termination_delay": "30s"},
    {
        "name": "trainer",
        "resources": SMALL,
        "volumes": {"/checkpoints": NAME},
        "run": "echo 100 > /checkpoints/step; until [ -e /checkpoints/score ]; do sleep 0.1; done",
    },
    {
        "name": "evaluator",
        "resources": SMALL,
        "volumes": {"/checkpoints": NAME},
        "run": "until [ -s /checkpoints/step ]; do sleep 0.1; done\n"
        "until [ -e /checkpoints/look ]; do sleep 0.1; done; cp /checkpoints/step /checkpoints/score",
    },
]


def list_volumes(kube: KubeSpan) -> dict[str, dict[str, object]]:
    """The volumes of the cluster by name."""
    found = json.loads(kube.run("volume", "ls", "-M", "kube", "--json").stdout)["volumes"]
    return {each["name"]: each for each in found}


def test_a_trainer_and_an_evaluator_share_a_volume_that_was_not_there(kube: KubeSpan) -> None:
    text, folder = yaml.safe_dump_all(GROUP), kube.folder / "disk"
    folder.mkdir()
    refused = kube.run("submit", "-", stdin=text, check=False)
    assert refused.returncode and f"there is no volume {NAME} on kube" in refused.stderr, refused.stderr
    assert f"`span volume apply {NAME} --size 100 -M kube`" in refused.stderr
    made = kube.run("volume", "apply", NAME, "--size", "100")
    assert made.stdout == f"Volume {NAME} (100Gi) on kube: made\n"
    assert f"{NAME} is Pending: " in made.stderr
    # The namespace's claims have no class that makes volumes: the cluster's administrator has one made by hand.
    kube.wait_until(lambda: "no storage class is set" in str(list_volumes(kube)[NAME]["message"]), 60, "the cause")
    disk = f"disk-{kube.namespace}"
    spec = {
        "capacity": {"storage": "100Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": kube.namespace, "name": NAME},
    }
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": disk}, "spec": spec}
    kube.rig.apply(volume, namespace=kube.namespace)
    try:
        kube.wait_until(lambda: list_volumes(kube)[NAME]["status"] == "Bound", 60, "the claim to be bound")
        job = kube.submit(text)
        kube.wait_until(lambda: (folder / "step").exists(), 60, "the trainer's checkpoint")
        assert list_volumes(kube)[NAME]["used_by"] == [job]
        held = kube.run("volume", "delete", NAME, check=False)
        assert held.returncode == 1 and f"is mounted by live jobs: {job}" in held.stderr
        larger = kube.run("volume", "apply", NAME, "--size", "200", check=False)
        assert "has 100Gi, and 200Gi is wanted: it has no class" in larger.stderr
        (folder / "look").touch()
        kube.until(job, "COMPLETED", timeout=90)
        assert (folder / "score").read_text() == "100\n"
        wide = yaml.safe_dump({**GROUP[1], "num_nodes": 2})
        assert (
            "mounted by one node at a time (ReadWriteOnce)" in kube.run("submit", "-", stdin=wide, check=False).stderr
        )
        kube.until_empty()
        assert kube.run("volume", "delete", NAME).stdout == f"Volume {NAME} on kube: deleted\n"
        kube.wait_until(lambda: NAME not in list_volumes(kube), 60, "the claim to be gone")
    finally:
        kube.rig.kubectl("delete", "pv", disk, "--wait=false")


def test_a_class_that_is_not_there_is_refused(kube: KubeSpan) -> None:
    refused = kube.run("volume", "apply", "ckpts", "--size", "1", "--class", "gold", check=False)
    assert refused.returncode == 2 and "there is no storage class 'gold'" in refused.stderr
    assert list_volumes(kube) == {}
