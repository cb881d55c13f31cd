"""API discovery: which gang backends a cluster has, and which rights this login has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.api.answers import to_error
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.launches.gang import GANG_SCHEDULERS, KUEUE_GROUP, GangBackend
from overspan.adapters.kubernetes.settings import KUEUE, NATIVE, SOFT, Settings


class Right(NamedTuple):
    """One thing that a login may do; `part` is a subresource."""

    verb: str
    resource: str
    group: str = ""
    part: str = ""
    everywhere: bool = False
    """In all namespaces, or on something that is in none."""

    @property
    def name(self) -> str:
        """The resource as RBAC writes it."""
        return f"{self.resource}/{self.part}" if self.part else self.resource


class FoundBackend(NamedTuple):
    """The gang backend, and why; `as_configured` is false where the settings ask for another one."""

    backend: GangBackend
    seen: str
    as_configured: bool = True


def may(connection: Connection, right: Right, namespace: str) -> bool:
    """Whether the login has a right (SelfSubjectAccessReview). Raises Unreachable and other refusals."""
    asked = {"verb": right.verb, "resource": right.resource, "group": right.group}
    if right.part:
        asked["subresource"] = right.part
    if not right.everywhere:
        asked["namespace"] = namespace
    document = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    answer = connection.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=document)
    if not answer.works:
        raise to_error(answer, "tell what this login may do")
    return bool((answer.document.get("status") or {}).get("allowed"))


def find_backend(connection: Connection, settings: Settings, namespace: str) -> FoundBackend:
    """The gang backend, by the settings and by what the cluster serves. Blocking; about three requests.

    A configured queue selects Kueue, because its limits are wanted then. Raises Unreachable and other refusals.
    """
    if settings.gang == SOFT:
        return FoundBackend(GangBackend.SOFT, "soft gang, as the settings say")
    served = _ask_groups(connection)
    if settings.gang != NATIVE and settings.queue:
        found = _find_kueue(connection, settings, namespace, served.get(KUEUE_GROUP, ()))
        if found is not None:
            return found
    if settings.gang != KUEUE:
        found = _find_native(connection, namespace, served)
        if found is not None:
            return found
    has = "the cluster has no PodGroups that this login can create"
    if settings.gang == NATIVE:
        return FoundBackend(GangBackend.SOFT, f"soft gang: {has}, though `gang` asks for native ones", False)
    if settings.gang == KUEUE or settings.queue:
        return FoundBackend(GangBackend.SOFT, f"soft gang: Kueue's queue {settings.queue!r} is not there", False)
    return FoundBackend(GangBackend.SOFT, f"soft gang: {has}, and no Kueue queue is named")


def _ask_groups(connection: Connection) -> dict[str, Sequence[str]]:
    """The versions of each API group."""
    answer = connection.request("GET", "/apis")
    if not answer.works:
        raise to_error(answer, "tell its API groups")
    groups: list[dict[str, Any]] = answer.document.get("groups") or []
    return {group["name"]: [one["version"] for one in group.get("versions") or []] for group in groups}


def _find_native(connection: Connection, namespace: str, versions: Mapping[str, Sequence[str]]) -> FoundBackend | None:
    """The first backend whose object the cluster serves, and this login may create."""
    for backend, scheduler in GANG_SCHEDULERS.items():
        served = scheduler.served
        if served is None or served.version not in versions.get(served.group, ()):
            continue
        answer = connection.request("GET", f"/apis/{served.group}/{served.version}")
        names = {one.get("name") for one in answer.document.get("resources") or []} if answer.works else set()
        right = Right("create", served.resource, served.group)
        if served.resource in names and may(connection, right, namespace):
            return FoundBackend(backend, f"native {served.kind} ({served.group}/{served.version})")
    return None


def _find_kueue(
    connection: Connection, settings: Settings, namespace: str, versions: Sequence[str]
) -> FoundBackend | None:
    for version in versions:
        path = f"/apis/{KUEUE_GROUP}/{version}/namespaces/{namespace}/localqueues/{settings.queue}"
        status = connection.request("GET", path).status
        # A login that may not read the queue may still use it: pods only need its label.
        if status in (200, 403):
            return FoundBackend(GangBackend.KUEUE, f"Kueue, LocalQueue {settings.queue}")
    return None


def read_version(document: Mapping[str, Any]) -> tuple[int, int] | None:
    """The version of a cluster by its own document; None where that has none."""
    numbers = re.match(r"v?(\d+)\.(\d+)", str(document.get("gitVersion") or ""))
    return None if numbers is None else (int(numbers[1]), int(numbers[2]))
