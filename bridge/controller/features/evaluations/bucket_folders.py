"""The source of checkpoints in object stores: a listing of objects, as what a watch sees of a folder.

An object appears whole, so a file whose own format ends it is complete when it is there; a folder is judged by what
its layout writes last, as everywhere. No lease files are kept in a store.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence

from overspan.bridge.config.store_settings import StoreSettings, find_store, open_access
from overspan.bridge.model.checkpoints.listings import (
    MAX_CHECKPOINTS,
    MAX_FILES,
    MAX_MARKER,
    FolderListing,
    FoundCheckpoint,
    FoundFile,
    FoundMarker,
    ListingRequest,
    fail_listing,
)
from overspan.bridge.model.checkpoints.readiness import ITERATION, LATEST, TRAINER_STATE
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.storage import ObjectUrl, parse_object_url
from overspan.bridge.runtime.data.object_store import ObjectStore, ObjectStoreError, StoredObject
from overspan.bridge.runtime.data.s3 import S3Store

_BESIDE = (LATEST, ITERATION)
_INDEX = ".safetensors.index.json"
_MAX_INDEX = 32 << 20
_ENDED = re.compile(rf".*\.(safetensors|pt|pth|ckpt|npz|zip|keras)|(.*/)?{re.escape(TRAINER_STATE)}")
"""Files whose format tells where they end (`runtime/checkpoints/scan.py`)."""
_MOST_OTHERS = 5


class BucketFolders:
    """Looks at watched folders of the stores of the configuration."""

    def __init__(self, stores: Mapping[str, StoreSettings]) -> None:
        self._stores = stores
        self._open: dict[str, S3Store] = {}

    def check(self, path: str) -> None:
        """Raise InvalidRequest for a URL that no store of the configuration reaches."""
        self._find(parse_object_url(path))

    async def list(self, requests: Sequence[ListingRequest]) -> list[FolderListing]:
        """A listing of each, in order."""
        return [await asyncio.to_thread(self._look, request) for request in requests]

    def close(self) -> None:
        """Close all connections."""
        for store in self._open.values():
            store.close()

    def _look(self, request: ListingRequest) -> FolderListing:
        try:
            url = parse_object_url(request.path)
            return list_folder(self._find(url), url, request)
        except (InvalidRequest, ValueError, ObjectStoreError) as error:
            return fail_listing(request, str(error))

    def _find(self, url: ObjectUrl) -> S3Store:
        name = find_store(self._stores, url.bucket, url.scheme)
        if not name:
            raise InvalidRequest(
                f"no entry of `stores` in the configuration reaches {url}",
                remedy="add one; `span config` shows the files",
            )
        key = f"{name}/{url.bucket}"
        if key not in self._open:
            self._open[key] = S3Store(open_access(name, self._stores[name], os.environ), url.bucket)
        return self._open[key]


def list_folder(store: ObjectStore, url: ObjectUrl, request: ListingRequest) -> FolderListing:
    """What is seen of one folder. Raises ObjectStoreError."""
    prefix = f"{url.key}/" if url.key else ""
    objects = {stored.key[len(prefix) :]: stored for stored in store.list_objects(prefix)}
    parts = [re.compile(part) for part in request.parts]
    inside, others = _group(objects, parts)
    names = sorted(inside)[:MAX_CHECKPOINTS]
    settled = set(request.settled)
    found = [_describe(store, prefix, name, inside[name], objects, request) for name in names if name not in settled]
    truncated = len(inside) > MAX_CHECKPOINTS
    return FolderListing(
        request.key,
        found=tuple(found),
        gone=() if truncated else tuple(sorted(settled.difference(names))),
        beside=tuple((name, _read(store, prefix + name, MAX_MARKER).strip()) for name in _BESIDE if name in objects),
        others=tuple(others[:_MOST_OTHERS]),
        missing=not objects,
        truncated=truncated,
    )


def _group(names: Iterable[str], parts: Sequence[re.Pattern[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """By checkpoint the names of its objects below it, an empty one for a file; and first names that do not fit.

    An object whose name ends in `/` stands for a folder, as consoles of stores make it; it is no file of it.
    """
    inside: dict[str, list[str]] = {}
    others: dict[str, None] = {}
    for name in names:
        pieces = name.split("/")
        if len(pieces) >= len(parts) and all(part.fullmatch(piece) for part, piece in zip(parts, pieces, strict=False)):
            inner = inside.setdefault("/".join(pieces[: len(parts)]), [])
            if pieces[-1]:
                inner.append("/".join(pieces[len(parts) :]))
        elif not pieces[0].startswith(".") and pieces[0] not in _BESIDE and not parts[0].fullmatch(pieces[0]):
            others[pieces[0]] = None
    return inside, list(others)


def _describe(
    store: ObjectStore,
    prefix: str,
    name: str,
    inner: Sequence[str],
    objects: Mapping[str, StoredObject],
    request: ListingRequest,
) -> FoundCheckpoint:
    folder = "" not in inner
    keys = {each: f"{name}/{each}" if each else name for each in sorted(inner) if folder or not each}
    files = [FoundFile(each, objects[key].size, True if _ENDED.fullmatch(key) else None) for each, key in keys.items()]
    index = next((key for each, key in keys.items() if each.endswith(_INDEX) and "/" not in each), "")
    marker = None
    if request.marker:
        key = _name_marker(name, request.marker)
        if key in objects:
            text = _read(store, prefix + key, MAX_MARKER)
            marker = FoundMarker(objects[key].size, int(objects[key].modified * 1e9), text)
    return FoundCheckpoint(
        name,
        folder,
        time=max((objects[key].modified for key in keys.values()), default=0.0),
        files=tuple(files[:MAX_FILES]),
        marker=marker,
        shards=_read_shards(store, prefix + index) if index else None,
        truncated=len(files) > MAX_FILES,
    )


def _name_marker(name: str, marker: str) -> str:
    """A marker is inside of its checkpoint, or, with `{name}` in it, beside it."""
    if "{name}" not in marker:
        return f"{name}/{marker}"
    head, slash, tail = name.rpartition("/")
    return head + slash + marker.replace("{name}", tail)


def _read_shards(store: ObjectStore, key: str) -> tuple[str, ...] | None:
    try:
        return tuple(sorted(set(map(str, json.loads(_read(store, key, _MAX_INDEX))["weight_map"].values()))))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _read(store: ObjectStore, key: str, limit: int) -> str:
    reader = store.open(key)
    try:
        return reader.read(limit).decode("utf-8", "backslashreplace")
    finally:
        reader.close()
