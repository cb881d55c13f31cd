"""Partitions of the configuration: what jobs are refused, where their pods go, and what sinfo shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_objects import Key
from tests.unit.adapters.kubernetes.bench import Bench, play
from tests.unit.adapters.kubernetes.samples import read_script

from overspan.adapters.contract import ClusterConfig, Launch
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.launches.submission import render_launch
from overspan.adapters.kubernetes.manifests.partitions import find_refusal, settle_partition
from overspan.adapters.kubernetes.settings import Settings, read_settings
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job

TAINT = {"key": "gpu", "operator": "Exists"}
TABLE: dict[str, Any] = {
    "cpu": {"node_selector": {"pool": "cpu"}, "time": "2:00:00"},
    "gpu": {"node_selector": {"pool": "gpu"}, "tolerations": [TAINT], "queue": "gpus"},
}


def configure(**settings: Any) -> Settings:
    given = {"image": "any/sh:1", "partitions": TABLE, **settings}
    return read_settings(ClusterConfig("lab", "kubernetes", given))


def script(options: str) -> Job:
    return read_script(f"#!/bin/sh\n#SBATCH {options}\necho\n")


def pod_of(job: Job, settings: Settings, backend: GangBackend = GangBackend.SOFT) -> dict[str, Any]:
    launch = Launch("inst-8-0", job)
    (pod,) = render_launch(launch, settings.model_copy(update={"namespace": "default"}), backend)[1].pods
    return pod


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-p cpu", ""),
        ("-p gpu -t 3:00:00", ""),
        ("-t 1:00:00", ""),
        ("-p nosuch", "invalid partition specified: nosuch"),
        ("-p cpu,nosuch", "invalid partition specified: nosuch"),
        ("-p cpu -t 3:00:00", "Requested time limit is invalid (missing or exceeds some limit)"),
        ("-t 3:00:00", "Requested time limit is invalid (missing or exceeds some limit)"),
        ("-p cpu,gpu -t 3:00:00", ""),
        ("--reservation=mine", "Requested reservation is invalid"),
    ],
)
def test_what_a_partition_cannot_have_is_refused_in_slurms_words(options: str, words: str) -> None:
    assert find_refusal(script(options), configure()) == words


def test_without_a_table_the_cluster_is_one_partition_and_each_local_queue_is() -> None:
    assert find_refusal(script("-p lab"), Settings(name="lab")) == ""
    assert find_refusal(script("-p other"), Settings(name="lab")) == "invalid partition specified: other"
    assert find_refusal(script("-p other"), Settings(name="lab", queue="team")) == ""
    assert settle_partition(Settings(name="lab", queue="team"), "other").queue == "other"


def test_pods_go_to_the_nodes_of_their_partition() -> None:
    settings = configure(node_selector={"zone": "a"})
    spec = pod_of(script("-p gpu"), settings)["spec"]
    assert spec["nodeSelector"] == {"zone": "a", "pool": "gpu"} and TAINT in spec["tolerations"]
    spec = pod_of(script("-J one"), settings)["spec"]
    # One that names no partition is in the first, and ends with its limit.
    assert spec["nodeSelector"] == {"zone": "a", "pool": "cpu"} and TAINT not in spec["tolerations"]
    assert spec["activeDeadlineSeconds"] < 4 * 7200
    labels = pod_of(script("-p gpu"), settings, GangBackend.KUEUE)["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "gpus"
    # It was taken out of the settings under a job that is there.
    assert pod_of(script("-p old"), settings)["spec"]["nodeSelector"] == {"zone": "a"}


def test_nodes_that_a_script_names_are_asked_for_by_name() -> None:
    spec = pod_of(script("-w n[1-2] -x n3"), configure())["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [
        {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]},
                {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n3"]},
            ]
        }
    ]


def test_sinfo_and_jobs_name_the_same_partitions(api: KubernetesApi, tmp_path: Path) -> None:
    async def story() -> None:
        for name, pool in (("n1", "cpu"), ("n2", "gpu")):
            status = {"allocatable": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
            node = {"metadata": {"name": name, "labels": {"pool": pool}}, "spec": {}, "status": status}
            api.objects.create(Key("", "nodes", ""), node)
        async with Bench(api, tmp_path, partitions=TABLE).open() as cluster:
            found = [(node.name, node.partition, node.default, node.time_limit) for node in await cluster.nodes()]
            assert found == [("n1", "cpu", True, 7200), ("n2", "gpu", False, None)]
            assert cluster.default_partition() == "cpu"
            refusal = await cluster.admit(script("-p nosuch"))
            assert refusal is not None and "partitions of kube: cpu, gpu" in refusal.remedy
            refusal = await cluster.admit(script("-w nosuch"))
            assert refusal is not None and refusal.message == "Invalid node name specified"
            assert await cluster.admit(script("-w n1")) is None

    play(story)


@pytest.mark.parametrize("table", [[], {}, {"a b": {}}, {"a": {"pool": "x"}}, {"a": {"time": "soon"}}, {"a": 7}])
def test_a_table_that_cannot_be_read_is_refused(table: Any) -> None:
    with pytest.raises(InvalidRequest, match="partitions"):
        configure(partitions=table)
