"""Watcher pods: small ones that mount a volume, so that its checkpoints can be looked at when no pod of the job can.

A watcher's name follows from what it mounts, where it is and whose it is, so a later daemon finds it. It does nothing,
lives an hour at most, and is deleted when no watch has used it for a while.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.api.answers import is_there, to_error
from overspan.adapters.kubernetes.api.calls import Calls
from overspan.adapters.kubernetes.checkpoints.mounts import FolderMount
from overspan.adapters.kubernetes.manifests.small_pods import SmallPod, render_small_pod
from overspan.adapters.kubernetes.observation.evidence import explain_waiting
from overspan.adapters.kubernetes.observation.records import DOMAIN, PodRecord, read_pod
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import OverspanError

_log = logging.getLogger(__name__)

WATCHER = DOMAIN + "watcher"
"""The label of watcher pods; its value is the installation."""
LIFE_SECONDS = 3600
UNUSED_SECONDS = 15.0
"""After so long without a question a watcher is deleted."""
_WORDS = ("/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done")


class Watcher(NamedTuple):
    """What a watcher pod has mounted, and where; `node` is empty where any node will do."""

    mount: FolderMount
    settings: Settings
    image: str
    node: str


class WatcherPods:
    """The watcher pods of one daemon in one namespace."""

    def __init__(self, calls: Calls, installation: str) -> None:
        self._calls = calls
        self._installation = installation
        self._used: dict[str, float] = {}
        """When each was asked for last (monotonic time)."""

    async def find(self, watcher: Watcher) -> PodRecord | str:
        """The running pod, or why there is none yet. Raises OverspanError where it cannot be made."""
        document = self._render(watcher)
        name = document["metadata"]["name"]
        self._used[name] = time.monotonic()
        found = await self._calls.get("Pod", name)
        if found is None:
            answer = await self._calls.create(document)
            if not is_there(answer):
                raise to_error(answer, f"create the pod {name}, which looks for checkpoints")
            return "the pod that looks for checkpoints is being started"
        pod = read_pod(found)
        if pod.ended or pod.deleting_at is not None:
            # Its hour is over, or it was deleted from outside: the next look makes another one.
            await self._calls.discard(found, document)
            return "the pod that looks for checkpoints is started again"
        if pod.started_at is None:
            reason, detail = explain_waiting(pod)
            return f"the pod {name}, which looks for checkpoints, does not run yet: {detail or reason}"
        return pod

    async def sweep(self) -> None:
        """Delete those of this daemon, and of earlier ones of its installation, that are not used."""
        now = time.monotonic()
        self._used = {name: at for name, at in self._used.items() if now - at < UNUSED_SECONDS}
        for found in await self._calls.list("Pod", f"{WATCHER}={self._installation}"):
            name = str(found["metadata"]["name"])
            if name not in self._used:
                try:
                    await self._calls.discard(found, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}})
                except OverspanError as error:
                    _log.info("the pod %s, which looks for checkpoints, is not deleted: %s", name, error)

    @property
    def used(self) -> bool:
        """Whether any was asked for and not deleted since."""
        return bool(self._used)

    def _render(self, watcher: Watcher) -> Mapping[str, Any]:
        mount = watcher.mount
        key = [self._installation, dict(mount.volume), dict(mount.mount), watcher.image, watcher.node]
        mark = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
        labels = {WATCHER: self._installation}
        pod = SmallPod(
            words=_WORDS,
            seconds=LIFE_SECONDS,
            labels=labels,
            image=watcher.image,
            volumes=[mount.volume],
            mounts=[mount.mount],
            node=watcher.node,
        )
        return render_small_pod(f"overspan-watcher-{mark}", watcher.settings, pod)
