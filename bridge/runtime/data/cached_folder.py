"""A folder on the node's own disk whose files are sent to a store while work writes there: the uploader of one mount.

A file is sent when it has been quiet for a moment and no process has it open for writing, in the order of last writes
(`publication.py`). What fails is tried again until the caller stops: nothing here gives up.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Callable, Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.data.folder_state import FolderState
from overspan.bridge.runtime.data.object_store import ObjectStore, ObjectStoreError, StoredObject, StoreTrouble
from overspan.bridge.runtime.data.peers import Peers
from overspan.bridge.runtime.data.publication import (
    SMALL,
    SendStep,
    UnsentFile,
    is_marker,
    name_covered,
    order_removals,
    plan_steps,
)
from overspan.bridge.runtime.data.removals import RemovalNotes
from overspan.bridge.runtime.data.sending import FileChanged, insist, send_file

QUIET = 1.0
"""Seconds without a write after which a closed file is sent."""
TICK = 0.02
"""Seconds after a write for which another one may have the same time: kernels count those of files in ticks of 10 ms at
most. What is written anew with as many bytes meanwhile would look the same as what was sent.
"""
PART_ENDING = ".overspan-part"
"""The end of the names of files that are being fetched."""
PATIENCE = 10.0
"""Seconds without a write after which a file is sent although a process has it open, such as a log."""


SMALL_AT_ONCE = 8
"""Small files that are sent at once: a request for one is mostly a wait."""
SKEW = 5.0
"""Seconds that the clocks of machines which write one folder may be apart."""


class SeenFile(NamedTuple):
    """A file of the folder: its size, its last write in nanoseconds."""

    size: int
    written: int


class Senders(NamedTuple):
    """The threads that send: one file each, parts of large files, and small files, of which more go at once."""

    files: Executor
    parts: Executor
    small: Executor

    def choose(self, size: int) -> Executor:
        """Those that send files of so many bytes."""
        return self.small if size <= SMALL else self.files


class CachedFolder:
    """The uploader of one folder; used by one thread.

    Programs of other machines write to a `shared` one, on a network file system: what this machine remembers of files
    there may be old, and their times are of several clocks.
    """

    def __init__(
        self,
        path: str,
        store: ObjectStore,
        prefix: str,
        state: FolderState,
        senders: Senders,
        markers: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
        peers: Optional[Peers] = None,
        shared: bool = False,
    ) -> None:
        self._shared = shared
        self._peers = peers
        self.path = path
        self.state = state
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""
        self._senders = senders
        self._markers = frozenset(markers)
        self._clock = clock
        self._folder = _identify(path)
        self._removals = RemovalNotes(path)
        self._awaited: dict[str, Mapping[str, SeenFile]] = {}
        """Of each removed file: what was not in the store when its removal was first seen, as its new name may be."""

    def scan(self, *, ended: bool = False) -> dict[str, SeenFile]:
        """All files as they are now, also on other machines where who wrote them has `ended`.

        Raises OSError where the folder itself is gone: then nothing is concluded.
        """
        if _identify(self.path) != self._folder:
            raise FileNotFoundError(errno.ENOENT, "the folder was removed or replaced", self.path)
        return dict(list_files(self.path, fresh=ended and self._shared))

    def list_unsent(self, seen: Mapping[str, SeenFile]) -> dict[str, SeenFile]:
        """Those of them that the store does not have as they are."""
        with self.state.lock:
            return {name: file for name, file in seen.items() if not self.state.is_synced(name, *file)}

    def send(
        self, seen: Mapping[str, SeenFile], *, ended: bool = False, going_on: Callable[[], bool] = lambda: True
    ) -> None:
        """Send what is settled, in order, and remove from the store what was removed here.

        A removal waits for what is not sent yet, unless that changes. `ended`: the programs have ended, so a file that
        is not open is settled. Raises ObjectStoreError, OSError and PeersLost; what went before stays sent. A file that
        cannot be sent keeps a marker that comes after, and the last of its series.
        """
        now, waiting = self._clock(), self.list_unsent(seen)
        if self._peers is not None:
            self._peers.look()
            self._peers.answer(self._list_plain(waiting))
        unsent = [
            UnsentFile(
                name, file.size, file.written, self._is_settled(name, file, now, ended), name not in self.state.files
            )
            for name, file in waiting.items()
        ]
        steps = plan_steps(unsent, self._markers, int(SKEW * 1e9) if self._shared else 0)
        refused = self._send_steps(steps, seen, ended, going_on)
        if not going_on():
            return
        self._remove_missing(seen)
        if refused:
            raise refused[0]
        if ended and self._peers is not None:
            left = self.list_unsent(seen)
            plain = self._list_plain(left)
            self._peers.end(plain, left.keys() - plain.keys())

    def _remove_missing(self, seen: Mapping[str, SeenFile]) -> None:
        """Remove from the store what was removed here, in the version that was sent or fetched last."""
        gone, left = self.state.files.keys() - seen.keys(), self.list_unsent(seen)
        self._awaited = {name: self._awaited.get(name, left) for name in gone}
        for name in order_removals(gone, self._markers):
            # One of them may be the file under its new name; a log that is written to all the time is none.
            if any(left.get(other) == file for other, file in self._awaited[name].items()):
                continue
            self._delete(name, self.state.files[name].means)
            self.state.forget(name)

    def remove_noted(self) -> None:
        """Remove from the store what was removed by way of a mount, in the version that work has seen there.

        Not before all that was written until then is in the store: what has another name is in the folder before the
        note of its old one is. Raises ObjectStoreError and OSError.
        """
        notes = self._removals.read()
        if not notes:
            return
        seen = self.scan(ended=True)
        if self.list_unsent(seen):
            return
        for path, removal in notes.items():
            # What was written anew is in the folder.
            if removal.name not in seen:
                self._delete(removal.name, removal.means)
            self._removals.take(path)

    def _delete(self, name: str, means: Callable[[StoredObject], bool]) -> None:
        """Delete an object if it is the version that is meant: another job's stays."""
        key = self._prefix + name
        try:
            stored = insist(lambda: self._store.find(key))
        except ObjectStoreError as error:
            if error.trouble is StoreTrouble.MISSING:
                return
            raise
        if means(stored):
            self._store.delete(key)

    def _send_steps(
        self, steps: Sequence[SendStep], seen: Mapping[str, SeenFile], ended: bool, going_on: Callable[[], bool]
    ) -> list[BaseException]:
        """Send files step by step; gives why some of them cannot be sent. Raises as `send`."""
        refused: list[BaseException] = []
        whole = True
        wholes: list[bool] = []
        for step in steps:
            marks = any(is_marker(name, self._markers) for name in step.names)
            if not going_on() or (marks and not whole):
                # Nothing that a marker speaks of may be missing. The next look goes on.
                break
            if marks and not self._agree(step.names, seen, ended):
                whole = False
                continue
            if not all(wholes[len(wholes) - step.rest :]):
                # A reader takes the last of a series for all of it.
                continue
            sent, failures = self._send_step({name: seen[name] for name in step.names})
            wholes.append(sent)
            refused += failures
            whole = whole and sent and not refused
            if marks and whole and self._peers is not None:
                for name in step.names:
                    self._peers.forget(name, seen[name])
        return refused

    def _send_step(self, files: Mapping[str, SeenFile]) -> tuple[bool, list[BaseException]]:
        """Send files several at once: whether all were, and why some of them cannot be. Raises as `send`."""
        jobs = [self._senders.choose(file.size).submit(self._send_file, name, file) for name, file in files.items()]
        for job in jobs:
            failure = None if job.cancelled() else job.exception()
            if failure is not None and not _concerns_file(failure):
                # No store: those that have not begun would only wait for it, each as long.
                for other in jobs:
                    other.cancel()
        # All of them, so that none is still on its way when the next step begins.
        begun = [job for job in jobs if not job.cancelled()]
        failures = list(filter(None, (job.exception() for job in begun)))
        for failure in failures:
            if not _concerns_file(failure):
                raise failure
        return not failures and all(job.result() for job in begun), failures

    def _list_plain(self, files: Mapping[str, SeenFile]) -> dict[str, SeenFile]:
        """Those that are no markers."""
        return {name: file for name, file in files.items() if not is_marker(name, self._markers)}

    def _agree(self, names: Sequence[str], seen: Mapping[str, SeenFile], ended: bool) -> bool:
        """Whether all that markers among these files speak of is sent, as far as other machines have written it."""
        peers, marks = self._peers, [name for name in names if is_marker(name, self._markers)]
        if self._shared and not all(self._knows_all(name, seen) for name in marks):
            return False
        return peers is None or all(peers.agree(name, seen[name], ended=ended) for name in marks)

    def _knows_all(self, marker: str, seen: Mapping[str, SeenFile]) -> bool:
        """Whether this look saw all that other machines had written before a marker, as it is; else the next one does.

        To ask the server for each file at each look would cost too much.
        """
        until = seen[marker].written + int(SKEW * 1e9)
        files = list_files(self.path, name_covered(marker), fresh=True)
        return all(seen.get(name) == file for name, file in files if name == marker or file.written <= until)

    def _send_file(self, name: str, file: SeenFile) -> bool:
        """Send a file as it was seen; False where it has changed since, and is not in the store as it is now."""
        path = os.path.join(self.path, name)
        try:
            sent = send_file(self._store, path, self._prefix + name, self._senders.parts, file)
        except FileChanged:
            return False
        except FileNotFoundError:
            # The next look finds it gone.
            return True
        self.state.put(name, sent)
        return True

    def _is_settled(self, name: str, file: SeenFile, now: float, ended: bool) -> bool:
        # A file with a time in the future, as cp -p may leave it, is judged by whether it is open alone.
        quiet = now - file.written / 1e9
        if 0 <= quiet < (TICK if ended else QUIET):
            return False
        return not is_open_for_writing(os.path.join(self.path, name)) or quiet >= (QUIET if ended else PATIENCE)


def _concerns_file(failure: BaseException) -> bool:
    """Whether others may be sent all the same."""
    if isinstance(failure, ObjectStoreError):
        return failure.trouble is StoreTrouble.REFUSED
    return isinstance(failure, OSError)


def count_bytes(files: Mapping[str, SeenFile]) -> int:
    """The size of all of them."""
    return sum(file.size for file in files.values())


def is_open_for_writing(path: str) -> bool:
    """Whether any process has the file open for writing, or mapped so: a read lease is refused then (fcntl(2)).

    False where leases do not work: on network file systems, and for other users' files.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        os.close(fd)
    return False


def _identify(path: str) -> Optional[tuple[int, int]]:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def list_files(top: str, below: str = "", *, fresh: bool = False) -> Iterator[tuple[str, SeenFile]]:
    """All files below a folder, by their names there. Links to files are files; links to folders are not followed.

    `below` is a part of it, with a slash at its end. `fresh`: each file is opened, so that a network file system asks
    its server how it is (nfs(5), close-to-open cache consistency). Folders are opened in any case.
    """
    folders = [below]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(os.path.join(top, folder) if folder else top))
        except FileNotFoundError:
            continue
        for entry in entries:
            name = f"{folder}{entry.name}"
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{name}/")
                elif entry.is_file() and not name.endswith(PART_ENDING):
                    status = _ask(entry) if fresh else entry.stat()
                    yield name, SeenFile(status.st_size, status.st_mtime_ns)
            except FileNotFoundError:
                continue


def _ask(entry: os.DirEntry[str]) -> os.stat_result:
    """What the server of a file says of it; what is known here where it may not be read. Raises OSError."""
    try:
        fd = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        return entry.stat()
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)
