"""Brings what a store has below a prefix into a folder: checksummed, resumed, and once a node for what is only read.

Files for reading (COPY) are links into a cache that all jobs of the node share, so they must not be written to, and
have no right for it. Files of a folder that work writes to (MOUNT_CACHED) are its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.sizes import format_bytes
from overspan.bridge.runtime.data.cache import ContentCache, check_room, measure_disk
from overspan.bridge.runtime.data.cached_folder import PART_ENDING, is_open_for_writing
from overspan.bridge.runtime.data.folder_state import FolderState, SyncedFile
from overspan.bridge.runtime.data.hashes import hash_file
from overspan.bridge.runtime.data.object_store import (
    ObjectReader,
    ObjectStoreError,
    ReadableStore,
    StoredObject,
    StoreTrouble,
)
from overspan.bridge.runtime.data.peers import FOLDER as PEERS
from overspan.bridge.runtime.data.removals import RemovalNotes
from overspan.bridge.runtime.data.sending import insist

_BLOCK = 1 << 20


class DataRefused(Exception):
    """What a store has cannot be brought here as it is. The text is a sentence."""


class FetchPlace(NamedTuple):
    """Where files come to lie: the folder, what is known of it, and the node's cache for files that are only read."""

    folder: str
    state: FolderState
    cache: Optional[ContentCache] = None


def fetch(store: ReadableStore, prefix: str, place: FetchPlace, executor: Executor, identity: str) -> None:
    """Make the folder hold what the store has; files that were changed here and are not sent yet stay as they are.

    What work has removed by way of a mount is not fetched. Programs may write to the folder meanwhile.
    `identity` names the store and its bucket. An object of just that key becomes the file `folder` in place of a
    folder. Raises ObjectStoreError, DataRefused and OSError; what was fetched until then counts at the next try.
    """
    wanted = list_wanted(store, prefix, single=place.cache is not None)
    if "" in wanted:
        _make_room(place, wanted.values(), identity)
        _fetch_object(store, wanted[""], place, "", identity)
        return
    os.makedirs(place.folder, mode=0o755, exist_ok=True)
    removed = RemovalNotes(place.folder).list_names() if place.cache is None else set()
    wanted = {name: stored for name, stored in wanted.items() if name not in removed}
    missing = {name: stored for name, stored in wanted.items() if not _is_kept(place, name, stored)}
    _make_room(place, missing.values(), identity)
    jobs = [executor.submit(_fetch_object, store, stored, place, name, identity) for name, stored in missing.items()]
    failures = [failure for failure in (job.exception() for job in jobs) if failure is not None]
    if failures:
        raise failures[0]
    for name in place.state.files.keys() - wanted.keys() - removed:
        _drop(place, name)


def _drop(place: FetchPlace, name: str) -> None:
    """Remove a file that is as it was when it was synced, and that no program is writing to."""
    path = os.path.join(place.folder, name)
    with place.state.lock:
        if not _is_changed(place, name) and not is_open_for_writing(path):
            place.state.forget(name)
            _remove(path)


def drop_replaced(store: ReadableStore, prefix: str, place: FetchPlace, executor: Executor) -> None:
    """Remove files from the folder that the store has in another version by now, or no more: it is read itself.

    Files that were changed here and are not sent yet stay, and so do those that a program has open for writing. Raises
    ObjectStoreError, of MISSING where there is no such bucket, and OSError.
    """
    # Where nothing is in the folder, no other question is asked.
    insist(lambda: next(iter(store.list_objects(prefix)), None))
    os.makedirs(place.folder, mode=0o755, exist_ok=True)
    kept = (name for name in list(place.state.files) if os.path.lexists(os.path.join(place.folder, name)))
    names = [name for name in kept if not _is_changed(place, name)]
    keys = (f"{prefix}/{name}" if prefix else name for name in names)
    for name, etag in zip(names, executor.map(lambda key: _find_etag(store, key), keys)):
        known = place.state.files.get(name)
        if known is not None and known.etag != etag:
            _drop(place, name)


def _find_etag(store: ReadableStore, key: str) -> str:
    """The version that the store has of an object; empty where it has none."""
    try:
        return insist(lambda: store.find(key)).etag
    except ObjectStoreError as error:
        if error.trouble is not StoreTrouble.MISSING:
            raise
        return ""


def list_wanted(store: ReadableStore, prefix: str, *, single: bool) -> dict[str, StoredObject]:
    """The objects below the prefix by their names in the folder; `single`: the empty name for one of just that key.

    Raises ObjectStoreError, and DataRefused for what no folder can hold.
    """
    found = insist(lambda: list(store.list_objects(prefix)))
    wanted: dict[str, StoredObject] = {}
    for stored in found:
        if stored.key.endswith("/") or stored.key.startswith(PEERS):
            continue
        if stored.key == prefix and single:
            return {"": stored}
        head = f"{prefix}/" if prefix else ""
        if stored.key.startswith(head):
            wanted[_check_name(stored.key[len(head) :], stored.key)] = stored
    folders = {name[:place_of] for name in wanted for place_of in _list_slashes(name)}
    clash = next((name for name in wanted if name in folders), None)
    if clash is not None:
        raise DataRefused(f"{clash!r} is an object and a folder of objects at once, which no file system can hold")
    return wanted


def _list_slashes(name: str) -> list[int]:
    return [index for index, letter in enumerate(name) if letter == "/"]


def _check_name(name: str, key: str) -> str:
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part or len(os.fsencode(part)) > 255 for part in parts):
        raise DataRefused(f"no file can have the name of the object {key!r}")
    return name


def _make_room(place: FetchPlace, missing: Iterable[StoredObject], identity: str) -> None:
    """Have room for objects. Raises OSError with both figures where they do not fit now, DataRefused where never."""
    cache = place.cache
    path = place.folder if cache is None else cache.path
    size = sum(each.size for each in missing if cache is None or not cache.has(each, identity))
    most = measure_disk(path)
    if size > most:
        raise DataRefused(
            f"{format_bytes(size)} do not fit on the disk of {path}, which has {format_bytes(most)} for them"
        )
    if cache is None:
        check_room(path, size)
    else:
        cache.make_room(size)


def _is_kept(place: FetchPlace, name: str, stored: StoredObject) -> bool:
    """Whether the file that is there is to stay: it has this content, or was changed here and is not sent yet."""
    path = os.path.join(place.folder, name)
    if not os.path.lexists(path):
        return False
    known = place.state.files.get(name)
    return (known is not None and known.etag == stored.etag and not _is_changed(place, name)) or (
        place.cache is None and _is_changed(place, name)
    )


def _is_changed(place: FetchPlace, name: str) -> bool:
    """Whether a file is not as it was when it was synced."""
    try:
        status = os.stat(os.path.join(place.folder, name))
    except OSError:
        return False
    return not place.state.is_synced(name, status.st_size, status.st_mtime_ns)


def _fetch_object(store: ReadableStore, stored: StoredObject, place: FetchPlace, name: str, identity: str) -> None:
    path = os.path.join(place.folder, name) if name else place.folder
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if place.cache is not None:
        place.cache.link(stored, identity, path, lambda part: download(store, stored, part))
        status = os.stat(path)
    else:
        part = os.path.join(os.path.dirname(path), f".{stored.etag[:40]}{PART_ENDING}")
        download(store, stored, part)
        # Before programs find it: what they write is not synced.
        status = os.stat(part)
        if not _publish(place, part, name):
            return
    place.state.put(name, SyncedFile(status.st_size, status.st_mtime_ns, stored.etag))


def _publish(place: FetchPlace, part: str, name: str) -> bool:
    """Give a file that was fetched its name; False where a program has written that meanwhile, which stays."""
    path = os.path.join(place.folder, name)
    try:
        os.link(part, path)
        _remove(part)
        return True
    except OSError:
        # It is there, or the file system has no links.
        if os.path.lexists(path) and (_is_changed(place, name) or is_open_for_writing(path)):
            _remove(part)
            return False
    os.replace(part, path)
    return True


def download(store: ReadableStore, stored: StoredObject, part: str) -> None:
    """Fetch an object into a file, going on where an earlier try has ended, and check what came.

    Raises ObjectStoreError and OSError.
    """
    while True:
        try:
            _append_rest(store, stored, part)
            return
        except ObjectStoreError as error:
            if error.trouble is not StoreTrouble.TAKEN:
                raise
            # Another version is there by now: from the beginning.
            _remove(part)
            stored = store.find(stored.key)


def _append_rest(store: ReadableStore, stored: StoredObject, part: str) -> None:
    with open(os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b", buffering=0) as file:
        offset = os.fstat(file.fileno()).st_size
        if offset > stored.size:
            file.truncate(0)
            offset = 0
        file.seek(offset)
        # A range behind the last byte is an error.
        reader = insist(lambda: store.open(stored.key, offset if offset < stored.size else 0, stored.etag))
        try:
            if offset < stored.size:
                _copy(reader, file.fileno())
            size = os.fstat(file.fileno()).st_size
            etag = hash_file(file.fileno(), stored, reader.part_size) if reader.etag_is_hash else ""
        finally:
            reader.close()
    if size != stored.size or (etag and etag != stored.etag):
        _remove(part)
        what = f"{format_bytes(size)} of {format_bytes(stored.size)}" if size != stored.size else "other content"
        raise ObjectStoreError(StoreTrouble.SILENT, f"{stored.key} came with {what}, it is fetched again")


def _copy(reader: ObjectReader, fd: int) -> None:
    while block := reader.read(_BLOCK):
        view = memoryview(block)
        while view:
            view = view[os.write(fd, view) :]


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
