"""The data mover: one process for a launch and node, which brings data before the start and sends it beside the work.

It does what its supervisor asks (`requests.py`), outlives it, and can be killed at any time: what it knows of the
folders is on the disk, and what it has not answered is asked of the next one.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Optional

from overspan.bridge.model.job import Job
from overspan.bridge.model.storage import StorageMount, is_web_url
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.data.cache import open_cache, open_usual_cache
from overspan.bridge.runtime.data.cached_folder import SMALL_AT_ONCE, CachedFolder, Senders, list_files
from overspan.bridge.runtime.data.fetching import DataRefused, FetchPlace, drop_replaced, fetch
from overspan.bridge.runtime.data.mounts import (
    MountFolder,
    list_folders,
    place_mount,
    remove_if_empty,
)
from overspan.bridge.runtime.data.object_store import (
    ObjectStore,
    ObjectStoreError,
    ReadableStore,
    StoreTrouble,
)
from overspan.bridge.runtime.data.peers import PeerPlace, Peers
from overspan.bridge.runtime.data.requests import (
    ABANDON,
    END,
    FETCH,
    FLUSH,
    MOUNT,
    DataAnswer,
    DataRequest,
    FlushProgress,
    MoverFiles,
)
from overspan.bridge.runtime.data.rescue import is_held
from overspan.bridge.runtime.data.s3 import S3Store
from overspan.bridge.runtime.data.stores import StoreFile, read_store, remove_stores
from overspan.bridge.runtime.data.uploader import DENIAL_SECONDS, Uploader
from overspan.bridge.runtime.data.web import WebStore

_LOOK = 0.1
_PROGRESS_SECONDS = 0.5
FETCH_PATIENCE = 15 * 60.0
"""How long a store that does not answer keeps a task from its start before that is a loss."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
_FILES_AT_ONCE, _PARTS_AT_ONCE = 4, 4
_END_PATIENCE = 1.0
"""Seconds that the end waits for a fetch into a folder, which then stays."""


class _PendingFlush:
    """A flush that several folders take part in, and what they have answered so far."""

    def __init__(self) -> None:
        self.wanted = 0
        self.parts: list[DataAnswer] = []


class Mover:
    """The mover of one launch."""

    def __init__(
        self,
        directory: RunDirectory,
        root: str,
        job: Job,
        place: Optional[PeerPlace] = None,
        patience: float = DENIAL_SECONDS,
    ) -> None:
        self._patience = patience
        """Seconds for which credentials may be refused."""
        self._place = place
        """Which of several nodes this is that write the same folders of a store."""
        self._files = MoverFiles(directory)
        self._root = root
        self._private = root == directory.path
        """Whether the root is this launch's alone: then nothing is kept there after the end."""
        self._shared = self._private and (len(job.spec.tasks) > 1 or job.spec.tasks[0].num_nodes > 1)
        """Whether programs of several machines write the folders."""
        self._job = job
        counts = (_FILES_AT_ONCE, _PARTS_AT_ONCE, SMALL_AT_ONCE)
        self._senders = Senders(*map(ThreadPoolExecutor, counts))
        self._uploaders: dict[str, Uploader] = {}
        self._folder_locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._flushes: dict[DataRequest, _PendingFlush] = {}
        self._given_up: set[tuple[str, int]] = set()
        self._ending = False

    def serve(self) -> None:
        """Do what is asked until the end is."""
        begun = self._resume()
        told_at = 0.0
        while not self._ending:
            for request in self._files.read_requests():
                if request not in begun:
                    begun.add(request)
                    self._begin(request)
            if time.monotonic() - told_at >= _PROGRESS_SECONDS:
                told_at = time.monotonic()
                self._tell_progress()
            if not self._ending:
                time.sleep(_LOOK)
        self._end()

    def _resume(self) -> set[DataRequest]:
        """Go on where an earlier mover of the launch was; the requests that it has answered."""
        answers = self._files.read_answers()
        for answer in answers:
            if answer.request.kind in (FETCH, MOUNT) and not answer.error:
                self._start_thread(functools.partial(self._open_written, answer.request.task))
        return {answer.request for answer in answers}

    def _begin(self, request: DataRequest) -> None:
        if request.kind in (FETCH, MOUNT):
            self._start_thread(functools.partial(self._fetch, request))
        elif request.kind == FLUSH:
            self._flushes[request] = _PendingFlush()
            self._start_thread(functools.partial(self._flush, request))
        elif request.kind == ABANDON:
            self._given_up.add((request.task, request.attempt))
            for uploader in list(self._uploaders.values()):
                uploader.abandon(request.task, request.attempt)
        elif request.kind == END:
            self._ending = True

    # --- before the start --------------------------------------------------------------------------------------------

    def _fetch(self, request: DataRequest) -> None:
        error, passes = "", False
        for mount in self._job.spec_of(request.task).storage:
            error, passes = self._fetch_mount(mount, request)
            if error:
                break
        self._answer(DataAnswer(request, error, 0, passes))

    def _fetch_mount(self, mount: StorageMount, request: DataRequest) -> tuple[str, bool]:
        """Bring a mount here, however long that takes; what keeps it from that, and whether it may pass."""
        began, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            try:
                self._fetch_once(mount, mounted=request.kind == MOUNT and mount.read_through)
                return "", False
            except DataRefused as error:
                return f"{_name_url(mount)}: {error}", False
            except ObjectStoreError as error:
                silent, text = error.trouble is StoreTrouble.SILENT, str(error)
                patience = {StoreTrouble.SILENT: FETCH_PATIENCE, StoreTrouble.DENIED: self._patience}.get(error.trouble)
            except OSError as error:
                silent, text = True, f"{_name_url(mount)} cannot be fetched: {error}"
                patience = FETCH_PATIENCE if error.errno == errno.EBUSY else None
            self.log(text)
            if patience is None or time.monotonic() - began > patience or self._is_given_up(request):
                return text, silent
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _is_given_up(self, request: DataRequest) -> bool:
        key = (request.task, request.attempt)
        return self._ending or key in self._given_up or DataRequest(FLUSH, *key) in self._flushes

    def _fetch_once(self, mount: StorageMount, *, mounted: bool) -> None:
        folder = place_mount(self._root, self._job.id, mount)
        with self._lock_folder(folder):
            if folder.written and is_held(self._root, self._job.id):
                # It removes the folder at its end, of an earlier launch's data.
                raise OSError(errno.EBUSY, "what the job could not send before is being sent by `span data rescue`")
            folder.make()
            if not folder.written:
                self._fetch_copy(folder)
                return
            uploader = self._uploaders.get(folder.path)
            state = folder.open_state() if uploader is None else uploader.state
            place = FetchPlace(folder.files, state)
            if mounted:
                drop_replaced(self._open_store(folder), folder.url.key, place, self._senders.small)
            else:
                self._fetch_into(folder, place)
            if uploader is None:
                self._start_uploader(folder, self._open_store(folder), place)

    def _fetch_copy(self, folder: MountFolder) -> None:
        """Fetch by way of the cache; by the job's own where that cannot be written, or has no room."""
        cache, own = open_cache(self._root), open_usual_cache(self._root)
        try:
            cache.make()
            self._fetch_into(folder, FetchPlace(folder.files, folder.open_state(), cache))
        except (OSError, DataRefused) as error:
            if cache.path == own.path:
                raise
            self.log(f"the cache {cache.path} is not used: {error}")
            own.make()
            self._fetch_into(folder, FetchPlace(folder.files, folder.open_state(), own))

    def _fetch_into(self, folder: MountFolder, place: FetchPlace) -> None:
        identity = f"{folder.mount.store}/{folder.url.bucket}"
        fetch(self._open_source(folder), folder.url.key, place, self._senders.files, identity)

    def _lock_folder(self, folder: MountFolder) -> threading.Lock:
        with self._lock:
            return self._folder_locks.setdefault(folder.path, threading.Lock())

    def _start_uploader(self, folder: MountFolder, store: ObjectStore, place: FetchPlace) -> None:
        peers = None if self._place is None else Peers(store, self._place, os.path.basename(folder.path))
        cached = CachedFolder(
            folder.files,
            store,
            folder.url.key,
            place.state,
            self._senders,
            folder.mount.markers,
            peers=peers,
            shared=self._shared,
        )
        uploader = Uploader(cached, self._collect, self.log, self._patience)
        self._uploaders[folder.path] = uploader
        uploader.start()

    def _open_source(self, folder: MountFolder) -> ReadableStore:
        """What a folder is fetched from."""
        return WebStore(folder.url.bucket) if is_web_url(folder.mount.url) else self._open_store(folder)

    def _open_store(self, folder: MountFolder) -> ObjectStore:
        name = folder.mount.store
        return S3Store(read_store(self._root, name), folder.url.bucket, credentials=StoreFile(self._root, name))

    # --- after the end -----------------------------------------------------------------------------------------------

    def _flush(self, request: DataRequest) -> None:
        """Have each folder of the task that is written to answer; the last answer is the mover's."""
        uploaders = self._open_written(request.task)
        if not uploaders:
            self._answer(DataAnswer(request))
            return
        self._flushes[request].wanted = len(uploaders)
        for uploader in uploaders:
            uploader.flush(request)

    def _open_written(self, task: str) -> list[Uploader]:
        """The uploaders of a task's folders, started where only an earlier mover had them."""
        places = [place_mount(self._root, self._job.id, mount) for mount in self._job.spec_of(task).storage]
        found = []
        for folder in {place.path: place for place in places if place.written}.values():
            # A fetch that is under way gives up when it sees the flush.
            with self._lock_folder(folder):
                if folder.path not in self._uploaders and os.path.isdir(folder.files):
                    place = FetchPlace(folder.files, folder.open_state())
                    self._start_uploader(folder, self._insist_store(folder), place)
                if folder.path in self._uploaders:
                    found.append(self._uploaders[folder.path])
        return found

    def _insist_store(self, folder: MountFolder) -> ObjectStore:
        while True:
            try:
                return self._open_store(folder)
            except ObjectStoreError as error:
                self.log(str(error))
                time.sleep(_LONGEST_PAUSE)

    def _collect(self, answer: DataAnswer) -> None:
        """Take an uploader's part of the answer to a flush."""
        with self._lock:
            flush = self._flushes[answer.request]
            flush.parts.append(answer)
            if len(flush.parts) < flush.wanted:
                return
        failed = [part for part in flush.parts if part.error]
        error = "; ".join(dict.fromkeys(part.error for part in failed))
        self._answer(DataAnswer(answer.request, error, sum(part.left for part in failed)))

    def _tell_progress(self) -> None:
        total: dict[DataRequest, tuple[int, str]] = {}
        for uploader in list(self._uploaders.values()):
            for request, (left, trouble) in uploader.progress().items():
                before, words = total.get(request, (0, ""))
                total[request] = before + left, words or trouble
        if total:
            self._files.write_progress({request: FlushProgress(*facts) for request, facts in total.items()})

    def _end(self) -> None:
        """Stop, and remove what is in the store from the node."""
        for folder in list_folders(self._root, self._job.id):
            if not folder.written:
                folder.remove()
            elif self._lock_folder(folder).acquire(timeout=_END_PATIENCE):
                # For good: an uploader that began now would take what is removed here for what work has removed.
                self._remove_sent(folder)
        remove_if_empty(self._root, self._job.id)
        cache, own = open_cache(self._root), open_usual_cache(self._root)
        if self._private:
            remove_stores(self._root)
            # No other launch uses it.
            shutil.rmtree(own.path, ignore_errors=True)
        if cache.path != own.path or not self._private:
            cache.trim()

    def _remove_sent(self, folder: MountFolder) -> None:
        """Remove a folder if all of it is in the store, an empty file too; also one that only an earlier mover sent."""
        uploader = self._uploaders.get(folder.path)
        if uploader is not None:
            uploader.stop()
        state = folder.open_state() if uploader is None else uploader.state
        try:
            files = dict(list_files(folder.files, fresh=self._shared))
        except OSError as error:
            self.log(f"{folder.path} stays: {error}")
            return
        if all(state.is_synced(name, *file) for name, file in files.items()):
            folder.remove()

    # --- saying ------------------------------------------------------------------------------------------------------

    def _answer(self, answer: DataAnswer) -> None:
        """Answer, however long the disk stays full."""
        while True:
            try:
                with self._lock:
                    self._files.answer(answer)
                return
            except OSError:
                time.sleep(1.0)

    def _start_thread(self, run: Callable[[], object]) -> None:
        def guarded() -> None:
            try:
                run()
            except BaseException:
                # The supervisor starts another one.
                self.log(traceback.format_exc())
                os._exit(70)

        threading.Thread(target=guarded, daemon=True).start()

    def log(self, text: str) -> None:
        """Write a line into the mover's log, where one looks for what went wrong."""
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}", flush=True)


def _name_url(mount: StorageMount) -> str:
    """The URL without what may say who may read it."""
    return mount.url.partition("?")[0] if is_web_url(mount.url) else mount.url


def main(words: Sequence[str]) -> int:
    """Move the data of a launch: ROOT DIRECTORY LAUNCH."""
    root, path, launch = words
    directory = RunDirectory(path, int(launch))
    # Where it is a part of Slurm's batch step, Slurm's TERM comes to it too, and then there is data to send.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    mover = Mover(directory, root, directory.read_plan().job)
    mover.serve()
    os._exit(0)
