"""What a Kubernetes API server keeps: objects with versions, their history, deletion by grace, finalizers and owners.

Documents are replaced and never changed, so a list that was begun stays what it was. Facts: API concepts, the garbage
collector's rules, and the pod strategy of the API server (graceful deletion of bound pods that have not ended).
"""

from __future__ import annotations

import copy
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

Document = dict[str, Any]


class Refused(Exception):
    """A request that is refused, as the API says it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.document: Document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": status,
        }


class Key(NamedTuple):
    """Where an object is: `group` is '' or the API group, without its version."""

    group: str
    resource: str
    namespace: str
    name: str = ""

    @property
    def words(self) -> str:
        """As in the API's messages."""
        return f'{self.resource + ("." + self.group if self.group else "")} "{self.name}"'


class Change(NamedTuple):
    """One step of the history: what the object was before and is now (None: not there)."""

    version: int
    key: Key
    before: Document | None
    now: Document | None


def to_rfc3339(at: float) -> str:
    """Whole seconds, as the API tells times."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_rfc3339(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


class Objects:
    """All objects of a cluster. Safe from any thread; `changed` tells watchers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.changed = threading.Condition(threading.RLock())
        self.version = 1000
        self.compacted = 1000
        """The newest version that a watch cannot begin from."""
        self.history: list[Change] = []
        self.quotas: dict[str, int] = {}
        """The most pods of a namespace."""
        self._objects: dict[Key, Document] = {}
        self._uids: set[str] = set()

    # --- reading ---

    def get(self, key: Key) -> Document:
        """The object; 404."""
        with self.changed:
            if key not in self._objects:
                raise Refused(404, "NotFound", f"{key.words} not found")
            return self._objects[key]

    def select(self, key: Key, accept: Callable[[Document], bool]) -> tuple[list[Document], int]:
        """The objects of a resource (of one namespace, or all) that are accepted, by name; and the list's version."""
        with self.changed:
            found = [
                (at, document)
                for at, document in self._objects.items()
                if at[:2] == key[:2] and (not key.namespace or at.namespace == key.namespace) and accept(document)
            ]
            return [document for _, document in sorted(found, key=lambda pair: pair[0])], self.version

    def since(self, version: int) -> list[Change]:
        """The steps after a version; 410 when they are no longer kept."""
        with self.changed:
            if version < self.compacted:
                text = f"too old resource version: {version} ({self.compacted + 1})"
                raise Refused(410, "Expired", text)
            # The history begins behind `compacted` and has one step for each version.
            first = max(0, version - (self.version - len(self.history)))
            return self.history[first:]

    def compact(self) -> None:
        """Forget the history, as etcd does each five minutes."""
        with self.changed:
            self.compacted = self.version
            self.history = []
            self.changed.notify_all()

    # --- writing ---

    def create(self, key: Key, document: Document) -> Document:
        """Make an object; 409 when it exists, 422 for a bad name, 403 beyond a quota."""
        document = copy.deepcopy(document)
        metadata = document.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        key = key._replace(name=metadata.get("name") or "")
        _check_name(key)
        with self.changed:
            if key in self._objects:
                raise Refused(409, "AlreadyExists", f"{key.words} already exists")
            self._check_quota(key)
            metadata.update(
                namespace=key.namespace,
                uid=str(uuid.uuid4()),
                creationTimestamp=to_rfc3339(self.clock()),
            )
            metadata.pop("deletionTimestamp", None)
            if key.resource == "pods":
                document.setdefault("spec", {}).setdefault("terminationGracePeriodSeconds", 30)
                document["status"] = {"phase": "Pending", "qosClass": "Burstable"}
            made = self._put(key, document)
            owners = metadata.get("ownerReferences") or []
            if owners and not any(self._has(owner["uid"]) for owner in owners):
                # The garbage collector's work: nobody owns it any more.
                self.delete(key, {})
            return made

    def create_simple(self, resource: str, name: str, namespace: str = "", **parts: Any) -> Document:
        """Make an object of the core group with these parts."""
        return self.create(Key("", resource, namespace), {"metadata": {"name": name}, **parts})

    def replace(self, key: Key, change: Callable[[Document], Document], check: bool = True) -> Document:
        """Change an object by a pure function of it; 422 on another uid or for a pod's spec, 409 on another version."""
        with self.changed:
            before = self.get(key)
            now = change(copy.deepcopy(before))
            if check:
                _check_change(key, before, now)
            if now == before:
                return before
            now["metadata"]["uid"] = before["metadata"]["uid"]
            if self._is_over(key, now):
                return self._remove(key, now)
            return self._put(key, now)

    def delete(self, key: Key, options: Mapping[str, Any]) -> Document:
        """Delete as DeleteOptions say: uid precondition (409), grace, finalizers, dependants."""
        with self.changed:
            before = self.get(key)
            metadata = before["metadata"]
            wanted = options.get("preconditions") or {}
            for name in ("uid", "resourceVersion"):
                if wanted.get(name) and wanted[name] != metadata[name]:
                    text = (
                        f"Operation cannot be fulfilled on {key.words}: Precondition failed: {name} in precondition: "
                        f"{wanted[name]}, {name} in object meta: {metadata[name]}"
                    )
                    raise Refused(409, "Conflict", text)
            grace = _grace(key, before, options.get("gracePeriodSeconds"))
            now = copy.deepcopy(before)
            asked = metadata.get("deletionGracePeriodSeconds")
            if metadata.get("deletionTimestamp") and asked is not None and asked <= grace:
                return before
            now["metadata"]["deletionTimestamp"] = to_rfc3339(self.clock() + grace)
            now["metadata"]["deletionGracePeriodSeconds"] = grace
            if self._is_over(key, now):
                return self._remove(key, now, options.get("propagationPolicy") == "Orphan")
            return self._put(key, now)

    def _is_over(self, key: Key, document: Document) -> bool:
        metadata = document["metadata"]
        return bool(
            metadata.get("deletionTimestamp")
            and not metadata.get("finalizers")
            and not metadata.get("deletionGracePeriodSeconds")
        )

    def _put(self, key: Key, document: Document) -> Document:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        before = self._objects.get(key)
        self._objects[key] = document
        self._uids.add(document["metadata"]["uid"])
        self._record(Change(self.version, key, before, document))
        return document

    def _remove(self, key: Key, document: Document, orphan: bool = False) -> Document:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        del self._objects[key]
        self._uids.discard(document["metadata"]["uid"])
        self._record(Change(self.version, key, document, None))
        if not orphan:
            self._collect(document["metadata"]["uid"])
        return document

    def _collect(self, owner: str) -> None:
        """Delete what only this owner held, as the garbage collector does in the background."""
        for key, document in list(self._objects.items()):
            owners = document["metadata"].get("ownerReferences") or []
            held = [one["uid"] for one in owners if one["uid"] != owner and self._has(one["uid"])]
            if any(one["uid"] == owner for one in owners) and not held and key in self._objects:
                self.delete(key, {})

    def _record(self, change: Change) -> None:
        self.history.append(change)
        self.changed.notify_all()

    def _has(self, uid: str) -> bool:
        return uid in self._uids

    def _check_quota(self, key: Key) -> None:
        most = self.quotas.get(key.namespace)
        if key.resource != "pods" or most is None:
            return
        used = sum(1 for at in self._objects if at[:3] == key[:3])
        if used >= most:
            text = (
                f"{key.words} is forbidden: exceeded quota: pods, requested: pods=1, used: pods={used}, "
                f"limited: pods={most}"
            )
            raise Refused(403, "Forbidden", text)


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: null takes a member away, objects are merged, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def match_labels(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether labels meet a selector: a=b, a!=b, a, !a, a in (b,c), a notin (b,c)."""
    for term in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        term = term.strip()
        listed = re.fullmatch(r"(\S+)\s+(in|notin)\s+\((.*)\)", term)
        equal = re.fullmatch(r"([^!=\s]+)\s*(==|=|!=)\s*(\S*)", term)
        if listed:
            values = {value.strip() for value in listed[3].split(",")}
            met = (labels.get(listed[1]) in values) == (listed[2] == "in")
        elif equal:
            met = (labels.get(equal[1]) == equal[3]) == (equal[2] != "!=")
        else:
            met = (term.lstrip("!") in labels) != term.startswith("!")
        if not met:
            return False
    return True


def match_fields(selector: str, document: Document) -> bool:
    """Whether an object meets a field selector: path=value or path!=value."""
    for term in filter(None, selector.split(",")):
        path, unequal, value = term.replace("==", "=").partition("=")
        differs = path.endswith("!")
        found: Any = document
        for name in path.rstrip("!").split("."):
            found = (found or {}).get(name)
        assert unequal, term
        if (str(found or "") == value) == differs:
            return False
    return True


def _grace(key: Key, document: Document, asked: Any) -> int:
    """What the API server makes of a grace: none for what is no pod, is not bound, or has ended."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    if key.resource != "pods" or not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    return int(spec["terminationGracePeriodSeconds"] if asked is None else asked)


def _check_name(key: Key) -> None:
    label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    most, form = (63, label) if key.resource == "services" else (253, rf"{label}(\.{label})*")
    if len(key.name) > most or not re.fullmatch(form, key.name):
        kind = key.resource.rstrip("s").capitalize()
        text = f'{kind} "{key.name}" is invalid: metadata.name: Invalid value: "{key.name}": a lowercase RFC 1123 name'
        raise Refused(422, "Invalid", text)


def _check_change(key: Key, before: Document, now: Document) -> None:
    metadata = now.get("metadata") or {}
    old = before["metadata"]
    if metadata.get("uid") != old["uid"]:
        uid = metadata.get("uid")
        text = f'{key.words} is invalid: metadata.uid: Invalid value: "{uid}": field is immutable'
        raise Refused(422, "Invalid", text)
    if metadata.get("resourceVersion") not in (None, "", old["resourceVersion"]):
        text = f"Operation cannot be fulfilled on {key.words}: the object has been modified"
        raise Refused(409, "Conflict", text)
    if key.resource == "pods":
        free = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
        same = [
            {name: value for name, value in (part.get("spec") or {}).items() if name not in free}
            for part in (before, now)
        ]
        if same[0] != same[1]:
            raise Refused(
                422, "Invalid", f'Pod "{key.name}" is invalid: spec: Forbidden: pod updates may not change fields'
            )


def names(documents: Iterable[Document]) -> list[str]:
    """The names of documents, in their order."""
    return [document["metadata"]["name"] for document in documents]
