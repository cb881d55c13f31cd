"""Parts of manifests that are laid over the rendered one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.samples import configure, main_of, read_file, render_job

from overspan.adapters.kubernetes.manifests.overlay import lay_over
from overspan.bridge.model.errors import InvalidRequest

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [{"key": "x"}],
        "containers": [{"name": "main", "image": "i", "env": [{"name": "A", "value": "1"}], "volumeMounts": []}],
        "volumes": [{"name": "overspan-run", "emptyDir": {}}],
    },
}


def test_mappings_are_merged_and_named_lists_by_name() -> None:
    before = copy.deepcopy(POD)
    overlay = {
        "metadata": {"labels": {"b": "2"}},
        "spec": {
            "nodeSelector": {"pool": None, "zone": "a"},
            "tolerations": [{"key": "y"}, {"key": "x"}],
            "containers": [
                {"env": [{"name": "A", "value": "9"}, {"name": "B", "value": "2"}]},
                {"name": "logger", "image": "l"},
            ],
            "volumes": [{"name": "cache", "emptyDir": {}}],
        },
    }
    pod = lay_over(POD, overlay, "kubernetes")
    assert pod["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert pod["spec"]["nodeSelector"] == {"zone": "a"}
    assert pod["spec"]["tolerations"] == [{"key": "x"}, {"key": "y"}]
    assert pod["spec"]["containers"] == [
        {
            "name": "main",
            "image": "i",
            "env": [{"name": "A", "value": "9"}, {"name": "B", "value": "2"}],
            "volumeMounts": [],
        },
        {"name": "logger", "image": "l"},
    ]
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["overspan-run", "cache"]
    assert before == POD


def test_node_terms_keep_what_was_asked_for() -> None:
    gpu, zone = {"key": "gpu", "operator": "Exists"}, {"key": "zone", "operator": "Exists"}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    below = {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": [gpu]}]}}}
    above = {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": [zone]}, {"matchFields": [zone]}]}}}
    pod = lay_over({**POD, "spec": {**POD["spec"], "affinity": below}}, {"spec": {"affinity": above}}, "kubernetes")
    assert pod["spec"]["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"] == [
        {"matchExpressions": [gpu, zone]},
        {"matchExpressions": [gpu], "matchFields": [zone]},
    ]


def test_pods_on_their_nodes_network_still_find_their_peers() -> None:
    assert (
        lay_over(POD, {"spec": {"hostNetwork": True}}, "kubernetes")["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    )
    given = {"spec": {"hostNetwork": True, "dnsPolicy": "Default"}}
    assert lay_over(POD, given, "kubernetes")["spec"]["dnsPolicy"] == "Default"


@pytest.mark.parametrize(
    ("overlay", "words"),
    [
        ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy"),
        ({"spec": {"hostname": "x"}}, "spec.hostname"),
        ({"spec": {"activeDeadlineSeconds": 1}}, "spec.activeDeadlineSeconds"),
        ({"spec": {"hostPID": True}}, "spec.hostPID"),
        ({"spec": {"schedulingGroup": {}}}, "spec.schedulingGroup"),
        ({"spec": {"containers": [{"command": ["x"]}]}}, "containers.main.command"),
        ({"spec": {"containers": [{"name": "main", "args": ["x"]}]}}, "containers.main.args"),
        ({"spec": {"containers": [{"env": [{"name": "OVERSPAN_TASK", "value": "x"}]}]}}, "OVERSPAN_TASK"),
        ({"spec": {"containers": [{"volumeMounts": [{"name": "v", "mountPath": "/overspan/run"}]}]}}, "/overspan/run"),
        ({"spec": {"initContainers": [{"name": "unpack"}]}}, "unpack"),
        ({"spec": {"initContainers": [{"image": "x"}]}}, "without a name"),
        ({"spec": {"volumes": [{"name": "overspan-run"}]}}, "overspan-run"),
        ({"metadata": {"name": "x"}}, "metadata.name"),
        ({"metadata": {"labels": {"overspan.io/job": "1"}}}, "overspan.io/job"),
        ({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}, "managed-by"),
        ({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}}, "pod-group-name"),
    ],
)
def test_fields_of_overspan_s_own_are_reserved(overlay: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match="reserved") as caught:
        lay_over(POD, overlay, "kubernetes")
    assert words in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    "overlay",
    [
        {"nodeSelector": {}},
        {"spec": []},
        {"kind": "Job"},
        {"spec": {"nodeSelector": ["x"]}},
        {"spec": {"volumes": [{"emptyDir": {}}]}},
        {"spec": {"containers": {"name": "x"}}},
    ],
)
def test_what_is_no_part_of_a_pod(overlay: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        lay_over(POD, overlay, "kubernetes")
    assert caught.value.remedy


def test_the_cluster_comes_first_then_the_header_then_the_task() -> None:
    text = """\
name: g
execution: parallel
kubernetes: {metadata: {labels: {a: header, b: header}}}
---
name: one
kubernetes:
  metadata: {labels: {b: task}}
  spec:
    priorityClassName: gold
    containers: [{securityContext: {runAsUser: 1000, readOnlyRootFilesystem: true}}]
run: echo
---
name: two
run: echo
"""
    settings = configure(
        kubernetes={"metadata": {"labels": {"a": "site", "c": "site"}}, "spec": {"runtimeClassName": "nvidia"}},
        priority_classes={"gold": "gold-2026"},
    )
    one, two = render_job(read_file(text), settings).pods
    labels = one["metadata"]["labels"]
    assert (labels["a"], labels["b"], labels["c"]) == ("header", "task", "site")
    assert two["metadata"]["labels"]["b"] == "header"
    assert one["spec"]["priorityClassName"] == "gold-2026"
    assert "priorityClassName" not in two["spec"]
    assert one["spec"]["runtimeClassName"] == two["spec"]["runtimeClassName"] == "nvidia"
    assert main_of(one)["securityContext"] == {"runAsUser": 1000, "readOnlyRootFilesystem": True}
