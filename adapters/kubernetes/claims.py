"""Volumes that are PersistentVolumeClaims: made, grown, listed and removed for `span volume`, and checked for jobs.

Facts: API reference of PersistentVolumeClaim and StorageClass (v1). A claim's class and access modes are fixed; its
request may grow where the class has `allowVolumeExpansion`, and never shrinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from overspan.adapters.kubernetes.api.answers import ApiAnswer, is_quota, to_error
from overspan.adapters.kubernetes.api.calls import Calls, path_of
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.quantities import parse_quantity
from overspan.adapters.kubernetes.api.refusals import RIGHTS, Obstacle
from overspan.adapters.kubernetes.manifests.names import MANAGED_BY, MANAGER, label_owner
from overspan.adapters.kubernetes.manifests.volumes import split_name
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import Conflict, Denied, InvalidRequest, NotFound, Unreachable
from overspan.bridge.model.job import Job
from overspan.bridge.model.volumes import SHARED_MODES, AppliedVolume, VolumeRecord, VolumeRequest

Document = Mapping[str, Any]

KIND = "PersistentVolumeClaim"
CLAIM, FOREIGN = "claim", "foreign claim"
"""A claim that `span volume` has made, and one that was made by other means: jobs mount both."""
DEFAULT_MODE = "ReadWriteOnce"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_MIB = 1 << 20
_PART = 500


class ClaimKeeper:
    """The claims of a cluster's namespace."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def apply(self, request: VolumeRequest) -> AppliedVolume:
        """Make the claim, or let it grow."""
        calls = await self._open()
        if request.namespace not in ("", calls.namespace):
            raise Conflict(
                f"the volume is to be in the namespace {request.namespace},"
                f" and the cluster's jobs are in {calls.namespace}",
                remedy=f"pods mount claims of their own namespace: write {calls.namespace}, or leave it out",
            )
        found = await calls.get(KIND, request.name)
        if found is None:
            return await self._make(calls, request)
        check_same(found, request)
        if request.mib is None or request.mib * _MIB == read_size(found):
            return AppliedVolume(await self._describe(calls, found), "unchanged")
        return await self._grow(calls, found, request)

    async def list(self) -> Sequence[VolumeRecord]:
        """All claims of the namespace, since jobs may mount each of them."""
        calls = await self._open()
        found = sorted(await calls.list(KIND, ""), key=lambda each: str(each["metadata"]["name"]))
        waiting = any(needs_cause(each) for each in found)
        events = await self._read_events(calls) if waiting else {}
        return [describe_claim(each, events) for each in found]

    async def delete(self, name: str) -> None:
        """Remove a claim that was made by `apply`. What becomes of its data is its class's `reclaimPolicy`."""
        calls = await self._open()
        found = await calls.get(KIND, name)
        if found is None:
            raise NotFound(
                f"there is no claim {name} in the namespace {calls.namespace}", remedy="`span volume ls` lists them"
            )
        if not is_own(found):
            raise Conflict(
                f"the claim {name} was not made by `span volume apply`",
                remedy=f"if no other work needs it: kubectl -n {calls.namespace} delete pvc {name}",
            )
        await calls.delete(KIND, name, str(found["metadata"]["uid"]))

    async def _open(self) -> Calls:
        return Calls(self._connection, await self._connection.run(lambda: self._connection.namespace))

    async def _make(self, calls: Calls, request: VolumeRequest) -> AppliedVolume:
        if request.mib is None:
            raise InvalidRequest(
                f"there is no volume {request.name} yet, and a new claim needs a size",
                remedy=f"span volume apply {request.name} --size 100",
            )
        if request.storage_class:
            await self._find_class(request.storage_class)
        answer = await self._connection.call(
            "POST", path_of({"kind": KIND}, calls.namespace), body=render_claim(request)
        )
        if answer.status == 409:
            raise Conflict(f"the claim {request.name} was made by another client just now", remedy="apply it again")
        if not answer.works:
            raise explain_refusal(answer, f"make the claim {request.name}")
        return AppliedVolume(await self._describe(calls, answer.document), "made")

    async def _grow(self, calls: Calls, found: Document, request: VolumeRequest) -> AppliedVolume:
        name, before, after = request.name, write_request(found), write_size(request.mib or 0)
        if (request.mib or 0) * _MIB < read_size(found):
            raise Conflict(
                f"the volume {name} has {before}, and {after} is less: a claim never shrinks",
                remedy="make a volume of another name, and copy what is needed",
            )
        kind = read_class(found)
        storage = await self._find_class(kind) if kind else {}
        if storage is not None and not storage.get("allowVolumeExpansion"):
            whose = f"the class {kind} lets no claim grow" if kind else "it has no class, and cannot grow"
            raise Conflict(
                f"the volume {name} has {before}, and {after} is wanted: {whose}",
                remedy="make a volume of another name, or of a class with allowVolumeExpansion",
            )
        body = {
            "metadata": {"uid": found["metadata"]["uid"]},
            "spec": {"resources": {"requests": {"storage": after}}},
        }
        path = f"{path_of({'kind': KIND}, calls.namespace)}/{name}"
        answer = await self._connection.call("PATCH", path, body=body, content_type="application/merge-patch+json")
        if not answer.works:
            raise explain_refusal(answer, f"let the claim {name} grow from {before} to {after}")
        return AppliedVolume(await self._describe(calls, answer.document), "grown")

    async def _find_class(self, name: str) -> Document | None:
        """A StorageClass; None where the login may not read them. Raises InvalidRequest where there is none."""
        answer = await self._connection.call("GET", f"{_CLASSES}/{name}")
        if answer.status == 403:
            return None
        if answer.status == 404:
            listed = await self._connection.call("GET", _CLASSES)
            names = sorted(str(each["metadata"]["name"]) for each in listed.document.get("items") or [])
            raise InvalidRequest(
                f"there is no storage class {name!r}",
                remedy=f"classes there: {', '.join(names) or 'none'}; without one the cluster's default is taken",
            )
        if not answer.works:
            raise to_error(answer, f"read the storage class {name}")
        return answer.document

    async def _describe(self, calls: Calls, claim: Document) -> VolumeRecord:
        return describe_claim(claim, await self._read_events(calls) if needs_cause(claim) else {})

    async def _read_events(self, calls: Calls) -> dict[str, str]:
        """What was last said of claims, by their uids; nothing where the login may not read events."""
        path = f"/api/v1/namespaces/{calls.namespace}/events"
        query = {"fieldSelector": f"involvedObject.kind={KIND}", "limit": _PART}
        answer = await self._connection.call("GET", path, query=query)
        said = [
            (str(each.get("lastTimestamp") or each.get("eventTime") or ""), each)
            for each in answer.document.get("items") or []
        ]
        return {
            str((each.get("involvedObject") or {}).get("uid")): str(each.get("message") or "")
            for _, each in sorted(said, key=lambda pair: pair[0])
        }


async def find_claim_obstacle(job: Job, calls: Calls, settings: Settings) -> Obstacle | None:
    """Why a job's claims cannot be mounted; None where nothing is known to forbid it, or the login may not look."""
    for name, (tasks, shared) in sorted(list_claims(job, settings).items()):
        try:
            claim = await calls.get(KIND, name)
        except Denied:
            return None
        if claim is None:
            command = f"span volume apply {name} --size 100 -M {settings.name}"
            if shared:
                command += " --access-mode ReadWriteMany"
            return Obstacle(
                f"{tasks[0]}: there is no volume {name} on {settings.name}"
                f" (no claim of that name in the namespace {calls.namespace})",
                f"make it, with its size in GB: `{command}`",
            )
        if claim["metadata"].get("deletionTimestamp"):
            return Obstacle(f"{tasks[0]}: the volume {name} is being deleted", "name another one, or wait and make it")
        modes = read_modes(claim)
        if shared and not SHARED_MODES.intersection(modes):
            return Obstacle(
                f"{shared}: the volume {name} is mounted by one node at a time ({', '.join(modes)}),"
                " and the task has several nodes",
                "make a volume of another name with --access-mode ReadWriteMany, or write `num_nodes: 1`",
            )
    return None


def list_claims(job: Job, settings: Settings) -> dict[str, tuple[list[str], str]]:
    """The claims that a job names: the tasks that mount each, and one of them that has several nodes, if any has."""
    found: dict[str, tuple[list[str], str]] = {}
    for task in job.spec.tasks:
        for written in task.volumes.values():
            name, _ = split_name(written, settings)
            if name in settings.volumes or name.startswith(("/", "~", ".")):
                continue
            tasks, shared = found.get(name, ([], ""))
            found[name] = ([*tasks, task.name], shared or (task.name if task.num_nodes > 1 else ""))
    return found


def render_claim(request: VolumeRequest) -> dict[str, Any]:
    """The manifest of a new claim."""
    spec: dict[str, Any] = {
        "accessModes": [request.access_mode or DEFAULT_MODE],
        "resources": {"requests": {"storage": write_size(request.mib or 0)}},
    }
    if request.storage_class:
        spec["storageClassName"] = request.storage_class
    return {
        "apiVersion": "v1",
        "kind": KIND,
        "metadata": {"name": request.name, "labels": label_owner(request.owner)},
        "spec": spec,
    }


def check_same(claim: Document, request: VolumeRequest) -> None:
    """Raise Conflict where a claim has another class or access mode than is asked for."""
    wanted = {
        "class": (read_class(claim), request.storage_class),
        "access mode": (", ".join(read_modes(claim)), request.access_mode),
    }
    for what, (there, asked) in wanted.items():
        if asked and asked != there:
            raise Conflict(
                f"the volume {request.name} has the {what} {there or 'none'}, and {asked} is wanted:"
                " a claim's cannot be changed",
                remedy="make a volume of another name, or delete this one with its data first",
            )


def describe_claim(claim: Document, events: Mapping[str, str]) -> VolumeRecord:
    """A claim as users see it; `events` are the last words on each, by its uid."""
    metadata, status = claim["metadata"], claim.get("status") or {}
    going = bool(metadata.get("deletionTimestamp"))
    return VolumeRecord(
        str(metadata["name"]),
        CLAIM if is_own(claim) else FOREIGN,
        write_request(claim),
        read_class(claim),
        ", ".join(read_modes(claim)),
        "Terminating" if going else str(status.get("phase") or "Pending"),
        "" if going else " ".join(_list_causes(claim, events)),
    )


def _list_causes(claim: Document, events: Mapping[str, str]) -> Iterator[str]:
    """Why a claim is not yet what was asked for."""
    said = events.get(str(claim["metadata"].get("uid")), "")
    status = claim.get("status") or {}
    if needs_cause(claim):
        yield said or "nothing has bound it yet"
    conditions: Iterable[Document] = status.get("conditions") or []
    yield from (str(each["message"]) for each in conditions if each.get("status") == "True" and each.get("message"))


def needs_cause(claim: Document) -> bool:
    """Whether a claim is bound to no volume."""
    status: Document = claim.get("status") or {}
    return bool(status.get("phase", "Pending") == "Pending")


def explain_refusal(answer: ApiAnswer, doing: str) -> Exception:
    """The error for a claim that the API refused."""
    if answer.status == 403 and "cannot" not in answer.message and not is_quota(answer):
        # Admission answers 403 as a missing right does (`only dynamically provisioned pvc can be resized`, ...).
        return Conflict(f"the cluster refused to {doing}: {answer.message}")
    if answer.status == 403 and not is_quota(answer):
        return Denied(f"the cluster refused to {doing}: {answer.message}", remedy=RIGHTS)
    return to_error(answer, doing)


def is_own(claim: Document) -> bool:
    """Whether `span volume apply` has made a claim."""
    labels: Document = claim["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY) == MANAGER


def read_size(claim: Document) -> float:
    """The bytes that a claim asks for."""
    try:
        return parse_quantity(write_request(claim))
    except ValueError:
        raise Unreachable(f"the claim {claim['metadata']['name']} has no size that can be read") from None


def write_request(claim: Document) -> str:
    """What a claim asks for, in its own words."""
    resources = (claim.get("spec") or {}).get("resources") or {}
    return str((resources.get("requests") or {}).get("storage") or "")


def read_class(claim: Document) -> str:
    """The class of a claim; empty where it has none."""
    return str((claim.get("spec") or {}).get("storageClassName") or "")


def read_modes(claim: Document) -> list[str]:
    """The access modes of a claim."""
    return [str(mode) for mode in (claim.get("spec") or {}).get("accessModes") or []]


def write_size(mib: int) -> str:
    """A size as Kubernetes has it."""
    return f"{mib // 1024}Gi" if mib % 1024 == 0 else f"{mib}Mi"
