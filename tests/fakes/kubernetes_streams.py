"""Answers of the fake API server that go on: watches, logs, and how they are made to fail."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple

from tests.fakes.kubernetes_http import Reply
from tests.fakes.kubernetes_objects import Change, Document, Key, Objects, Refused, to_rfc3339

_KINDS = {"priorityclasses": "PriorityClass", "endpointslices": "EndpointSlice", "podgroups": "PodGroup"}
_KINDS |= {"configmaps": "ConfigMap", "resourcequotas": "ResourceQuota", "localqueues": "LocalQueue"}


class Target(NamedTuple):
    """What a path names."""

    api: str
    """`v1`, or group/version."""
    key: Key
    part: str
    """The subresource: log, exec, status; '' for the object."""


class Streams:
    """Watches and logs over the objects. `cut`, `expire` and `silence` fail all that are open."""

    def __init__(self, objects: Objects) -> None:
        self.bookmark_seconds = 60.0
        self.logs: dict[tuple[str, str, str], list[tuple[float, bytes]]] = {}
        """Time and bytes of each line, by namespace, pod and container."""
        self.opened = self.followed = 0
        """How many watches, and how many followed logs, were begun."""
        self.lost: set[int] = set()
        """Versions that no watch tells and each goes on behind: what a server with a fault does."""
        self._objects = objects
        self._cut = self._expire = 0
        self._silent = False

    def cut(self) -> None:
        """Break the connection of each watch and followed log."""
        with self._objects.changed:
            self._cut += 1
            self._objects.changed.notify_all()

    def expire(self) -> None:
        """Forget the history and end each watch with 410 inside its stream."""
        # At once: a watch that met the lost history alone would end twice.
        with self._objects.changed:
            self._expire += 1
            self._objects.compact()

    def silence(self, silent: bool = True) -> None:
        """Let watches stay open and say nothing; what they missed comes when they are no longer silent."""
        with self._objects.changed:
            self._silent = silent
            self._objects.changed.notify_all()

    def write_log(self, pod: str, text: str, namespace: str = "default", container: str = "main") -> None:
        """Add lines to a container's log, with the present time."""
        with self._objects.changed:
            lines = self.logs.setdefault((namespace, pod, container), [])
            whole = text.removesuffix("\n").split("\n")
            lines += [(self._objects.clock(), line.encode() + b"\n") for line in whole]
            self._objects.changed.notify_all()

    def watch(self, target: Target, query: Mapping[str, str], accept: Callable[[Document], bool]) -> Generator[bytes]:
        """The events of a watch until its time is over; raises ConnectionError where it is cut."""
        with self._objects.changed:
            # From here on it can be cut and expire, though nobody has read from it yet.
            self.opened += 1
            return self._tell_all(target, query, accept, (self._cut, self._expire))

    def _tell_all(
        self, target: Target, query: Mapping[str, str], accept: Callable[[Document], bool], born: tuple[int, int]
    ) -> Generator[bytes]:
        marked = time.monotonic()
        until = marked + float(query.get("timeoutSeconds") or 1800)
        bookmarks = query.get("allowWatchBookmarks") in ("1", "true")
        version = int(query.get("resourceVersion") or 0)
        if not version:
            found, version = self._objects.select(target.key, accept)
            yield b"".join(_event("ADDED", add_type(one, target)) for one in found)
        while True:
            with self._objects.changed:
                self._sleep(version, born, min(until, marked + self.bookmark_seconds) if bookmarks else until)
                if self._cut != born[0]:
                    raise ConnectionError
                try:
                    if self._expire != born[1]:
                        raise Refused(410, "Expired", "too old resource version")
                    changes = self._objects.since(version)
                except Refused as refused:
                    yield _event("ERROR", refused.document)
                    return
                version = self._objects.version
            yield b"".join(_tell(change, target, accept) for change in changes if change.version not in self.lost)
            over = time.monotonic() >= until
            if bookmarks and (over or time.monotonic() >= marked + self.bookmark_seconds):
                marked = time.monotonic()
                metadata = {"resourceVersion": str(version), "creationTimestamp": None}
                yield _event("BOOKMARK", {"kind": name_kind(target.key.resource), "metadata": metadata})
            if over:
                return

    def _sleep(self, version: int, born: tuple[int, int], until: float) -> None:
        """Wait for something to tell, or for the time to tell it; whoever is silent waits for longer than that."""
        while not self._is_awake(version, *born) and (self._silent or time.monotonic() < until):
            self._objects.changed.wait(None if self._silent else until - time.monotonic())

    def _is_awake(self, version: int, cut: int, expire: int) -> bool:
        if (self._cut, self._expire) != (cut, expire):
            return True
        return self._objects.version > version and not self._silent

    def read_log(self, key: Key, query: Mapping[str, str]) -> Reply:
        pod = self._objects.get(key)
        name = (key.namespace, key.name, query.get("container") or "main")
        states = {one["name"]: one.get("state") or {} for one in pod["status"].get("containerStatuses") or []}
        if not pod["spec"].get("nodeName"):
            # No kubelet to ask: the real server answers with nothing.
            return Reply(text=b"")
        if name not in self.logs and not {"running", "terminated"} & set(states.get(name[2], {})):
            text = f'container "{name[2]}" in pod "{key.name}" is waiting to start: ContainerCreating'
            raise Refused(400, "BadRequest", text)
        lines = self._select_lines(name, query, 0)
        if query.get("follow") not in ("1", "true"):
            return Reply(text=b"".join(lines)[: int(query.get("limitBytes") or 1 << 60)])
        with self._objects.changed:
            # From here on it can be cut, though nobody has read from it yet.
            self.followed += 1
            return Reply(lines=self._follow(key, name, query, self._cut))

    def _select_lines(self, name: tuple[str, str, str], query: Mapping[str, str], first: int) -> list[bytes]:
        found = self.logs.get(name, [])[first:]
        if query.get("sinceTime"):
            found = [line for line in found if to_rfc3339(line[0]) >= query["sinceTime"][:19] + "Z"]
        if query.get("tailLines") and not first:
            found = found[-int(query["tailLines"]) :]
        if query.get("timestamps") in ("1", "true"):
            return [_stamp(at) + b" " + line for at, line in found]
        return [line for _, line in found]

    def _follow(self, key: Key, name: tuple[str, str, str], query: Mapping[str, str], cut: int) -> Generator[bytes]:
        changed = self._objects.changed
        told = 0
        while True:
            with changed:
                over = self._has_ended(key)
                while len(self.logs.get(name, [])) <= told and not over and self._cut == cut:
                    changed.wait()
                    over = self._has_ended(key)
                if self._cut != cut:
                    raise ConnectionError
                lines, told = self._select_lines(name, query, told), len(self.logs.get(name, []))
            yield b"".join(lines)
            if over:
                return

    def _has_ended(self, key: Key) -> bool:
        try:
            return self._objects.get(key)["status"].get("phase") in ("Succeeded", "Failed")
        except Refused:
            return True


def _tell(change: Change, target: Target, accept: Callable[[Document], bool]) -> bytes:
    """The event of a change as this watch sees it; an object that leaves the selector is deleted to it."""
    key = change.key
    if key[:2] != target.key[:2] or (target.key.namespace and key.namespace != target.key.namespace):
        return b""
    was = change.before is not None and accept(change.before)
    now = change.now is not None and accept(change.now)
    if now and change.now is not None:
        return _event("MODIFIED" if was else "ADDED", add_type(change.now, target))
    if was and change.before is not None:
        metadata = {**change.before["metadata"], "resourceVersion": str(change.version)}
        return _event("DELETED", add_type({**change.before, "metadata": metadata}, target))
    return b""


def _event(kind: str, document: Document) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


def add_type(document: Document, target: Target) -> Document:
    return {"kind": name_kind(target.key.resource), "apiVersion": target.api, **document}


def name_kind(resource: str) -> str:
    return _KINDS.get(resource, resource.removesuffix("s").capitalize())


def _stamp(at: float) -> bytes:
    return f"{to_rfc3339(at)[:-1]}.{int(at % 1 * 1e9):09d}Z".encode()
