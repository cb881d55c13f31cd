"""The daemon's calls to object stores: in threads, so that the event loop goes on; failures become errors of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from overspan.bridge.model.errors import Denied, InvalidRequest, NotFound, OverspanError, Unreachable
from overspan.bridge.runtime.data.fetching import DataRefused
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble
from overspan.bridge.runtime.data.s3 import S3Store
from overspan.bridge.runtime.data.transfers import TransferProgress

R = TypeVar("R")

TELL_SECONDS = 0.5
_ERRORS: Mapping[StoreTrouble, type[OverspanError]] = {
    StoreTrouble.SILENT: Unreachable,
    StoreTrouble.DENIED: Denied,
    StoreTrouble.MISSING: NotFound,
}


async def run_call(store: S3Store, call: Callable[[], R]) -> R:
    """Ask a store in a thread, and close it. Raises OverspanError."""
    try:
        return await asyncio.to_thread(call)
    except (ObjectStoreError, DataRefused, OSError) as error:
        raise word_failure(error) from None
    finally:
        store.close()


async def follow_transfer(
    store: S3Store, progress: TransferProgress, call: Callable[[], None]
) -> AsyncIterator[dict[str, Any]]:
    """Do a transfer, and report its progress twice a second; it ends when the reader of these reports goes away."""
    task = asyncio.ensure_future(run_call(store, call))
    try:
        while not task.done():
            await asyncio.wait([task], timeout=TELL_SECONDS)
            yield {
                "files": progress.files,
                "size": progress.size,
                "total_files": progress.total_files,
                "total_size": progress.total_size,
                **({"links": progress.links} if progress.links else {}),
            }
        await task
    finally:
        progress.cancelled = True


def word_failure(error: Exception) -> OverspanError:
    """The failure of a call as an answer to a user."""
    if isinstance(error, ObjectStoreError):
        return _ERRORS.get(error.trouble, InvalidRequest)(str(error))
    if isinstance(error, FileNotFoundError):
        return NotFound(str(error))
    return InvalidRequest(str(error))
