"""Idempotent calls on single objects: what is done already counts as done, other refusals raise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from overspan.adapters.kubernetes.api.answers import ApiAnswer, is_there, to_error
from overspan.adapters.kubernetes.api.connection import MERGE_PATCH, Connection
from overspan.adapters.kubernetes.manifests.names import FINALIZER
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.errors import Conflict, OverspanError, Unreachable

T = TypeVar("T")
PATHS = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
}
"""Collections of the core group; other kinds have theirs by apiVersion and name."""
_MISSING = (404, 410)
_TRIES = 5
"""Tries of a compare-and-set before it gives up."""
CREATORS = 8
"""Threads that make many objects; more of them only wait for each other and for the API server."""
_FEW = 4 * CREATORS
"""Objects that do not pay for connections of their own."""


def path_of(document: Mapping[str, Any], namespace: str) -> str:
    """The collection that an object belongs to."""
    kind, version = str(document["kind"]), str(document.get("apiVersion", "v1"))
    known = PATHS.get(kind)
    if known is not None:
        return known.format(namespace)
    return f"/apis/{version}/namespaces/{namespace}/{kind.lower()}s"


async def finish_all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """The results of all; what one raises is raised when all have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    found: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        found.append(result)
    return found


class _Creation:
    """Creates many objects by a few threads; each takes the next one until any is refused."""

    def __init__(self, connection: Connection, namespace: str, documents: Sequence[Mapping[str, Any]]) -> None:
        self._connection = connection
        self._namespace = namespace
        self._documents = documents
        # One iterator for all threads: each number comes out of it once.
        self._places = iter(range(len(documents)))
        self._ended = False
        self.answers: list[ApiAnswer | None] = [None] * len(documents)

    def work(self) -> None:
        """Create objects until none is left. Unreachable and TimedOut are raised, and end the other threads too."""
        try:
            with self._connection.thread_connection() if len(self._documents) > _FEW else nullcontext() as connection:
                for place in self._places:
                    if self._ended:
                        return
                    if self._connection.closed:
                        raise Unreachable("the connection was closed before all was made")
                    document = self._documents[place]
                    answer = self._connection.create(path_of(document, self._namespace), document, connection)
                    self.answers[place] = answer
                    if not is_there(answer):
                        self._ended = True
        except OverspanError:
            self._ended = True
            raise


class Calls:
    """Calls in one cluster's namespace. All raise Unreachable and TimedOut beside what they say."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self._connection = connection
        self.namespace = namespace

    async def create(self, document: Mapping[str, Any]) -> ApiAnswer:
        """Make an object; the answer, with its metadata alone, is the caller's to judge."""
        return await self._connection.run(self._connection.create, path_of(document, self.namespace), document)

    async def create_all(self, documents: Sequence[Mapping[str, Any]]) -> list[ApiAnswer | None]:
        """Make many objects; the answer of `create` for each, None for what a refusal of another left untried."""
        creation = _Creation(self._connection, self.namespace, documents)
        workers = min(CREATORS, len(documents))
        await finish_all([self._connection.run(creation.work) for _ in range(workers)])
        return creation.answers

    async def get(self, kind: str, name: str) -> Mapping[str, Any] | None:
        """An object of the core group; None where there is none. Raises Denied and the like."""
        answer = await self._connection.call("GET", self._path(kind, name))
        if answer.status in _MISSING:
            return None
        return _document(answer, f"read {kind} {name}")

    async def find(self, document: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The object that has the name of a document, of any kind; None where there is none. Raises as `get`."""
        name = str(document["metadata"]["name"])
        answer = await self._connection.call("GET", f"{path_of(document, self.namespace)}/{name}")
        return None if answer.status in _MISSING else _document(answer, f"read {document['kind']} {name}")

    async def discard(self, found: Mapping[str, Any], document: Mapping[str, Any]) -> None:
        """Delete the object that was found under a document's name, and no later one; one that is gone is fine."""
        path, metadata = path_of(document, self.namespace), found["metadata"]
        await self._delete(f"{path}/{metadata['name']}", {"preconditions": {"uid": metadata["uid"]}})

    async def list(self, kind: str, selector: str, fields: str = "") -> list[Mapping[str, Any]]:
        """All objects of a kind that a label selector finds, and a field selector if there is one, read in parts."""
        found: list[Mapping[str, Any]] = []
        query: dict[str, Any] = {"labelSelector": selector, "limit": 500}
        if fields:
            query["fieldSelector"] = fields
        while True:
            answer = await self._connection.call("GET", PATHS[kind].format(self.namespace), query=query)
            document = _document(answer, f"list {kind} objects")
            found += document.get("items") or []
            part = (document.get("metadata") or {}).get("continue")
            if not part:
                return found
            query["continue"] = part

    async def merge(self, document: Mapping[str, Any]) -> ApiAnswer:
        """Make an object of any kind what a document says of it (JSON merge patch); the answer is the caller's."""
        path = f"{path_of(document, self.namespace)}/{document['metadata']['name']}"
        return await self._connection.call("PATCH", path, body=document, content_type=MERGE_PATCH, brief=True)

    async def patch(self, kind: str, name: str, metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Change an object's metadata (JSON merge patch, RFC 7386), and give what it is then.

        None where it has gone or is another by now.
        """
        answer = await self._change(kind, name, metadata)
        if answer.status in _MISSING or _is_other(answer):
            return None
        return _document(answer, f"change {kind} {name}")

    async def mark_pod(
        self, pod: PodRecord, annotations: Mapping[str, str | None], labels: Mapping[str, str | None]
    ) -> Mapping[str, Any] | None:
        """Change marks of one pod, and of no other of its name."""
        metadata: dict[str, Any] = {"uid": pod.uid}
        if annotations:
            metadata["annotations"] = dict(annotations)
        if labels:
            metadata["labels"] = dict(labels)
        return await self.patch("Pod", pod.name, metadata)

    async def limit_pod(self, pod: PodRecord, seconds: int) -> None:
        """Lower a pod's deadline, which counts from its start; one that is sooner anyway, or has gone, is fine."""
        body = {"metadata": {"uid": pod.uid}, "spec": {"activeDeadlineSeconds": seconds}}
        path = self._path("Pod", pod.name)
        answer = await self._connection.call("PATCH", path, body=body, content_type=MERGE_PATCH, brief=True)
        if answer.status not in (*_MISSING, 422) and not _is_other(answer):
            _document(answer, f"change pod {pod.name}")

    async def add_data(self, name: str, uid: str, data: Mapping[str, str]) -> None:
        """Add entries to a ConfigMap; one that has gone, or is another by now, needs none."""
        body = {"metadata": {"uid": uid}, "data": dict(data)}
        path = self._path("ConfigMap", name)
        answer = await self._connection.call("PATCH", path, body=body, content_type=MERGE_PATCH, brief=True)
        if answer.status not in _MISSING and not _is_other(answer):
            _document(answer, f"change ConfigMap {name}")

    async def drop_pod(self, pod: PodRecord) -> None:
        """Delete a pod, and take Overspan's finalizer off. Raises as `strip_pod`."""
        await self.strip_pod(pod, await self.delete_pod(pod, None) if pod.deleting_at is None else None)

    async def strip_pod(self, pod: PodRecord, known: Mapping[str, Any] | None = None) -> None:
        """Take Overspan's finalizer off a pod, by compare-and-set on its version. Raises Conflict after too many tries.

        `known` is metadata that the API has just answered.
        """
        for _ in range(_TRIES):
            metadata = known if known is not None else ((await self.get("Pod", pod.name)) or {}).get("metadata", {})
            known = None
            finalizers = metadata.get("finalizers") or []
            if metadata.get("uid") != pod.uid or FINALIZER not in finalizers:
                return
            kept = [name for name in finalizers if name != FINALIZER]
            # The list is replaced as a whole, so it must be the one that was read.
            change = {"uid": pod.uid, "resourceVersion": metadata["resourceVersion"], "finalizers": kept or None}
            answer = await self._change("Pod", pod.name, change)
            if answer.works or answer.status in _MISSING:
                return
            if answer.status != 409:
                raise to_error(answer, f"change pod {pod.name}")
        raise Conflict(f"pod {pod.name} is changed by others all the time")

    async def delete_pod(self, pod: PodRecord, grace: int | None) -> Mapping[str, Any] | None:
        """End one pod, and no other of its name; one that is gone is fine. `grace` None is the pod's own.

        Gives the metadata in the answer; None where that has none.
        """
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        metadata = await self._delete(self._path("Pod", pod.name), options)
        return metadata if metadata.get("uid") == pod.uid else None

    async def delete(self, kind: str, name: str, uid: str = "", *, propagate: bool = False) -> None:
        """Delete an object, and in the background what it owns; one that is gone is fine."""
        options: dict[str, Any] = {"preconditions": {"uid": uid}} if uid else {}
        if propagate:
            options["propagationPolicy"] = "Background"
        await self._delete(self._path(kind, name), options)

    def _path(self, kind: str, name: str) -> str:
        return f"{PATHS[kind].format(self.namespace)}/{name}"

    async def _delete(self, path: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        answer = await self._connection.call("DELETE", path, body=body, brief=True)
        if answer.status in _MISSING or _is_other(answer):
            return {}
        return _document(answer, f"delete {path}").get("metadata") or {}

    async def _change(self, kind: str, name: str, metadata: Mapping[str, Any]) -> ApiAnswer:
        path, body = self._path(kind, name), {"metadata": dict(metadata)}
        return await self._connection.call("PATCH", path, body=body, content_type=MERGE_PATCH, brief=True)


def _is_other(answer: ApiAnswer) -> bool:
    """Whether an object of that name is another one: its uid was given and is not the same.

    A 409 of another kind is a change that lost against others' and has to be made again.
    """
    if answer.status == 409:
        return "UID in precondition" in answer.message
    return answer.status == 422 and "uid" in answer.message and "immutable" in answer.message


def _document(answer: ApiAnswer, doing: str) -> dict[str, Any]:
    if not answer.works:
        raise to_error(answer, doing)
    return answer.document
