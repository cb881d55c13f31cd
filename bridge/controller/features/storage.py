"""`span storage` and `span data`: listings, sizes, removal, transfers, and the rescue of data that a job has left.

The daemon does it, because credentials never leave it. A transfer goes on in a thread, and ends when the command that
reads its progress goes away.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.adapters.abilities import DataRescue
from overspan.bridge.config.store_settings import StoreSettings, find_store, open_access
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.references import Directory
from overspan.bridge.controller.core.store_calls import follow_transfer, run_call, word_failure
from overspan.bridge.controller.submission.folder_uploads import FolderUpload, FolderUploads
from overspan.bridge.lifecycle.former_clusters import WrittenPlace, list_places
from overspan.bridge.model.errors import Conflict, Denied, InvalidRequest, NotFound, OverspanError
from overspan.bridge.model.storage import ObjectUrl, parse_object_url
from overspan.bridge.runtime.data.fetching import DataRefused
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoredObject, StoreTrouble
from overspan.bridge.runtime.data.rescue import RescuedData, add_rescued
from overspan.bridge.runtime.data.s3 import S3Store
from overspan.bridge.runtime.data.transfers import TransferProgress, receive_path, send_path

MOST_OBJECTS = 10_000
"""Objects that one listing tells."""


class ObjectListing(NamedTuple):
    """Objects and folders below a URL; `truncated`: there are more."""

    objects: list[StoredObject]
    truncated: bool


class Storage:
    """The object stores of the configuration."""

    def __init__(
        self,
        clusters: Clusters,
        stores: Mapping[str, StoreSettings],
        directory: Directory,
        uploads: FolderUploads,
        unsent_in_use: set[int],
        *,
        shared: bool,
    ) -> None:
        self._clusters = clusters
        self._uploads = uploads
        self._stores = stores
        self._directory = directory
        self._shared = shared
        self._in_use = unsent_in_use
        """Jobs whose unsent data is being sent or removed."""

    async def list_objects(self, text: str, *, deep: bool) -> ObjectListing:
        """What is below a URL: its own level, or with `deep` all. Raises OverspanError, as all of this."""
        url, store = self._open(text)
        prefix = f"{url.key}/" if url.key else ""

        def look() -> ObjectListing:
            found: list[StoredObject] = []
            for stored in store.list_objects(prefix, level=not deep):
                if len(found) == MOST_OBJECTS:
                    return ObjectListing(found, True)
                found.append(stored)
            if not found and url.key:
                found.append(store.find(url.key))
            return ObjectListing(sorted(found), False)

        return await run_call(store, look)

    async def measure(self, text: str) -> tuple[int, int]:
        """How many objects are below a URL, and their bytes."""
        url, store = self._open(text)

        def look() -> tuple[int, int]:
            sizes = [stored.size for stored in _list_below(store, url)]
            return len(sizes), sum(sizes)

        return await run_call(store, look)

    async def remove(self, text: str, *, deep: bool) -> int:
        """Remove an object, or with `deep` all that is below a URL; how many there were."""
        url, store = self._open(text)
        if not url.key and not deep:
            raise InvalidRequest(f"{url} is a whole bucket", remedy="-r removes all that is in it")

        def remove() -> int:
            found = [stored.key for stored in _list_below(store, url)]
            if not found:
                raise ObjectStoreError(StoreTrouble.MISSING, f"there is nothing at {url}")
            if found != [url.key] and not deep:
                raise DataRefused(f"{url} is a folder of {len(found)} objects; -r removes them")
            for key in found:
                store.delete(key)
            return len(found)

        return await run_call(store, remove)

    async def put(self, source: str, text: str) -> AsyncIterator[dict[str, Any]]:
        """Send a file or folder of this machine; how far it is, twice a second."""
        url, store = self._open(text)
        key = url.key
        if not os.path.exists(source):
            raise NotFound(f"there is no {source}")
        if not os.path.isdir(source) and (not key or text.endswith("/")):
            key = f"{key}/{os.path.basename(source)}".lstrip("/")
        progress = TransferProgress()
        async for facts in follow_transfer(store, progress, lambda: send_path(store, source, key, progress)):
            yield facts

    async def get(self, text: str, target: str) -> AsyncIterator[dict[str, Any]]:
        """Fetch an object or a folder to this machine; how far it is, twice a second."""
        url, store = self._open(text)
        progress = TransferProgress()
        async for facts in follow_transfer(store, progress, lambda: receive_path(store, url.key, target, progress)):
            yield facts

    async def upload(self, wanted: FolderUpload) -> AsyncIterator[dict[str, Any]]:
        """Send what a job is to find in a bucket; how far it is, twice a second."""
        self._check_personal()
        async for facts in self._uploads.send(wanted):
            yield facts

    async def rescue(self, ref: str) -> dict[str, Any]:
        """Send what a job could not: {files, size, newer}, the last of files that the store has newer versions of."""
        entry = (await self._directory.find(ref)).entry
        if not entry.job.over:
            raise Conflict(
                f"job {entry.job.id} is {entry.job.state.value}, and its data is sent by itself",
                remedy="wait for its end",
            )
        job = entry.job.id
        if job in self._in_use:
            raise Conflict(
                f"the data of job {job} is being sent or removed by another command", remedy="wait for its end"
            )
        self._in_use.add(job)
        try:
            places = list_places(entry.job, entry.cluster, entry.handle)
            sent = await self._rescue_everywhere(places)
        finally:
            self._in_use.discard(job)
        if sent is None:
            raise NotFound(f"job {job} has left no data on {', '.join(place.cluster for place in places)}")
        return sent._asdict()

    async def _rescue_everywhere(self, places: Sequence[WrittenPlace]) -> RescuedData | None:
        """Send what a job has left on each cluster, oldest first: of two versions of a file the later one counts.

        Raises what the first cluster met that failed, after all others have sent theirs.
        """
        sent, failures = [], []
        for place in places:
            try:
                found = await self._rescue_at(place)
            except OverspanError as error:
                failures.append(error)
                continue
            if found is not None:
                sent.append(found)
        if failures:
            raise failures[0]
        return add_rescued(sent)

    async def _rescue_at(self, place: WrittenPlace) -> RescuedData | None:
        adapter = self._clusters.get(place.cluster).adapter
        if not isinstance(adapter, DataRescue):
            raise InvalidRequest(
                f"data that job {place.job.id} could not send cannot be fetched from {place.cluster}",
                remedy="clusters of the kinds local, slurm and kubernetes can",
            )
        try:
            return await adapter.rescue_data(place.job, place.handle)
        except (ObjectStoreError, OSError) as error:
            raise word_failure(error) from None

    def _check_personal(self) -> None:
        if self._shared:
            raise Denied(
                "the shared daemon reaches no object stores",
                remedy="a daemon of your own does: put SPAN_SERVER= before the command",
            )

    def _open(self, text: str) -> tuple[ObjectUrl, S3Store]:
        self._check_personal()
        try:
            url = parse_object_url(text.rstrip("/"))
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        name = find_store(self._stores, url.bucket, url.scheme)
        if not name:
            known = ", ".join(sorted(self._stores)) or "none"
            raise InvalidRequest(
                f"no entry of `stores` in the configuration reaches {url}",
                remedy=f"entries there: {known}; `span config` shows the files",
            )
        return url, S3Store(open_access(name, self._stores[name], os.environ), url.bucket)


def _list_below(store: S3Store, url: ObjectUrl) -> list[StoredObject]:
    head = f"{url.key}/" if url.key else ""
    return [stored for stored in store.list_objects(url.key) if stored.key == url.key or stored.key.startswith(head)]
