"""The checkpoint source of this machine: its folders are read directly, and inotify tells when to look."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from overspan.adapters.checkpoint_sources import WatchedFolder
from overspan.adapters.local.checkpoints.inotify import Inotify
from overspan.bridge.model.checkpoints.listings import FolderListing, decode_listings, encode_request, fail_listing
from overspan.bridge.runtime.checkpoints.scan import scan

_log = logging.getLogger(__name__)

A = TypeVar("A")
R = TypeVar("R")

POLL_SECONDS = 1.0
"""Seconds between two looks where inotify does not see everything: network file systems, too many folders."""
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "fuse", "glusterfs"})
"""File systems on which other machines write, of which inotify tells nothing."""


class LocalCheckpoints:
    """Lists folders in a thread, and remembers which of them to wait for."""

    def __init__(self) -> None:
        self._inotify: Inotify | None = None
        self._failed = False
        # Of its own: a file system that hangs keeps no other work of the daemon waiting.
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._inside: dict[str, tuple[str, ...]] = {}
        """For each request the folders whose changes count, as the last listing showed them."""

    async def list(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        """A listing of each folder, in order."""
        if self._inotify is not None:
            # What changes from here on wakes `wait`; what changed before is in the listing.
            self._inotify.take()
        listings = await self._call(_list_all, folders)
        self._inside = {
            folder.request.key: tuple(_list_open(folder, listing))
            for folder, listing in zip(folders, listings, strict=True)
        }
        return listings

    async def wait(self, folders: Sequence[WatchedFolder], timeout: float) -> bool:
        """Wait until something has changed in one of the folders, at most `timeout` seconds."""
        wanted = {path for folder in folders for path in self._inside.get(folder.request.key, (folder.request.path,))}
        instance = self._open()
        if instance is None:
            await asyncio.sleep(min(timeout, POLL_SECONDS))
            return True
        outcome = await self._call(instance.watch, wanted)
        if outcome.fresh:
            # A change between the listing and the watch's beginning raised no event.
            return True
        if not outcome.complete or await self._call(_are_elsewhere, wanted):
            timeout = min(timeout, POLL_SECONDS)
        return await _await_change(instance, timeout)

    async def _call(self, call: Callable[[A], R], argument: A) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, argument)

    def close(self) -> None:
        """Let inotify go."""
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _open(self) -> Inotify | None:
        if self._inotify is None and not self._failed:
            try:
                self._inotify = Inotify()
            except (OSError, AttributeError) as error:
                self._failed = True
                _log.warning("folders of checkpoints are polled: inotify is not available: %s", error)
        return self._inotify


def _list_all(folders: Sequence[WatchedFolder]) -> list[FolderListing]:
    listings = []
    for folder in folders:
        try:
            listings += decode_listings([scan(encode_request(folder.request))])
        except (OSError, ValueError) as error:
            listings.append(fail_listing(folder.request, f"{folder.request.path}: {error}"))
    return listings


def _list_open(folder: WatchedFolder, listing: FolderListing) -> Iterable[str]:
    """The folders in which something may still change: the watched one, and those of checkpoints not settled."""
    path = folder.request.path
    yield _nearest(path) if listing.missing else path
    depth = len(folder.request.parts)
    for found in listing.found:
        pieces = found.name.split("/")
        yield from (os.path.join(path, *pieces[:count]) for count in range(1, depth))
        if found.folder:
            yield os.path.join(path, found.name)
            inner = {os.path.dirname(file.name) for file in found.files}
            yield from (os.path.join(path, found.name, each) for each in sorted(inner) if each)


def _nearest(path: str) -> str:
    """The folder above that is there: the watched one appears below it."""
    while path != "/" and not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _are_elsewhere(paths: Iterable[str]) -> bool:
    """Whether one of the paths is on a file system that other machines write to."""
    mounts = []
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split(" ")[1:3] for line in file]
    except OSError:
        return True
    kinds = {place.replace("\\040", " "): kind for place, kind in mounts}
    return any(_kind_of(path, kinds).partition(".")[0] in _NETWORK for path in paths)


def _kind_of(path: str, kinds: dict[str, str]) -> str:
    path = os.path.realpath(path)
    while path not in kinds and path != "/":
        path = os.path.dirname(path)
    return kinds.get(path, "")


async def _await_change(instance: Inotify, timeout: float) -> bool:
    loop = asyncio.get_running_loop()
    readable, fd = asyncio.Event(), instance.fd
    loop.add_reader(fd, readable.set)
    try:
        async with asyncio.timeout(timeout):
            while not instance.take():
                readable.clear()
                await readable.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fd)
    return True
