"""The settings of a Kubernetes cluster."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.adapters.kubernetes.samples import configure

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.kubernetes.settings import GpuKind, NodeGpus, Settings, Volume, read_settings
from overspan.bridge.model.errors import InvalidRequest


def test_nothing_is_needed() -> None:
    settings = read_settings(ClusterConfig("kube", "kubernetes"))
    assert settings == Settings(name="kube")
    assert settings.gang == "auto"
    assert settings.default_time == 14 * 86400


def test_everything_is_read() -> None:
    settings = configure(
        root="/shared/overspan/",
        kubeconfig="~/.kube/other",
        context="lab",
        queue="team",
        gang="kueue",
        gang_timeout="2m",
        scheduler="volcano",
        service_account="runner",
        image_pull_secrets="registry",
        priority_classes={"high": "lab-high"},
        cpus=0.5,
        memory="2G",
        gpus={"label": "gpu", "types": {"H100": "H100-80", "mi300": {"resource": "amd.com/gpu"}}},
        gres={"fpga": "example.com/fpga"},
        node_selector={"pool": "gpu"},
        tolerations=[{"operator": "Exists"}],
        labels={"team": "rl"},
        annotations={"a": "b"},
        volumes={
            "data": "datasets",
            "shared": {"nfs": {"server": "s", "path": "/x"}, "path": "/shared", "shared": True, "read_only": True},
        },
        default_time="2-00:00:00",
        cluster_domain="k8s.example.com",
        tick=0.5,
        request_timeout=10,
        kubernetes={"spec": {"runtimeClassName": "nvidia"}},
    )
    assert settings.root == "/shared/overspan"
    assert (settings.gang_timeout, settings.memory, settings.default_time) == (120, 2048, 172800)
    assert settings.image_pull_secrets == ("registry",)
    assert settings.gpus == NodeGpus(
        label="gpu", types={"h100": GpuKind(value=("H100-80",)), "mi300": GpuKind(resource="amd.com/gpu")}
    )
    assert settings.volumes["data"] == Volume(claim="datasets")
    assert settings.volumes["data"].source == {"persistentVolumeClaim": {"claimName": "datasets"}}
    assert settings.volumes["shared"].source == {"nfs": {"server": "s", "path": "/x"}}
    assert settings.volumes["shared"].shared
    assert settings.kubernetes == {"spec": {"runtimeClassName": "nvidia"}}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gnag", "auto"),
        ("gang", "best"),
        ("gang", "kueue"),
        ("gang_timeout", 0),
        ("gang_timeout", "2d"),
        ("namespace", "Lab"),
        ("image", ""),
        ("image_pull_secrets", []),
        ("priority_classes", {"a": 1}),
        ("cpus", -1),
        ("cpus", True),
        ("memory", -1),
        ("gpus", "H100"),
        ("gpus", {"kinds": {}}),
        ("gpus", {"types": ["H100"]}),
        ("gpus", {"types": {"H100": {}}}),
        ("tolerations", {"key": "a"}),
        ("volumes", {"a": {}}),
        ("volumes", {"a": {"claim": "x", "nfs": {}}}),
        ("volumes", {"a": {"claim": "x", "path": "data"}}),
        ("volumes", {"a": {"claim": "x", "shared": True}}),
        ("volumes", {"a": {"nfs": "x"}}),
        ("volumes", {"a": 3}),
        ("default_time", "UNLIMITED"),
        ("cluster_domain", "Cluster.Local"),
        ("tick", 0),
        ("kubernetes", ["spec"]),
    ],
)
def test_mistakes_name_the_key(key: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_settings(ClusterConfig("kube", "kubernetes", {key: value}))
    assert "clusters.kube" in str(caught.value)
    assert key in str(caught.value)


def test_a_root_is_on_a_volume_that_both_sides_have() -> None:
    volumes = {"home": {"claim": "home", "path": "/home", "shared": True}, "data": {"claim": "data", "path": "/data"}}
    assert configure("/home/span", volumes=volumes).root == "/home/span"
    for root in ("/data/span", "/homes", "/"):
        with pytest.raises(InvalidRequest, match="root"):
            configure(root, volumes=volumes)
