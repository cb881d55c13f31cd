"""Checks with the cluster before a submission: the job's namespace, this login's rights, the group's name."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from overspan.adapters.kubernetes.api.calls import Calls, finish_all, path_of
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.discovery import may
from overspan.adapters.kubernetes.api.refusals import RIGHTS, Obstacle
from overspan.adapters.kubernetes.api.rights import FOLLOWING, name_rights
from overspan.adapters.kubernetes.launches.launches import is_going
from overspan.adapters.kubernetes.manifests.names import (
    INSTALLATION,
    JOB,
    MANAGED_BY,
    MANAGER,
    has_names,
    name_anchor,
    name_domain,
)
from overspan.adapters.kubernetes.observation.records import LAUNCH, read_pod
from overspan.bridge.model.errors import Denied, NotFound
from overspan.bridge.model.job import Job

KNOWN_SECONDS = 60.0
"""How long it is believed that the namespace is there and that nothing is missing."""


class Preflight:
    """Checks before jobs are sent; a namespace that passed is not checked again for a while."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._fine: dict[str, float] = {}

    async def find_obstacle(self, namespace: str) -> Obstacle | None:
        """Why no job can run in a namespace; None where nothing is known to forbid it. Raises Unreachable."""
        if time.monotonic() - self._fine.get(namespace, float("-inf")) < KNOWN_SECONDS:
            return None
        found = await self._find_namespace(namespace) or await self._find_rights(namespace)
        if found is None:
            self._fine[namespace] = time.monotonic()
        return found

    def forget(self, namespace: str) -> None:
        """Ask again next time: something was refused."""
        self._fine.pop(namespace, None)

    async def _find_namespace(self, namespace: str) -> Obstacle | None:
        answer = await self._connection.call("GET", f"/api/v1/namespaces/{namespace}")
        if answer.status == 403:
            # A login that may not read namespaces may still use one: try the first create of a job, dry.
            trial = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "overspan-trial"}}
            path, query = path_of(trial, namespace), {"dryRun": "All"}
            answer = await self._connection.call("POST", path, query=query, body=trial, brief=True)
        if answer.status == 404:
            remedy = f"`kubectl create namespace {namespace}`, or set `namespace` of this cluster"
            return Obstacle(f"the namespace {namespace} does not exist", remedy)
        going = answer.works and (answer.document.get("status") or {}).get("phase") == "Terminating"
        if going or (answer.status == 403 and "being terminated" in answer.message):
            return Obstacle(f"the namespace {namespace} is being deleted", "set `namespace` of this cluster to another")
        return None

    async def _find_rights(self, namespace: str) -> Obstacle | None:
        """Rights whose absence would go unnoticed: pods are created and run without them, and cannot be followed."""
        try:
            held = await finish_all(
                self._connection.run(may, self._connection, right, namespace) for right in FOLLOWING
            )
        except (Denied, NotFound):
            # The cluster does not answer questions about rights.
            return None
        missing = [right for right, given in zip(FOLLOWING, held, strict=True) if not given]
        if not missing:
            return None
        message = f"this login may not {name_rights(missing)} in {namespace}, so the job could not be followed"
        return Obstacle(message, RIGHTS)

    async def find_name_conflict(self, job: Job, calls: Calls, installations: Collection[str]) -> Obstacle | None:
        """Why a group can never have its name, because another installation has it; None if it is or soon will be free.

        `installations` are this daemon's: its groups of one name wait for each other.
        """
        if not job.spec.group or not has_names(job) or not installations:
            return None
        name = name_domain(job)
        found = await calls.get("Service", name)
        if found is None or is_going(found):
            return None
        labels: Mapping[str, str] = found["metadata"].get("labels") or {}
        if labels.get(INSTALLATION) in installations or await is_leaving(calls, labels):
            return None
        return describe_conflict("Service", name, labels)


async def is_leaving(calls: Calls, labels: Mapping[str, str]) -> bool:
    """Whether the launch that has made an object is over, so that its daemon removes the object soon."""
    token = labels.get(LAUNCH, "")
    if not token or labels.get(MANAGED_BY) != MANAGER:
        return False
    anchor = await calls.get("ConfigMap", name_anchor(token))
    if anchor is None or is_going(anchor):
        return True
    pods = [read_pod(document) for document in await calls.list("Pod", f"{LAUNCH}={token}")]
    return bool(pods) and all(pod.ended or pod.deleting_at is not None for pod in pods)


def describe_conflict(kind: str, name: str, labels: Mapping[str, str]) -> Obstacle:
    """The message for a name that belongs to something else."""
    job = labels.get(JOB)
    who = f"job {job}" if job else "something else"
    return Obstacle(
        f"the name {name} is taken in this namespace: {who} has a {kind} of that name",
        "submit it with another --name, or write `name: x-{id}` in the file",
    )
