"""The watched launches of one cluster, and the watches of their pods."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.api.calls import Calls
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.watch import PodWatch
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.launches.relabelled_pods import reclaim
from overspan.adapters.kubernetes.manifests.names import (
    END,
    INSTALLATION,
    MANAGED_BY,
    MANAGER,
    name_anchor,
    parse_token,
)
from overspan.adapters.kubernetes.manifests.rendering import LaunchPlan, read_plan
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.launch_summaries import summarize_launch
from overspan.adapters.kubernetes.observation.projection import Key, PodSnapshot
from overspan.adapters.kubernetes.observation.records import DOMAIN, LAUNCH, PodRecord, read_pod, read_record
from overspan.bridge.model.errors import NotFound, OverspanError

AGAIN = DOMAIN + "again"
"""Annotation of an anchor whose pods were given back: when they are created again, and how often that was."""
CREATED = DOMAIN + "created"
"""Annotation of an anchor whose objects were all made: nothing of it is made a second time."""
WATCH_SECONDS = 5.0
"""How long after a change of its own a launch's pods are listed, since the watch may be late."""
MANY = 20
"""Unknown launches that are looked up by one list."""


class Handle(NamedTuple):
    """How the daemon calls a launch: NAMESPACE/TOKEN."""

    namespace: str
    token: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.token}"


def parse_handle(text: str) -> Handle:
    """Read a handle. NotFound for one that this version did not write."""
    namespace, slash, token = text.partition("/")
    try:
        parse_token(token)
    except ValueError:
        slash = ""
    if not slash or not namespace:
        raise NotFound(f"{text!r} names no launch on a Kubernetes cluster")
    return Handle(namespace, token)


def read_handle(text: str) -> Handle | None:
    """A handle as `parse_handle` reads it; None for another kind's, or a later version's."""
    try:
        return parse_handle(text)
    except NotFound:
        return None


def select_installation(installation: str) -> str:
    """The label selector of everything that one daemon has made."""
    return f"{MANAGED_BY}={MANAGER},{INSTALLATION}={installation}"


class Launches:
    """Watched launches by token, and watches by namespace and installation; both are opened at first use."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.changed = asyncio.Event()
        self.watched: dict[str, WatchedLaunch] = {}
        self._watches: dict[tuple[str, str], PodWatch] = {}

    def calls(self, namespace: str) -> Calls:
        return Calls(self.connection, namespace)

    def watch(self, handle: Handle) -> PodWatch:
        """The watch that has a launch's pods."""
        return self.watch_installation(handle.namespace, parse_token(handle.token).installation)

    def watch_installation(self, namespace: str, installation: str) -> PodWatch:
        """The watch of all pods of one daemon."""
        key = namespace, installation
        if key not in self._watches:
            watch = PodWatch(self.connection, namespace, select_installation(installation))
            # One event for all of them.
            watch.changed = self.changed
            watch.start()
            # Only now: one that could not start is made anew.
            self._watches[key] = watch
        return self._watches[key]

    def trouble(self) -> OverspanError | None:
        """Why nothing is known of the present; None while all watches are well."""
        return next((watch.trouble for watch in self._watches.values() if watch.trouble is not None), None)

    @property
    def fresh(self) -> bool:
        """Whether every watch has listed its pods."""
        return all(watch.fresh for watch in self._watches.values())

    def note_end(self, pod: PodRecord, at: float) -> None:
        """Record an end that was read from a log."""
        watched = self.watched.get(pod.token)
        if watched is not None:
            watched.ends[pod.uid] = at
            watched.dirty = True
            self.changed.set()

    def take_news(self) -> set[str]:
        """The launches whose pods have changed since the last call; drops what watches keep of unwatched launches."""
        news = set[str]().union(*(watch.take_news() for watch in self._watches.values()))
        for token in news - self.watched.keys():
            self.forget(token)
        return news

    def snapshot(self, watched: WatchedLaunch) -> PodSnapshot:
        """A launch's pods as the watch has them."""
        watch = self.watch(parse_handle(watched.handle))
        return _take_snapshot(watched, watch.of(watched.token).values(), watch.gone(watched.token))

    async def fetch_snapshot(self, watched: WatchedLaunch) -> PodSnapshot:
        """A launch's pods as they are now, asked for."""
        found = await self.calls(watched.namespace).list("Pod", f"{LAUNCH}={watched.token}")
        watch = self.watch(parse_handle(watched.handle))
        return _take_snapshot(watched, [read_pod(document) for document in found], watch.gone(watched.token))

    def pods(self, watched: WatchedLaunch) -> list[PodRecord]:
        """All pods of a launch that are there, older runs too."""
        return list(self.watch(parse_handle(watched.handle)).of(watched.token).values())

    def know_all(self, watched: WatchedLaunch) -> bool:
        """Whether the watch has all pods of a launch that is over: each node has one, and all have ended."""
        watch = self.watch(parse_handle(watched.handle))
        pods = watch.of(watched.token).values()
        seen = {(pod.task, pod.index) for pod in (*pods, *watch.gone(watched.token))}
        return (
            watch.fresh
            and watch.trouble is None
            and time.monotonic() - watched.made > WATCH_SECONDS
            and all(pod.ended for pod in pods)
            and all((task.name, index) in seen for task in watched.summary.tasks for index in range(task.nodes))
        )

    async def find_all(self, handles: Iterable[Handle]) -> None:
        """Load the launches that are not known yet from their anchors."""
        unknown = [handle for handle in handles if handle.token not in self.watched]
        places = {(handle.namespace, parse_token(handle.token).installation) for handle in unknown}
        for namespace, installation in places:
            mine = [handle for handle in unknown if handle.namespace == namespace]
            if len(mine) >= MANY:
                for anchor in await self.calls(namespace).list("ConfigMap", select_installation(installation)):
                    await asyncio.to_thread(self._take_anchor, namespace, anchor)
        await asyncio.gather(*(self._read_anchor(handle) for handle in unknown))
        await self._find_strays([self.watched[handle.token] for handle in unknown if handle.token in self.watched])

    async def find(self, handle: Handle) -> WatchedLaunch | None:
        """A launch, loaded from its anchor if need be; None where the cluster has no anchor of it."""
        await self.find_all([handle])
        return self.watched.get(handle.token)

    async def _read_anchor(self, handle: Handle) -> None:
        if handle.token not in self.watched:
            anchor = await self.calls(handle.namespace).get("ConfigMap", name_anchor(handle.token))
            if anchor is not None:
                self._take_anchor(handle.namespace, anchor)

    async def _find_strays(self, found: Iterable[WatchedLaunch]) -> None:
        """Restore labels that were changed while no daemon watched: such a pod is not listed, and would count as gone.

        The watch sees later changes itself.
        """
        owners: dict[str, dict[str, str]] = {}
        for watched in found:
            owners.setdefault(watched.namespace, {})[watched.anchor] = watched.token
        try:
            for namespace, mine in owners.items():
                await reclaim(self.calls(namespace), mine)
        except OverspanError:
            # Their pods are not all known yet: load them again next time.
            for mine in owners.values():
                for token in mine.values():
                    self.watched.pop(token, None)
            raise

    async def read_plan(self, watched: WatchedLaunch) -> LaunchPlan | None:
        """The plan of a launch; None where its anchor is gone or being deleted."""
        anchor = await self.calls(watched.namespace).get("ConfigMap", name_anchor(watched.token))
        if anchor is None or anchor["metadata"].get("uid") != watched.anchor or is_going(anchor):
            return None
        return await asyncio.to_thread(parse_anchor, anchor)

    def forget(self, token: str) -> None:
        """Let go of a launch that was removed."""
        self.watched.pop(token, None)
        for watch in self._watches.values():
            watch.forget(token)

    async def close(self) -> None:
        """Stop watching."""
        await asyncio.gather(*(watch.close() for watch in self._watches.values()))

    def _take_anchor(self, namespace: str, anchor: Mapping[str, Any]) -> None:
        metadata = anchor["metadata"]
        token = str((metadata.get("labels") or {}).get(LAUNCH, ""))
        if not token or token in self.watched or is_going(anchor) or "plan.json" not in (anchor.get("data") or {}):
            return
        plan = parse_anchor(anchor)
        summary, soft = summarize_launch(token, plan.job), plan.backend is GangBackend.SOFT
        queued = plan.backend is GangBackend.KUEUE
        watched = WatchedLaunch(
            str(Handle(namespace, token)), summary, str(metadata["uid"]), namespace, soft=soft, queued=queued
        )
        again, _, returns = str((metadata.get("annotations") or {}).get(AGAIN, "")).partition(" ")
        if again:
            watched.again_at, watched.returns = float(again), int(returns or 0)
        watched.tombstones = _read_ends(anchor)
        self.watched[token] = watched


def _read_ends(anchor: Mapping[str, Any]) -> dict[Key, PodRecord]:
    """The ends of pods that another daemon let go: of each node run of an attempt the last one."""
    texts = [text for name, text in anchor["data"].items() if name.startswith(END)]
    ends = [record for record in map(read_record, texts) if record is not None]
    ends.sort(key=lambda record: record.run)
    return {(record.task, record.attempt, record.index): record for record in ends}


def _take_snapshot(watched: WatchedLaunch, pods: Iterable[PodRecord], gone: Iterable[PodRecord]) -> PodSnapshot:
    """The pods of a launch without those of an earlier try to submit it, which have another anchor."""
    owners = ("", watched.anchor)
    return watched.snapshot((pod for pod in pods if pod.owner in owners), [pod for pod in gone if pod.owner in owners])


def is_going(document: Mapping[str, Any]) -> bool:
    """Whether an object is being deleted."""
    return bool(document["metadata"].get("deletionTimestamp"))


def parse_anchor(anchor: Mapping[str, Any]) -> LaunchPlan:
    """The launch plan that an anchor keeps. Raises ValueError, LookupError."""
    return read_plan(json.loads(anchor["data"]["plan.json"]))
