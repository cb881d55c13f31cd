"""Looks at the folders of watches: a loop for each cluster that has any, which its source wakes when it can."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from overspan.adapters.checkpoint_sources import CheckpointNews, CheckpointSource, WatchedFolder
from overspan.bridge.controller.core.across.projection import find_handle
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.wakeups import Wakeup
from overspan.bridge.controller.features.evaluations.bucket_folders import BucketFolders
from overspan.bridge.controller.features.evaluations.watches import CheckpointWatch
from overspan.bridge.model.checkpoints.listings import FolderListing, fail_listing
from overspan.bridge.model.errors import NotFound, OverspanError, Unreachable
from overspan.bridge.model.storage import is_object_url

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""Seconds between two looks at a cluster that does not tell of changes."""
IDLE_SECONDS = 5.0
"""Seconds after which a source that tells of changes is asked all the same."""
LINGER_SECONDS = 10.0
"""How long checkpoints are looked for after the job's end: file systems show some files late."""
RETRY_SECONDS = 5.0
LIST_SECONDS = 60.0
"""Seconds within which a source has to answer."""


@dataclass(frozen=True)
class _Loop:
    """The loop that looks at one cluster, and what wakes it."""

    wakeup: Wakeup
    task: asyncio.Task[None]


class FolderLooks:
    """The loops by cluster. `list_watches` gives the open watches of a cluster; `take` gets each folder's listing."""

    def __init__(
        self,
        clusters: Clusters,
        list_watches: Callable[[str], Sequence[CheckpointWatch]],
        take: Callable[[CheckpointWatch, FolderListing, float], Awaitable[None]],
    ) -> None:
        self._clusters = clusters
        self._list_watches = list_watches
        self._take = take
        self._loops: dict[str, _Loop] = {}
        self._buckets = BucketFolders(clusters.store_settings)
        self._closed = False

    def begin(self, name: str) -> None:
        """Look at a cluster's folders from now on, at once, until it has no open watch."""
        if self._closed:
            return
        loop = self._loops.get(name)
        if loop is None or loop.task.done():
            wakeup = Wakeup()
            self._loops[name] = _Loop(wakeup, asyncio.ensure_future(self._look(name, wakeup)))
        else:
            loop.wakeup.wake()

    def wake(self, name: str) -> None:
        """Look at once, where anything is looked at."""
        loop = self._loops.get(name)
        if loop is not None:
            loop.wakeup.wake()

    async def close(self) -> None:
        """Stop looking."""
        self._closed = True
        tasks = [loop.task for loop in self._loops.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._buckets.close()

    async def _look(self, name: str, wakeup: Wakeup) -> None:
        """Look at a cluster's folders for as long as one of its watches is open."""
        while True:
            watches = self._list_watches(name)
            if not watches:
                return
            seen = wakeup.count
            try:
                delay = await self._look_once(name, watches)
            except OverspanError as error:
                log.warning("checkpoints on %s: %s; trying again", name, error)
                delay = RETRY_SECONDS
            except Exception:
                log.exception("looking for checkpoints on %s", name)
                delay = RETRY_SECONDS
            await self._await_news(name, wakeup, seen, delay)

    async def _look_once(self, name: str, watches: Sequence[CheckpointWatch]) -> float:
        """Look at all folders of a cluster once; gives the seconds until the next look."""
        folders = [self._folder(watch) for watch in watches]
        listings = await self._list(name, folders)
        now = asyncio.get_running_loop().time()
        for watch, listing in zip(watches, listings, strict=True):
            if watch.cluster == name:
                await self._take(watch, listing, now)
        due = [watch.look_at for watch in watches if watch.look_at is not None]
        due += [watch.over_at + LINGER_SECONDS for watch in watches if watch.over_at is not None]
        left = [max(0.05, at - now) for at in due if at > now]
        in_store = any(is_object_url(watch.spec.path) for watch in watches)
        return min([POLL_SECONDS if in_store else self._pace(name), *left])

    def _folder(self, watch: CheckpointWatch) -> WatchedFolder:
        owner = f"{watch.stored.job_id}.{watch.stored.id}"
        request = watch.request(owner)
        path = self._clusters.shared_paths.locate_of(watch.job, request.path, watch.cluster)
        request = replace(request, path=path)
        return WatchedFolder(request, watch.job, watch.spec.task, find_handle(watch.handle, watch.cluster))

    async def _list(self, name: str, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        """A listing of each: those of object stores are looked at from here."""
        stored = [folder.request for folder in folders if is_object_url(folder.request.path)]
        others = [folder for folder in folders if not is_object_url(folder.request.path)]
        found = [*await self._buckets.list(stored), *(await self._list_there(name, others) if others else ())]
        by_key = {listing.key: listing for listing in found}
        return [by_key[folder.request.key] for folder in folders]

    async def _list_there(self, name: str, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        try:
            adapter = self._clusters.get(name).adapter
            if not isinstance(adapter, CheckpointSource):
                why = f"checkpoints on the cluster {name} cannot be looked for"
                return [fail_listing(folder.request, why) for folder in folders]
            async with asyncio.timeout(LIST_SECONDS):
                return await adapter.list_checkpoints(folders)
        except TimeoutError:
            return [fail_listing(folder.request, f"no answer within {LIST_SECONDS:g} s") for folder in folders]
        except (Unreachable, NotFound) as error:
            return [fail_listing(folder.request, error.message) for folder in folders]

    def _pace(self, name: str) -> float:
        return IDLE_SECONDS if self._news_of(name) is not None else POLL_SECONDS

    def _news_of(self, name: str) -> CheckpointNews | None:
        try:
            adapter = self._clusters.get(name).adapter
        except OverspanError:
            return None
        return adapter if isinstance(adapter, CheckpointNews) else None

    async def _await_news(self, name: str, wakeup: Wakeup, seen: int, delay: float) -> None:
        """Wait for a change on the cluster, a wake-up, or the next look."""
        source = self._news_of(name)
        watches = self._list_watches(name)
        in_store = any(is_object_url(watch.spec.path) for watch in watches)
        if source is None or in_store or any(watch.trouble for watch in watches):
            await wakeup.wait(delay, seen)
            return
        folders = [self._folder(watch) for watch in watches]
        waits = [
            asyncio.ensure_future(wakeup.wait(delay, seen)),
            asyncio.ensure_future(source.await_changes(folders, delay)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            outcomes = await asyncio.gather(*waits, return_exceptions=True)
        if any(isinstance(each, Exception) for each in outcomes):
            log.warning("changes on %s are not told: %s", name, outcomes)
            await wakeup.wait(min(delay, RETRY_SECONDS))
