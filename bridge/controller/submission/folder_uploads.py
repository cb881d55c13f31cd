"""Files of the submitter's that go to a bucket before their job is taken (`file_mounts` with `name` and `source`).

The daemon sends them because it has the credentials, and only for a command of its own user on its own machine: it
reads no other files than that user could. A bucket that is given by its name is made where there is none.
"""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.adapters.archives import list_items
from overspan.bridge.config.store_settings import StoreSettings, open_access
from overspan.bridge.controller.core.store_calls import follow_transfer, run_call
from overspan.bridge.controller.submission.made_buckets import Bucket, MadeBuckets
from overspan.bridge.model.errors import Denied, InvalidRequest, NotFound, OverspanError
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.model.storage import StorageMount, StoreAccess, parse_object_url
from overspan.bridge.readers.submission import Submission
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble
from overspan.bridge.runtime.data.s3 import S3Store
from overspan.bridge.runtime.data.transfers import TransferProgress, send_files

ASK, DONE = "ask", "done"
"""What a command says of these files: that it has them sent itself, and shows how far that is; that it has."""


class FolderUpload(NamedTuple):
    """A bucket that is to be there, and what is to be in it; `sources` as in StorageMount."""

    store: str
    bucket: str
    sources: tuple[str, ...] = ()
    persistent: bool = True

    @property
    def key(self) -> Bucket:
        return self.store, self.bucket


def list_uploads(spec: JobSpec) -> list[FolderUpload]:
    """What is to be sent for a job whose mounts know their stores, each bucket once."""
    found: dict[Bucket, FolderUpload] = {}
    for mount in (mount for task in spec.tasks for mount in task.storage if mount.named):
        fresh = _make_upload(mount)
        known = found.get(fresh.key, fresh)
        sources = tuple(dict.fromkeys((*known.sources, *fresh.sources)))
        found[fresh.key] = known._replace(sources=sources, persistent=known.persistent and fresh.persistent)
    return list(found.values())


def _make_upload(mount: StorageMount) -> FolderUpload:
    return FolderUpload(mount.store, parse_object_url(mount.url).bucket, mount.sources, mount.persistent)


def find_upload_obstacle(spec: JobSpec, submission: Submission) -> str:
    """Why files of the submitter's cannot be sent; empty where they can, or there are none."""
    if not any(mount.sources for task in spec.tasks for mount in task.storage):
        return ""
    if submission.job:
        return "a job cannot have a folder of its machine sent to a bucket"
    if submission.uid != os.geteuid():
        return "the daemon is another user's, and reads no folder of yours"
    return ""


def find_missing(source: str) -> str:
    """What is wrong with a source on this machine; empty if nothing is."""
    if not os.path.exists(source.rstrip("/") or "/"):
        return f"there is no {source} to upload"
    if source.endswith("/") and not os.path.isdir(source):
        return f"{source[:-1]} is no folder; a list of sources may have files: [{source[:-1]}]"
    return ""


class FolderUploads:
    """Sends them, to the stores of the configuration."""

    def __init__(self, stores: Mapping[str, StoreSettings], buckets: MadeBuckets) -> None:
        self._stores = stores
        self._buckets = buckets

    async def send(self, upload: FolderUpload) -> AsyncIterator[dict[str, Any]]:
        """Make the bucket and send the files; how far that is, twice a second. Raises OverspanError."""
        settings = self._stores.get(upload.store)
        if settings is None:
            raise InvalidRequest(f"there is no entry {upload.store} in `stores` of the configuration")
        access = open_access(upload.store, settings, os.environ)
        await self._buckets.hold(upload.key)
        try:
            if not await self._make(upload, access) or not upload.sources:
                return
            store, progress = S3Store(access, upload.bucket), TransferProgress()
            async for facts in follow_transfer(store, progress, lambda: _send(store, upload.sources, progress)):
                yield facts
        finally:
            self._buckets.release(upload.key)

    def note_job(self, spec: JobSpec) -> None:
        """A job was submitted: what it mounts is in use."""
        self._buckets.note_job(spec)

    async def send_all(self, uploads: Sequence[FolderUpload]) -> None:
        """Send all of these. Raises OverspanError."""
        for upload in uploads:
            async for _ in self.send(upload):
                pass

    async def _make(self, upload: FolderUpload, access: StoreAccess) -> bool:
        """Make the bucket if need be; False where that fails, which the job's start shows. Raises OverspanError."""

        def open_bucket() -> S3Store:
            return S3Store(access, upload.bucket)

        try:
            if await run_call(store := open_bucket(), store.has_bucket):
                return True
            if not upload.persistent:
                self._buckets.expect(upload.key)
            if not await run_call(store := open_bucket(), lambda: _make_bucket(store, upload.bucket)):
                self._buckets.forget(upload.key)
            elif not upload.persistent:
                self._buckets.confirm(upload.key)
        except OverspanError as error:
            if not upload.sources:
                return False
            if isinstance(error, Denied):
                error.remedy = "it may be another owner's: choose another `name`, or credentials that may write there"
            raise
        return True


def _make_bucket(store: S3Store, name: str) -> bool:
    """Make a bucket; False where it was this owner's already. Raises ObjectStoreError."""
    try:
        return store.make_bucket()
    except ObjectStoreError as error:
        if error.trouble is not StoreTrouble.TAKEN:
            raise
        raise ObjectStoreError(StoreTrouble.DENIED, f"the bucket {name} is another owner's: {error}") from None


def _send(store: S3Store, sources: Sequence[str], progress: TransferProgress) -> None:
    """Send files and folders, without what is left out of a `workdir` too. Raises OverspanError and what stores do."""
    files: dict[str, str] = {}
    for source in sources:
        if why := find_missing(source):
            raise NotFound(why)
        items = list_items(source, sys.maxsize)
        progress.links += sum(item.kind == tarfile.SYMTYPE for item in items)
        start = items[0].name if source.endswith("/") else ""
        files.update({_name(item.name, start): item.path for item in items if item.kind == tarfile.REGTYPE})
    send_files(store, files, "", progress)


def _name(name: str, start: str) -> str:
    """The name of an item in the bucket: without the folder `start`, if that is given."""
    return name[len(start) + 1 :] if start else name
