"""What a task asks of its nodes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.adapters.kubernetes.samples import configure, main_of, read_file, read_script, render_job, variables_of

from overspan.adapters.kubernetes.manifests.resources import note_needs, render_needs
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.spec import TaskSpec

GPUS = {
    "types": {
        "H100": ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-NVL"],
        "A100": "NVIDIA-A100-SXM4-80GB",
        "MI300": {"resource": "amd.com/gpu", "value": "mi300x", "label": "amd.com/gpu.product-name"},
    }
}
NODE_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"


def task_of(resources: str) -> TaskSpec:
    return read_file(f"name: t\nresources: {resources}\nrun: echo\n").spec.tasks[0]


def needs_of(resources: str, **settings: Any) -> tuple[dict[str, str], dict[str, str]]:
    found = render_needs(task_of(resources), configure(**settings))
    return found.requests, found.limits


@pytest.mark.parametrize(
    ("resources", "requests", "limits"),
    [
        ("{}", {}, {}),
        ("{cpus: 4}", {"cpu": "4"}, {}),
        ("{cpus: 0.25, memory: 0.5}", {"cpu": "250m", "memory": "512Mi"}, {"memory": "512Mi"}),
        ("{cpus: 4+, memory: 16+}", {"cpu": "4", "memory": "16384Mi"}, {}),
        ("{cpus: 4, memory: 2x}", {"cpu": "4", "memory": "8192Mi"}, {"memory": "8192Mi"}),
        ("{gpus: 2}", {"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "2"}),
    ],
)
def test_requests_and_limits(resources: str, requests: dict[str, str], limits: dict[str, str]) -> None:
    assert needs_of(resources) == (requests, limits)


def test_the_cluster_s_own_for_tasks_that_name_none() -> None:
    assert needs_of("{}", cpus=1, memory="4G") == ({"cpu": "1", "memory": "4096Mi"}, {"memory": "4096Mi"})
    assert needs_of("{cpus: 2, memory: 1}", cpus=1, memory="4G")[0] == {"cpu": "2", "memory": "1024Mi"}


@pytest.mark.parametrize(
    ("options", "settings", "requests"),
    [
        ("", {}, {"cpu": "1"}),
        ("-N 2", {}, {"cpu": "1"}),
        ("--mem=1G", {}, {"cpu": "1", "memory": "1024Mi"}),
        ("", {"cpus": 0.5}, {"cpu": "500m"}),
        ("", {"cpus": 0}, {}),
        ("-n 3", {"cpus": 0}, {"cpu": "3"}),
    ],
)
def test_a_script_that_names_no_cpus_has_one_as_in_slurm(
    options: str, settings: dict[str, Any], requests: dict[str, str]
) -> None:
    job = read_script(f"#!/bin/sh\n#SBATCH --job-name=t {options}\ntrue\n")
    pod = render_job(job, configure(**settings)).pods[0]
    assert main_of(pod).get("resources", {}).get("requests", {}) == requests


def test_sbatch_s_tasks_and_cpus() -> None:
    job = read_script("#!/bin/sh\n#SBATCH -n 4 -c 2 --mem-per-cpu=1G --gres=gpu:2,fpga:1\ntrue\n")
    (pod,) = render_job(job, configure(gres={"fpga": "example.com/fpga"})).pods
    wanted = {"cpu": "8", "memory": "8192Mi", "example.com/fpga": "1", "nvidia.com/gpu": "2"}
    assert main_of(pod)["resources"]["requests"] == wanted
    assert variables_of(pod)["SLURM_GPUS_ON_NODE"] == "2"
    assert "CUDA_VISIBLE_DEVICES" not in variables_of(pod)


def test_a_kind_of_gpu_is_a_node_label() -> None:
    job = read_file("name: t\nresources: {accelerators: 'h100:8'}\nrun: echo\n")
    (pod,) = render_job(job, configure(gpus=GPUS)).pods
    terms = pod["spec"]["affinity"]["nodeAffinity"][NODE_TERMS]["nodeSelectorTerms"]
    values = ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-NVL"]
    assert terms == [{"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": values}]}]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["spec"]["tolerations"]


def test_a_kind_may_be_a_resource_of_its_own() -> None:
    needs = render_needs(task_of("{accelerators: 'MI300:4'}"), configure(gpus=GPUS))
    assert needs.limits == {"amd.com/gpu": "4"}
    assert needs.expressions == ({"key": "amd.com/gpu.product-name", "operator": "In", "values": ["mi300x"]},)


def test_alternatives_that_a_label_can_tell_apart_are_all_welcome() -> None:
    task = task_of("{accelerators: ['H100:4', 'A100:4', 'MI300:4', 'A100:8', 'B200:4']}")
    settings = configure(gpus=GPUS)
    needs = render_needs(task, settings)
    assert needs.limits == {"nvidia.com/gpu": "4"}
    assert len(needs.expressions[0]["values"]) == 3
    assert note_needs(task, settings) == [
        "t: a pod asks for one kind of GPU; H100:4 counts, and not MI300:4, A100:8, B200:4"
    ]


def test_an_alternative_that_the_cluster_has_is_taken() -> None:
    assert needs_of("{accelerators: ['B200:4', 'MI300:2']}", gpus=GPUS)[0] == {"amd.com/gpu": "2"}


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ("{accelerators: 'B200:1'}", "no GPU of the kind B200; they know a100, h100, mi300"),
        ("{accelerators: 'H100:0.5'}", "whole GPUs"),
        ("{gpus: 0.5}", "whole GPUs"),
    ],
)
def test_gpus_that_cannot_be_had(resources: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        needs_of(resources, gpus=GPUS)
    assert caught.value.remedy


def test_a_resource_that_the_settings_do_not_know() -> None:
    job = read_script("#!/bin/sh\n#SBATCH --gres=fpga:1\ntrue\n")
    with pytest.raises(InvalidRequest, match="fpga") as caught:
        render_needs(job.spec.tasks[0], Settings())
    assert "gres" in caught.value.remedy


def test_all_memory_of_a_node_is_noted() -> None:
    job = read_script("#!/bin/sh\n#SBATCH --mem=0\ntrue\n")
    assert "memory" not in render_needs(job.spec.tasks[0], configure()).requests
    assert len(note_needs(job.spec.tasks[0], configure())) == 1
