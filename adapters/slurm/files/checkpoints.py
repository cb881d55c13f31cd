"""The checkpoint source of a Slurm cluster: one call to the login node lists all watched folders.

The scanner's text goes along with the requests, so nothing is installed there. Slurm is not asked. It is a call of its
own, and not that of the journals: a folder on a file system that hangs must not delay them. Such a folder is found out,
and is then asked alone, in the background and ever more rarely, because each try may leave a process behind that hangs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from overspan.adapters.checkpoint_scanner import LOAD, pack_scanner
from overspan.adapters.checkpoint_sources import WatchedFolder
from overspan.adapters.slurm.transports.transport import Interrupted, Transport
from overspan.bridge.model.checkpoints.listings import (
    FolderListing,
    ListingRequest,
    decode_listings,
    fail_listing,
)
from overspan.bridge.model.errors import OverspanError, Unreachable

_log = logging.getLogger(__name__)

HANG_SECONDS = 60.0
"""Seconds until a folder that hangs is asked for again; twice as long after each try, up to MAX_HANG_SECONDS."""
MAX_HANG_SECONDS = 900.0
_AT_ONCE = 4
"""Folders that are asked one by one at the same time, to find out which of them hang."""
_NO_SCANNER = (
    "checkpoints are looked for by `{python}` (3.9 or newer) on the login node, and it ended with {rc}: {said}"
)
_RUN = f"""\
import base64, sys, zlib
if sys.version_info < (3, 9): sys.exit("it is Python %d.%d" % sys.version_info[:2])
{LOAD}sys.exit(there["main"]([requests]))
"""


@dataclass(frozen=True)
class HungFolder:
    """A folder whose file system does not answer: when it is asked again (monotonic time), and the wait before that."""

    again_at: float
    wait: float


class SlurmCheckpoints:
    """Lists folders on the login node. `timeout` is in seconds."""

    def __init__(self, transport: Transport, python: str, timeout: float) -> None:
        self._transport = transport
        self._python = python
        self._timeout = timeout
        self._hung: dict[str, HungFolder] = {}
        self._retries: dict[str, asyncio.Task[None]] = {}

    async def list(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        """A listing of each folder, in order. Raises Unreachable where the login node does not answer."""
        requests = [folder.request for folder in folders]
        paths = {request.path for request in requests}
        self._hung = {path: hung for path, hung in self._hung.items() if path in paths}
        for request in requests:
            self._begin_retry(request)
        asked = [request for request in requests if request.path not in self._hung]
        listings = {listing.key: listing for listing in await self._look(asked)}
        return [listings.get(request.key) or self._tell_hang(request) for request in requests]

    async def close(self) -> None:
        """Stop asking for folders that hang."""
        for task in self._retries.values():
            task.cancel()
        await asyncio.gather(*self._retries.values(), return_exceptions=True)

    async def _look(self, requests: Sequence[ListingRequest]) -> Sequence[FolderListing]:
        """The listings of folders that do not hang. Raises Unreachable."""
        if not requests:
            return []
        try:
            return await self._ask(requests)
        except Interrupted:
            # Raises Unreachable where it is the login node that does not answer.
            await self._transport.run(["true"], timeout=self._timeout)
        limit = asyncio.Semaphore(_AT_ONCE)

        async def ask_alone(request: ListingRequest) -> FolderListing | None:
            async with limit:
                try:
                    return (await self._ask([request]))[0]
                except Interrupted:
                    return None

        found = await asyncio.gather(*map(ask_alone, requests))
        for request, listing in zip(requests, found, strict=True):
            if listing is None:
                self._note_hang(request.path, HANG_SECONDS)
        return [listing for listing in found if listing is not None]

    async def _ask(self, requests: Sequence[ListingRequest]) -> Sequence[FolderListing]:
        """Run the scanner there. Raises Unreachable, and Interrupted where it does not end in time."""
        sent = pack_scanner(requests)
        done = await self._transport.run([self._python, "-I", "-S", "-c", _RUN], stdin=sent, timeout=self._timeout)
        try:
            # A login shell may have written lines of its own before.
            return decode_listings(json.loads(done.out.strip().rpartition(b"\n")[2]))
        except ValueError:
            said = " ".join((done.words or done.text).split())[-200:]
            why = _NO_SCANNER.format(python=self._python, rc=done.rc, said=said or "no word")
            return [fail_listing(request, why) for request in requests]

    # --- folders that hang -------------------------------------------------------------------------------------------

    def _note_hang(self, path: str, wait: float) -> None:
        if path not in self._hung:
            _log.warning("%s does not answer within %g s; it is asked again after %g s", path, self._timeout, wait)
        self._hung[path] = HungFolder(time.monotonic() + wait, wait)

    def _tell_hang(self, request: ListingRequest) -> FolderListing:
        why = f"{request.path} does not answer within {self._timeout:g} s: its file system hangs; it is asked again"
        return fail_listing(request, why)

    def _begin_retry(self, request: ListingRequest) -> None:
        """Ask for a folder that hangs, if it is time to; its listing comes with the next look."""
        hung = self._hung.get(request.path)
        if hung is not None and time.monotonic() >= hung.again_at and request.path not in self._retries:
            self._retries[request.path] = asyncio.create_task(self._retry(request, hung))

    async def _retry(self, request: ListingRequest, hung: HungFolder) -> None:
        try:
            await self._ask([request])
            self._hung.pop(request.path, None)
        except Unreachable:
            if request.path in self._hung:
                self._note_hang(request.path, min(2 * hung.wait, MAX_HANG_SECONDS))
        except OverspanError as error:
            _log.warning("%s: %s", request.path, error)
        finally:
            del self._retries[request.path]
