"""By which marks a pod is known as Overspan's, and whose launch it is of."""

from __future__ import annotations

from typing import Any

import pytest

from overspan.adapters.kubernetes.launches.relabelled_pods import find_token, is_ours
from overspan.adapters.kubernetes.manifests.names import ANCHOR_PREFIX, FINALIZER, MANAGED_BY, MANAGER
from overspan.adapters.kubernetes.observation.records import LAUNCH

OWNER = {"kind": "ConfigMap", "name": f"{ANCHOR_PREFIX}inst-7-0"}


@pytest.mark.parametrize(
    "mark",
    [{"finalizers": [FINALIZER]}, {"labels": {MANAGED_BY: MANAGER}}, {"ownerReferences": [OWNER]}],
    ids=["finalizer", "manager", "owner"],
)
def test_any_mark_that_is_left_is_enough(mark: dict[str, Any]) -> None:
    assert is_ours({"metadata": {"name": "p", **mark}})


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"finalizers": ["example.org/other"], "labels": {MANAGED_BY: "Helm"}},
        {"ownerReferences": [{**OWNER, "kind": "ReplicaSet"}]},
        {"ownerReferences": [{**OWNER, "name": "other-inst-7-0"}]},
        {"labels": {LAUNCH: "inst-7-0"}},
    ],
    ids=["none", "others", "kind", "name", "launch"],
)
def test_a_pod_of_somebody_else_is_left_alone(metadata: dict[str, Any]) -> None:
    assert not is_ours({"metadata": {"name": "p", **metadata}})


def test_an_owner_is_believed_before_a_label() -> None:
    changed = {"labels": {LAUNCH: "inst-9-0"}}
    assert find_token({"metadata": changed}) == "inst-9-0"
    assert find_token({"metadata": {**changed, "ownerReferences": [OWNER]}}) == "inst-7-0"
    assert find_token({"metadata": {"ownerReferences": [OWNER]}}) == "inst-7-0"
