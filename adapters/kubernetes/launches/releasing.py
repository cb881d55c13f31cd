"""Reconciliation: removes ended pods whose outcome is stored, launches that are not wanted, and orphans.

What exists is compared with what is wanted, without any memory, so that another process goes on where this one died. A
pod's log is captured before its finalizer is taken off.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from overspan.adapters.kubernetes.api.calls import Calls, finish_all
from overspan.adapters.kubernetes.launches.abandoned_pods import free_abandoned
from overspan.adapters.kubernetes.launches.launches import (
    Handle,
    Launches,
    parse_anchor,
    parse_handle,
    read_handle,
    select_installation,
)
from overspan.adapters.kubernetes.launches.peer_objects import PeerObjects
from overspan.adapters.kubernetes.launches.queues import delete_workload, find_group, mark_given_up
from overspan.adapters.kubernetes.launches.unsent_data import give_up_data
from overspan.adapters.kubernetes.logs.logs import Logs, capture_all
from overspan.adapters.kubernetes.manifests.names import name_anchor, parse_token
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.launch_summaries import list_peer_buckets
from overspan.adapters.kubernetes.observation.records import LAUNCH, PodRecord, read_pod
from overspan.bridge.model.errors import Conflict, NotFound, OverspanError

_log = logging.getLogger(__name__)

CAPTURE_SECONDS = 60.0
"""How long an ended pod is kept for its log; the log of a lost node never comes."""
STILL_SECONDS = 0.05
_SOON = 5.0
"""Seconds until a pod's end that are not worth a call."""
LOOK_SECONDS = 600.0
"""How often all launches of an installation are looked for, beside those that are known."""


class Releaser:
    """Removes what is no longer wanted."""

    def __init__(self, launches: Launches, logs: Logs, peer_objects: PeerObjects) -> None:
        self._launches = launches
        self._peer_objects = peer_objects
        self._logs = logs
        self._spared: set[str] = set()
        self._known: dict[str, Handle] = {}
        self._looked: dict[tuple[str, str], float] = {}
        self._lock = asyncio.Lock()
        self._under_way: set[str] = set()
        self._late: dict[str, float] = {}
        """Until when pods wait for their logs, by uid."""

    def spare(self, token: str) -> None:
        """Protect a launch that is being submitted: the lists of a release under way may be older."""
        self._spared.add(token)

    def begin(self) -> None:
        """End the protection: new lists of what is wanted were made, and name all earlier submissions."""
        self._spared.clear()

    async def release(
        self, namespace: str, installation: str, handles: Collection[str], tokens: Collection[str]
    ) -> None:
        """Remove every launch of an installation that is not named. Raises Unreachable."""
        async with self._lock:
            await self._look(namespace, installation)
            # Those of other kinds of clusters name nothing here.
            found = map(read_handle, handles)
            wanted = {handle.token for handle in found if handle is not None} | set(tokens)
            present = {watched.token: parse_handle(watched.handle) for watched in self._launches.watched.values()}
            mine = [
                handle
                for handle in {**self._known, **present}.values()
                if parse_token(handle.token).installation == installation
            ]
            unwanted = [handle for handle in mine if handle.token not in wanted | self._spared]
            await finish_all(map(self.remove, unwanted))

    async def _look(self, namespace: str, installation: str) -> None:
        """Find the launches that the cluster has: by their anchors, and by pods that lost theirs."""
        key, now = (namespace, installation), time.monotonic()
        if now - self._looked.get(key, float("-inf")) < LOOK_SECONDS:
            return
        calls, selector = self._launches.calls(namespace), select_installation(installation)
        for kind in ("ConfigMap", "Pod"):
            for document in await calls.list(kind, selector):
                token = str(document["metadata"]["labels"].get(LAUNCH, ""))
                try:
                    self._known[token] = parse_handle(f"{namespace}/{token}")
                except NotFound:
                    _log.warning("%s %s has no launch", kind, document["metadata"].get("name"))
        self._looked[key] = now
        await free_abandoned(calls, installation, time.time())

    async def remove(self, handle: Handle, *, wait: bool = True) -> None:
        """Remove a launch: first its Service, which frees the name, then the pods, also those that run, then the rest.

        With `wait`, Conflict is raised for logs that cannot be read yet; only the Service has gone then.
        """
        await self._still(handle)
        calls = self._launches.calls(handle.namespace)
        watched = self._launches.watched.get(handle.token)
        for service in await _find_services(calls, handle, watched):
            await calls.delete("Service", service["metadata"]["name"], service["metadata"]["uid"])
        documents: list[Mapping[str, Any]] = []
        if watched is not None and not watched.queued and self._launches.know_all(watched):
            pods = self._launches.pods(watched)
        else:
            documents = await calls.list("Pod", f"{LAUNCH}={handle.token}")
            pods = await asyncio.to_thread(lambda: [*map(read_pod, documents)])
        group = find_group(documents)
        # Of an end that is known from the log the node learns a moment later; the log is complete then.
        ended = [pod for pod in pods if pod.ended or (watched is not None and pod.uid in watched.ends)]
        await (self._wait_captured(ended) if wait else capture_all(self._logs, ended))
        if group:
            await mark_given_up(calls, documents)
        await self._note_peers(calls, handle, watched)
        await calls.delete("ConfigMap", name_anchor(handle.token), propagate=True)
        await finish_all(self._drop(calls, pod) for pod in pods)
        if group:
            await delete_workload(self._launches.connection, handle.namespace, group)
        self._known.pop(handle.token, None)
        self._launches.forget(handle.token)

    async def _note_peers(self, calls: Calls, handle: Handle, watched: WatchedLaunch | None) -> None:
        """Have what the movers may leave in buckets removed later; only the anchor, which goes now, records it."""
        if watched is not None:
            buckets = watched.summary.peer_buckets
        else:
            anchor = await calls.get("ConfigMap", name_anchor(handle.token))
            try:
                buckets = list_peer_buckets(parse_anchor(anchor).job.spec) if anchor is not None else ()
            except (ValueError, LookupError):
                buckets = ()
        if buckets:
            await asyncio.to_thread(self._peer_objects.note, handle, buckets)

    async def _still(self, handle: Handle) -> None:
        """Stop all creation for a launch: a pod created after the listing would keep its finalizer for ever."""
        watched = self._launches.watched.get(handle.token)
        if watched is None:
            return
        watched.gone = True
        while watched.busy:
            await asyncio.sleep(STILL_SECONDS)

    async def tidy(self, watched: WatchedLaunch) -> None:
        """Remove ended pods of a live launch whose end is stored."""
        if watched.token in self._under_way:
            return
        self._under_way.add(watched.token)
        try:
            over = [pod for pod in self._launches.pods(watched) if watched.cursor.over(pod)]
            captured = await capture_all(self._logs, over)
            ready = [pod for pod in over if pod.uid in captured or self._is_late(pod)]
            calls = self._launches.calls(watched.namespace)
            await finish_all(self._drop(calls, pod) for pod in ready)
        except OverspanError as error:
            _log.info("ended pods of %s are removed later: %s", watched.token, error)
        finally:
            self._under_way.discard(watched.token)

    async def _wait_captured(self, pods: list[PodRecord]) -> None:
        """Capture the logs of ended pods. Raises Conflict for one that may become readable."""
        captured = await capture_all(self._logs, pods)
        for pod in pods:
            if pod.uid not in captured and not self._is_late(pod):
                raise Conflict(f"the log of pod {pod.name} cannot be read yet")

    def _is_late(self, pod: PodRecord) -> bool:
        """Whether the time to wait for a log is over."""
        now = time.monotonic()
        late = now >= self._late.setdefault(pod.uid, now + CAPTURE_SECONDS)
        if late:
            _log.warning("the log of pod %s could not be kept: its node does not answer", pod.name)
            del self._late[pod.uid]
        return late

    async def _drop(self, calls: Calls, pod: PodRecord) -> None:
        """Delete a pod and take the finalizer off.

        One that still has a grace period to send its data is given none: the job no longer waits for that.
        """
        if not pod.ended and pod.deleting_at is not None and pod.deleting_at > time.time() + _SOON:
            await give_up_data(self._launches.connection, calls, pod)
        await calls.drop_pod(pod)
        self._late.pop(pod.uid, None)
        self._logs.forget(pod.uid)


async def _find_services(calls: Calls, handle: Handle, watched: WatchedLaunch | None) -> Sequence[Mapping[str, Any]]:
    """The Services of a launch: of one that is followed by the name it has, if any."""
    if watched is None:
        return await calls.list("Service", f"{LAUNCH}={handle.token}")
    if not watched.summary.domain:
        return ()
    found = await calls.get("Service", watched.summary.domain)
    # Another launch may have the name by now.
    mine = found is not None and (found["metadata"].get("labels") or {}).get(LAUNCH) == handle.token
    return (found,) if found is not None and mine else ()
