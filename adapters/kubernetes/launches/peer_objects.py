"""Removes what the movers of a launch's pods have left in buckets, by which they agreed, when the pods are gone.

Movers do it themselves where all of them live to the end; a killed one, or a flush that is given up, leaves it here.
What is to be done is kept in files, since the store may be away for longer than the daemon lives:

FOLDER/TOKEN.json    {"namespace", "buckets": [[STORE, BUCKET], ...]}
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from overspan.adapters.kubernetes.launches.launches import Handle, Launches
from overspan.adapters.kubernetes.observation.launch_summaries import PeerBucket
from overspan.adapters.kubernetes.observation.records import LAUNCH
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble
from overspan.bridge.runtime.data.peers import remove_sessions
from overspan.bridge.runtime.data.s3 import S3Store

_log = logging.getLogger(__name__)

SETTLE_SECONDS = 30.0
"""How long after its pods were gone a launch is looked at once more: a killed program outlives its pod's record."""
KEPT_SECONDS = 7 * 24 * 3600.0
"""How long a store that does not answer is asked."""
_ANSWER_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0


class PeerObjects:
    """Single-flight and in the background: a store that does not answer holds up no other care of the cluster."""

    def __init__(self, launches: Launches, folder: str, stores: Mapping[str, StoreAccess]) -> None:
        self._launches = launches
        self._folder = folder
        self._stores = stores
        self._gone: dict[str, float] = {}
        """When a launch's pods were seen gone, by token."""
        self._due: dict[str, tuple[float, float]] = {}
        """When a launch is looked at again, and the pause after that, by token."""
        # Its own: calls to the cluster wait for no store.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="peer-objects")
        self._look: asyncio.Task[None] | None = None

    def note(self, handle: Handle, buckets: Sequence[PeerBucket]) -> None:
        """Have what a launch has left in these removed when its pods are gone. Never fails: what is left is small."""
        path = self._name(handle.token)
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump({"namespace": handle.namespace, "buckets": buckets}, file)
            os.replace(f"{path}.new", path)
        except OSError as error:
            _log.warning("objects of the movers of %s stay in their bucket: %s", handle.token, error)

    def has_any(self) -> bool:
        """Whether anything is to be removed. Never fails."""
        return bool(self._list())

    def begin(self) -> None:
        """Look whether anything can be removed, unless the last look is still under way."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Look no more."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        for token in await asyncio.to_thread(self._list):
            due, pause = self._due.get(token, (0.0, _FIRST_PAUSE))
            if time.monotonic() < due:
                continue
            try:
                await self._care(token)
            except (OverspanError, ObjectStoreError) as error:
                _log.info("objects of the movers of %s are removed later: %s", token, error)
            except Exception:
                _log.exception("objects of the movers of %s", token)
            self._due[token] = time.monotonic() + pause, min(pause * 2, _LONGEST_PAUSE)

    async def _care(self, token: str) -> None:
        """Remove what one launch has left. Raises OverspanError and ObjectStoreError."""
        namespace, buckets = await asyncio.to_thread(self._read, token)
        if namespace and await self._launches.calls(namespace).list("Pod", f"{LAUNCH}={token}"):
            return
        gone = self._gone.setdefault(token, time.monotonic())
        loop = asyncio.get_running_loop()
        for place in buckets:
            await loop.run_in_executor(self._thread, self._remove, token, place)
        if time.monotonic() - gone >= SETTLE_SECONDS or not namespace:
            await asyncio.to_thread(self._forget, token)

    def _remove(self, token: str, place: PeerBucket) -> None:
        access = self._stores.get(place.store)
        if access is None:
            # The store is configured no longer, so it cannot be reached.
            return
        store = S3Store(access, place.bucket, patience=_ANSWER_SECONDS)
        try:
            remove_sessions(store, token)
        except ObjectStoreError as error:
            if error.trouble is not StoreTrouble.MISSING:
                raise
        finally:
            store.close()

    # --- files -------------------------------------------------------------------------------------------------------

    def _name(self, token: str) -> str:
        return os.path.join(self._folder, f"{token}.json")

    def _list(self) -> list[str]:
        """The launches that are to be looked at; those of long ago are given up."""
        try:
            names = [name for name in os.listdir(self._folder) if name.endswith(".json")]
        except OSError:
            return []
        tokens = [name.removesuffix(".json") for name in sorted(names)]
        old = [token for token in tokens if self._age(token) > KEPT_SECONDS]
        for token in old:
            _log.warning("objects of the movers of %s stay in their bucket below %s", token, ".overspan-peers/")
            self._forget(token)
        return [token for token in tokens if token not in old]

    def _age(self, token: str) -> float:
        try:
            return time.time() - os.stat(self._name(token)).st_mtime
        except OSError:
            return 0.0

    def _read(self, token: str) -> tuple[str, list[PeerBucket]]:
        """The namespace of a launch and its buckets; nothing where the file is damaged."""
        try:
            with open(self._name(token), encoding="utf-8") as file:
                document = json.load(file)
            return str(document["namespace"]), [PeerBucket(*map(str, place)) for place in document["buckets"]]
        except (OSError, ValueError, LookupError, TypeError):
            return "", []

    def _forget(self, token: str) -> None:
        self._gone.pop(token, None)
        self._due.pop(token, None)
        try:
            os.unlink(self._name(token))
        except OSError:
            pass
