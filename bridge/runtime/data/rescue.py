"""The rescue of what a failed flush has left, by the daemon or by a program where that is.

The program's words are ROOT JOB [PATTERN]; with a pattern, JOB-FOLDER/*/*, it is in each folder below ROOT that
matches, of the newest launch first, which is removed when nothing is left there, as are those above it up to the job's.
The standard input has a JSON object of the stores by name, so that no file there gets their credentials. The answer is
JSON too: what was sent, null where nothing is left, or {"error", "trouble"} with exit code 1.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from overspan.bridge.model.documents import decode
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data.cached_folder import CachedFolder, SeenFile, count_bytes, list_files
from overspan.bridge.runtime.data.mounts import MountFolder, list_folders, name_folder, remove_if_empty
from overspan.bridge.runtime.data.object_store import ObjectStore, ObjectStoreError, StoredObject, StoreTrouble
from overspan.bridge.runtime.data.s3 import S3Store
from overspan.bridge.runtime.data.transfers import open_threads

_LOCK = "rescue.lock"
"""A file in the folder of a job's data."""
_NEWER = "newer.json"
"""A file beside a mount's description."""
_NO_FILE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of a disk that is full, over its quota or read-only."""


class RescuedData(NamedTuple):
    """What was sent of a folder that a job has left, and the files that the store has newer versions of."""

    files: int
    size: int
    newer: tuple[str, ...] = ()


class HeldFolder(NamedTuple):
    """A folder that could not be sent, and the objects that its unsent files would be; None where they are unknown."""

    folder: MountFolder
    keys: Optional[frozenset[str]]


def rescue_job(root: str, job: int, stores: Mapping[str, StoreAccess]) -> Optional[RescuedData]:
    """Send all that a job has left in folders that it wrote to; None where there are none.

    Raises ObjectStoreError and OSError, after all other folders were sent.
    """
    return _rescue_at(root, job, stores, {}, ())


def _rescue_at(
    root: str,
    job: int,
    stores: Mapping[str, StoreAccess],
    silent: dict[str, ObjectStoreError],
    held: Sequence[HeldFolder],
) -> Optional[RescuedData]:
    """As `rescue_job`. `silent` has the stores that did not answer: they are not waited for again. `held` has newer
    folders that could not be sent: older versions of their files wait for them.
    """
    if not _list_written(root, job):
        return None
    sent: list[RescuedData] = []
    failures: list[Exception] = []
    with hold_alone(root, job):
        # Again: another rescue may have ended meanwhile.
        for folder in _list_written(root, job):
            try:
                if folder.mount.store in silent:
                    raise silent[folder.mount.store]
                _check_newer(folder, held)
                sent.append(_send(folder, stores))
            except (ObjectStoreError, OSError) as error:
                failures.append(error)
                if isinstance(error, ObjectStoreError) and error.trouble is StoreTrouble.SILENT:
                    silent[folder.mount.store] = error
    if failures:
        raise failures[0]
    remove_if_empty(root, job)
    return add_rescued(sent)


def _check_newer(folder: MountFolder, held: Sequence[HeldFolder]) -> None:
    """Raise OSError where a newer folder has a version of a file that would be sent.

    The store's would be newer than that one then, which would stay. All of the folder waits, since a marker in it may
    speak of that file.
    """
    # What cannot be listed is said when it is sent.
    keys = _list_unsent_keys(folder) or frozenset()
    for newer in held:
        other = newer.folder
        if (other.mount.store, other.url.bucket) != (folder.mount.store, folder.url.bucket):
            continue
        prefixes = [_name_prefix(each) for each in (folder, other)]
        unknown = newer.keys is None and (prefixes[0].startswith(prefixes[1]) or prefixes[1].startswith(prefixes[0]))
        if unknown or keys & (newer.keys or frozenset()):
            text = f"{other.path} may have newer versions of its files, and could not be sent"
            raise OSError(errno.EAGAIN, text, folder.files)


def _hold(root: str, job: int) -> list[HeldFolder]:
    """What is left of a job in a folder that could not be sent."""
    return [HeldFolder(folder, _list_unsent_keys(folder)) for folder in _list_written(root, job)]


def _list_unsent_keys(folder: MountFolder) -> Optional[frozenset[str]]:
    """The objects that its unsent files would be; None where they cannot be listed."""
    state, prefix = folder.open_state(), _name_prefix(folder)
    try:
        return frozenset(
            f"{prefix}{name}" for name, file in list_files(folder.files) if not state.is_synced(name, *file)
        )
    except OSError:
        return None


def _name_prefix(folder: MountFolder) -> str:
    return f"{folder.url.key}/" if folder.url.key else ""


def _list_written(root: str, job: int) -> list[MountFolder]:
    return [folder for folder in list_folders(root, job) if folder.written]


def _send(folder: MountFolder, stores: Mapping[str, StoreAccess]) -> RescuedData:
    if folder.mount.store not in stores:
        raise ObjectStoreError(StoreTrouble.DENIED, f"nothing says how the store {folder.mount.store} is reached")
    store = S3Store(stores[folder.mount.store], folder.url.bucket)
    try:
        return rescue_folder(folder, store)
    finally:
        store.close()


@contextlib.contextmanager
def hold_alone(root: str, job: int) -> Iterator[None]:
    """Keep other processes from rescuing a job, or removing its data: one of an earlier daemon's may still send.

    The locks end with their process: that of a file beside the data, which other nodes see, and that of the folder,
    for a disk that has no room for a file: a rescue may be to free it. Where the file system has none, nothing keeps
    others off. Raises OSError where another process has one.
    """
    folder = name_folder(root, job)
    path = os.path.join(folder, _LOCK)
    with _lock(folder, os.O_RDONLY, path, job), _lock(path, os.O_RDWR | os.O_CREAT, path, job) as fd:
        if fd is not None:
            if not os.fstat(fd).st_nlink:
                text = f"the data of job {job} was being sent by another rescue until now; give the command again"
                raise OSError(text)
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        yield
        # While it is held: what is opened later is another file.
        with contextlib.suppress(OSError):
            os.unlink(path)


def is_held(root: str, job: int) -> bool:
    """Whether a rescue sends what a job has left here, as far as its lock file tells: a full disk has none."""
    try:
        fd = os.open(os.path.join(name_folder(root, job), _LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # That of a rescue that was killed is held by nobody.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _lock(path: str, flags: int, lock: str, job: int) -> Iterator[Optional[int]]:
    """The descriptor of a file or folder, locked where that has locks; None where the disk takes no new file."""
    fd = None
    try:
        fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
    if fd is None:
        yield None
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise OSError(_describe_other(lock, job)) from None
        yield fd
    finally:
        os.close(fd)


def _describe_other(lock: str, job: int) -> str:
    """What is said where another rescue has the lock; NFSv3 may keep that of a node that died."""
    try:
        with open(lock, encoding="utf-8", errors="replace") as file:
            who = file.read(200).strip()
    except OSError:
        who = ""
    text = f"the data of job {job} is being sent by another rescue ({who or 'process unknown'})"
    return f"{text}; wait for its end, or end it; if its node is gone, remove {lock}"


def add_rescued(sent: Sequence[RescuedData]) -> Optional[RescuedData]:
    """All of it as one; None of nothing."""
    if not sent:
        return None
    newer = tuple(name for one in sent for name in one.newer)
    return RescuedData(sum(one.files for one in sent), sum(one.size for one in sent), newer)


def rescue_folder(folder: MountFolder, store: ObjectStore) -> RescuedData:
    """Send what a job could not, and remove it from the node. What the store has in newer versions stays there, and
    the files on the node. Raises ObjectStoreError and OSError.
    """
    state = folder.open_state()
    prefix = _name_prefix(folder)
    there = {stored.key[len(prefix) :]: stored for stored in store.list_objects(prefix)}
    with open_threads() as senders:
        cached = CachedFolder(folder.files, store, folder.url.key, state, senders, folder.mount.markers)
        unsent = cached.list_unsent(cached.scan())
        newer = sorted(name for name, file in unsent.items() if _is_newer(there.get(name), file, state.files.get(name)))
        sent = {name: file for name, file in unsent.items() if name not in newer}
        synced = {name: SeenFile(known.size, known.written) for name, known in state.files.items()}
        # As if all else were as the store has it: nothing is removed there.
        cached.send({**synced, **sent}, ended=True)
        left = {name for name in cached.list_unsent(cached.scan()) if name not in newer}
    if left:
        raise OSError(errno.EAGAIN, f"{len(left)} files change while they are sent", folder.files)
    if newer:
        _note_newer(folder, newer)
    else:
        folder.remove()
    return RescuedData(len(sent), count_bytes(sent), tuple(newer))


def _note_newer(folder: MountFolder, names: Sequence[str]) -> None:
    """Note for listings which files stay because the store has newer versions."""
    with contextlib.suppress(OSError), open(os.path.join(folder.path, _NEWER), "w", encoding="utf-8") as file:
        json.dump(names, file)


def read_newer(folder: MountFolder) -> list[str]:
    """The files that a rescue has left because the store had newer versions."""
    try:
        with open(os.path.join(folder.path, _NEWER), encoding="utf-8") as file:
            return [str(name) for name in json.load(file)]
    except (OSError, ValueError, TypeError):
        return []


def _is_newer(stored: Optional[StoredObject], file: SeenFile, known: object) -> bool:
    """Whether the store has had another version written since the file was."""
    if stored is None or (known is not None and getattr(known, "etag", "") == stored.etag):
        return False
    return stored.modified > file.written / 1e9


def remove_pod_folder(root: str) -> None:
    """Remove the folder of a pod that is gone, with what it only read; those of its launch and job where empty."""
    shutil.rmtree(root, ignore_errors=True)
    try:
        for _ in range(2):
            root = os.path.dirname(root)
            os.rmdir(root)
    except OSError:
        # Other pods have left something there.
        pass


def read_answer(answer: Any) -> Optional[RescuedData]:
    """What `main` has answered. Raises what it met: ObjectStoreError or OSError."""
    if answer is None:
        return None
    if "error" in answer:
        if answer["trouble"]:
            raise ObjectStoreError(StoreTrouble(answer["trouble"]), answer["error"])
        raise OSError(answer["error"])
    return RescuedData(int(answer["files"]), int(answer["size"]), tuple(answer["newer"]))


def _find_age(root: str, job: int) -> tuple[int, int]:
    """What sorts pods' folders, LAUNCH/POD, from the newest to the oldest: the launch, then the last write.

    So of two versions of a file the later one is sent. The store's is newer than the other one then, which stays.
    """
    launch = os.path.basename(os.path.dirname(root))
    last = 0
    # What cannot be read is said when it is sent.
    with contextlib.suppress(OSError):
        for folder in _list_written(root, job):
            last = max(last, *(file.written for _, file in list_files(folder.files)), 0)
    return -int(launch) if launch.isdecimal() else 0, -last


def main(words: Sequence[str]) -> int:
    """Rescue what a job has left here; gives the exit code."""
    root, job, *pattern = words
    roots = [root]
    if pattern:
        roots = sorted(glob.glob(os.path.join(root, *pattern)), key=lambda each: _find_age(each, int(job)))
    stores = {name: decode(StoreAccess, document) for name, document in json.loads(sys.stdin.readline()).items()}
    found: list[RescuedData] = []
    failures: list[Exception] = []
    silent: dict[str, ObjectStoreError] = {}
    held: list[HeldFolder] = []
    for each in roots:
        # One that fails, such as a pod's that another rescue sends, keeps only older versions of its files.
        try:
            sent = _rescue_at(each, int(job), stores, silent, held)
            if sent is not None:
                found.append(sent)
            if pattern and not _list_written(each, int(job)):
                remove_pod_folder(each)
        except (ObjectStoreError, OSError) as error:
            failures.append(error)
            held += _hold(each, int(job))
    if failures:
        first = failures[0]
        trouble = first.trouble.value if isinstance(first, ObjectStoreError) else ""
        count = f" ({len(failures)} of {len(roots)} folders could not be sent)" if len(roots) > 1 else ""
        print(json.dumps({"error": f"{first}{count}", "trouble": trouble}))
        return 1
    total = add_rescued(found)
    print(json.dumps(None if total is None else total._asdict()))
    return 0
