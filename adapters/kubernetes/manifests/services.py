"""The objects beside a launch's pods: anchor, ConfigMaps of variables, Secret, Service. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from overspan.adapters.contract import Launch
from overspan.adapters.kubernetes.manifests.environment import list_secrets
from overspan.adapters.kubernetes.manifests.launch_plans import LaunchPlan, write_plan
from overspan.adapters.kubernetes.manifests.names import (
    FREE,
    NAME,
    has_names,
    label_launch,
    name_anchor,
    name_domain,
    select_members,
)
from overspan.adapters.kubernetes.observation.records import LAUNCH
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job

Document = dict[str, Any]

PLAN = "plan.json"
"""The anchor's entry that says what the launch is."""
MAX_DATA = 1 << 20
"""Bytes in a ConfigMap or Secret (API, MaxSecretSize)."""
_PORT = 1
"""A Service needs one; nothing listens there, since a headless one hands out addresses only."""


def render_anchor(plan: LaunchPlan, texts: Mapping[str, str], namespace: str) -> Document:
    """The ConfigMap that owns everything else of a launch. InvalidRequest for a job that is too large for the API."""
    data = {PLAN: json.dumps(write_plan(plan), separators=(",", ":")), **texts}
    size = sum(len(text.encode()) for text in data.values())
    if size > MAX_DATA:
        raise InvalidRequest(
            f"the job has {size / MAX_DATA:.1f} MiB of text, and an object of Kubernetes takes 1 MiB",
            remedy="put long scripts into files of `workdir`, or split the group",
        )
    metadata = {
        "name": name_anchor(plan.token),
        "labels": label_launch(plan.token),
        "annotations": {NAME: plan.job.spec.name, FREE: _word_freeing(plan.token, namespace)},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _word_freeing(token: str, namespace: str) -> str:
    """The command by which an administrator lets the ended pods of a launch go, whose daemon is gone for good."""
    ended = "--field-selector=status.phase!=Running,status.phase!=Pending"
    change = json.dumps({"metadata": {"finalizers": None}}, separators=(",", ":"))
    return (
        f"kubectl -n {namespace} get pods -l {LAUNCH}={token} {ended} -o name"
        f" | xargs -r -n 1 kubectl -n {namespace} patch --type=merge -p '{change}'"
    )


def name_shared(token: str, job: Job, task: str) -> str:
    """The name of the ConfigMap that has what the variables of all pods of a task have in common."""
    return f"{name_anchor(token)}-env-{[each.name for each in job.spec.tasks].index(task)}"


def render_shared(name: str, token: str, shared: Mapping[str, str]) -> Document:
    """The ConfigMap of a task's variables. InvalidRequest for more than an object takes."""
    size = sum(len(key) + len(value.encode("utf-8", "surrogateescape")) for key, value in shared.items())
    if size > MAX_DATA:
        raise InvalidRequest(
            f"the variables of a task have {size / MAX_DATA:.1f} MiB, and an object of Kubernetes takes 1 MiB",
            remedy="put long values into files of `workdir`, or split the group",
        )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": label_launch(token)},
        "immutable": True,
        "data": dict(shared),
    }


def render_secret(launch: Launch, more: Mapping[str, bytes]) -> Document | None:
    """The secrets of the tasks, the daemon's own and `more` by their entries; None where there are none."""
    entries = list_secrets(launch.job, launch.environment)
    if not entries and not more:
        return None
    values = {
        key: launch.job.spec_of(task).secrets[name] if task else launch.environment[name]
        for key, (task, name) in entries.items()
    }
    data = {key: value.encode("utf-8", "surrogateescape") for key, value in values.items()} | dict(more)
    if sum(map(len, data.values())) > MAX_DATA:
        raise InvalidRequest("the secrets have more than 1 MiB", remedy="put large ones on a volume")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": {"name": name_anchor(launch.token), "labels": label_launch(launch.token)},
        "data": {key: base64.b64encode(value).decode("ascii") for key, value in data.items()},
    }


def render_service(plan: LaunchPlan) -> Document | None:
    """The headless Service by which members find each other, ready or not; None for a job without names.

    A further member of an elastic task has its group's.
    """
    if not has_names(plan.job) or plan.job.spec.member is not None:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name_domain(plan.job), "labels": label_launch(plan.token)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": select_members(plan.token, plan.job),
            "ports": [{"name": "any", "port": _PORT, "protocol": "TCP"}],
        },
    }


def own(document: Document, anchor: str, uid: str) -> Document:
    """Make the anchor of that name and uid the owner of an object, which goes with it; gives the object back."""
    own_all((document,), anchor, uid)
    return document


def own_all(documents: Iterable[Document], anchor: str, uid: str) -> None:
    """The same for many objects, which share what says it."""
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": anchor, "uid": uid}]
    for document in documents:
        document["metadata"]["ownerReferences"] = owners
