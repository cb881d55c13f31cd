"""Renews the credentials in the Secrets of live launches, where their source has changed since they were sent.

A kubelet brings a changed Secret to the containers that mount it within a minute or two; not to those of a pod whose
program has ended (it waits in SyncPod for the sidecars, and mounts nothing anew). Such a pod is told, where its store
refuses it, over the input of a command in its `data` container: words of commands are in the server's audit log.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from overspan.adapters.kubernetes.api.executing import ExecCommand
from overspan.adapters.kubernetes.launches.launches import Launches
from overspan.adapters.kubernetes.manifests.storage import RENEW_WORDS, name_data, render_store_data
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.records import MOVER
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.storage import StoreAccess

_log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
MOST_TOLD = 10_000
EXEC_SECONDS = 10.0
REFUSED_SECONDS = 300.0
"""After which a Secret that may not be changed is tried again."""


class SecretRenewals:
    """Single-flight and in the background: no other care of the cluster waits for it."""

    def __init__(self, launches: Launches, stores: Mapping[str, StoreAccess]) -> None:
        self._launches = launches
        self._stores = stores
        self._sent: dict[str, str] = {}
        """By token: the hash of what the Secret has; none after a start of the daemon, so that it is sent once."""
        self._refused: dict[str, float] = {}
        """By token: when a refused change is tried again."""
        self._told: dict[str, str] = {}
        """By pod's uid: the hash of what it was told."""
        self._due = 0.0
        self._said = ""
        self._look: asyncio.Task[None] | None = None

    def begin(self, launches: Sequence[WatchedLaunch]) -> None:
        """Look at these launches, unless that was done lately, or is under way."""
        if time.monotonic() < self._due or (self._look is not None and not self._look.done()):
            return
        self._due = time.monotonic() + LOOK_SECONDS
        self._forget(watched.token for watched in launches)
        if len(self._told) > MOST_TOLD:
            self._told.clear()
        some = [watched for watched in launches if watched.summary.stores and not watched.gone and not watched.busy]
        if some:
            self._look = asyncio.create_task(self._run(some))

    async def close(self) -> None:
        """Look no more."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)

    def _forget(self, tokens: Iterable[str]) -> None:
        live = set(tokens)
        self._sent = {token: digest for token, digest in self._sent.items() if token in live}
        self._refused = {token: at for token, at in self._refused.items() if token in live}

    async def _run(self, launches: Sequence[WatchedLaunch]) -> None:
        for watched in launches:
            try:
                await self._renew(watched)
            except OverspanError as error:
                self._say(error.line)
            except Exception:
                _log.exception("credentials of the pods of %s", watched.token)

    async def _renew(self, watched: WatchedLaunch) -> None:
        """Have one launch's Secret be as it would be made now. Raises OverspanError."""
        data = await asyncio.to_thread(render_store_data, watched.summary.stores, self._stores)
        digest = hashlib.sha256(repr(sorted(data.items())).encode()).hexdigest()
        await self._tell_pods(watched, data, digest)
        token, now = watched.token, time.monotonic()
        if self._sent.get(token) == digest or now < self._refused.get(token, 0.0):
            return
        document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name_data(token)}, "data": data}
        answer = await self._launches.calls(watched.namespace).merge(document)
        if answer.works or answer.status == 404:
            self._sent[token] = digest
            return
        self._refused[token] = now + REFUSED_SECONDS
        self._say(f"{name_data(token)}: {answer.message}")

    async def _tell_pods(self, watched: WatchedLaunch, data: Mapping[str, str], digest: str) -> None:
        """Tell pods whose data does not get away, each once of a version."""
        for pod in watched.list_sending(self._launches.snapshot(watched), watched.cursor):
            progress = watched.sending.get(pod.uid)
            if progress is None or not progress.trouble or self._told.get(pod.uid) == digest:
                continue
            self._told[pod.uid] = digest
            line = b"[%s]\n" % b",".join(map(base64.b64decode, data.values()))
            command = ExecCommand(pod.namespace, pod.name, MOVER, RENEW_WORDS, line)
            code, said = await asyncio.to_thread(self._launches.connection.execute, command, EXEC_SECONDS)
            if code:
                self._say(f"pod {pod.name}: {said.strip()[-200:]}")

    def _say(self, text: str) -> None:
        if text != self._said:
            _log.warning("credentials of running pods are not renewed: %s", text)
        self._said = text
