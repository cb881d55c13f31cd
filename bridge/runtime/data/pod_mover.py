"""The data mover of one pod: it brings the task's data before the start, and sends what is written until the pod ends.

    fetch ROOT DOCUMENT    bring the data below ROOT, and end
    send ROOT DOCUMENT     send what is written there until ROOT/end appears, then all that is left, and end; what is
                           left is given up when ROOT/abandon appears
    serve ROOT DOCUMENT    serve what the task's container mounts (pod_mounts.py)
    enter FOLDER TARGETS FAILURE WORD...    mount that, and become the program of these words
    renew ROOT             take the stores of a line of JSON, whose credentials are newer than those that are mounted

DOCUMENT is JSON: {"job": N, "task": NAME, "mounts": [...]}, {"cache": {"path", "limit"}} where contents are kept for
other pods on a volume (cache.py), {"fuse": true} where the pod has the device to mount with, and {"kept": true} where
ROOT outlives the pod, so that only what could not be sent is left there. Where several pods write the same folders,
variables say which one this is (`read_place`). What came of it is left in the container's termination log: words where
data could not be brought, {"error", "left"} where it was to be sent. A container that is started again goes on: what
was asked and answered is below ROOT too.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Optional

from overspan.bridge.model.documents import decode
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.storage import StorageMount, StoreAccess
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.data.cache import open_cache, open_usual_cache, write_cache_settings
from overspan.bridge.runtime.data.mover import Mover
from overspan.bridge.runtime.data.peers import PeerPlace
from overspan.bridge.runtime.data.pod_mounts import FOLDER, enter, prepare, serve, start_server
from overspan.bridge.runtime.data.requests import (
    ABANDON_FILE,
    END,
    END_FILE,
    FETCH,
    FLUSH,
    MOUNT,
    PASSES,
    PLACE_VARIABLES,
    DataAnswer,
    DataRequest,
    MoverFiles,
)
from overspan.bridge.runtime.data.stores import name_renewed, write_stores
from overspan.bridge.runtime.data.uploader import SECRET_SECONDS

TERMINATION_LOG = "/dev/termination-log"
LONGEST_WORDS = 1000
"""Of what is left there; a kubelet keeps 4096 bytes."""
_LOOK = 0.1
_TELL_SECONDS = 2.0
_CLEAR_SECONDS = 10.0


def read_job(text: str) -> Job:
    """The job of a document, with its one task. ValueError for another text."""
    document = json.loads(text)
    mounts = tuple(decode(StorageMount, mount) for mount in document["mounts"])
    spec = JobSpec(str(document["task"]), (TaskSpec(str(document["task"]), storage=mounts),))
    return new_job(int(document["job"]), spec, 0.0)


def place_cache(root: str, text: str) -> None:
    """Say where the cache of a document is, if that is not below the root. Raises OSError."""
    cache = json.loads(text).get("cache")
    if cache:
        write_cache_settings(root, str(cache["path"]), cache["limit"])


def read_place(environment: Mapping[str, str]) -> Optional[PeerPlace]:
    """Which pod this is, of how many, in which attempt; None where one alone writes."""
    session, attempt, number, count = (environment.get(name, "") for name in PLACE_VARIABLES)
    return PeerPlace(f"{session}-{attempt}", int(number), int(count)) if session else None


class PodMover:
    """The two things that are asked of a mover, which has the files of requests and answers below `root`."""

    def __init__(self, root: str, job: Job, place: Optional[PeerPlace] = None) -> None:
        directory = RunDirectory(os.path.join(root, "run"), 0)
        self._mover = Mover(directory, root, job, place, SECRET_SECONDS)
        self._files = MoverFiles(directory)
        self._end_file = os.path.join(root, END_FILE)
        self._abandon_file = os.path.join(root, ABANDON_FILE)
        self._task = job.spec.tasks[0].name
        self._root = root
        self._thread = threading.Thread(target=self._mover.serve, daemon=True)

    def start(self) -> None:
        """Begin to do what is asked. Raises OSError."""
        self._files.make()
        self._thread.start()

    def fetch(self, kind: str = FETCH) -> int:
        """Have the task's data brought, with MOUNT all but what is mounted; gives the exit code."""
        request = DataRequest(kind, self._task)
        self._files.ask(request)
        answer = self._read_answer(request)
        while answer is None:
            if os.path.exists(self._end_file):
                return 128 + signal.SIGTERM
            time.sleep(_LOOK)
            answer = self._read_answer(request)
        if not answer.error:
            return 0
        _leave(answer.error[:LONGEST_WORDS])
        return PASSES if answer.passes else 1

    def send(self) -> int:
        """Wait until the pod ends, and have all data sent; gives the exit code."""
        while not os.path.exists(self._end_file):
            time.sleep(_LOOK)
        request = DataRequest(FLUSH, self._task)
        self._files.ask(request)
        answer, tell_at = self._read_answer(request), time.monotonic() + _TELL_SECONDS
        while answer is None:
            if os.path.exists(self._abandon_file):
                answer = self._give_up(request)
                break
            if time.monotonic() >= tell_at:
                tell_at += _TELL_SECONDS
                self._tell_progress()
            time.sleep(_LOOK)
            answer = self._read_answer(request)
        _leave(json.dumps({"error": answer.error[:LONGEST_WORDS], "left": answer.left}))
        return 1 if answer.error else 0

    def clear(self) -> None:
        """Remove all but what could not be sent. What is mounted there stays."""
        self._files.ask(DataRequest(END, self._task))
        self._thread.join(_CLEAR_SECONDS)
        for path in (
            os.path.join(self._root, "run"),
            os.path.join(self._root, FOLDER),
            open_usual_cache(self._root).path,
        ):
            shutil.rmtree(path, ignore_errors=True)
        for path in (self._end_file, self._abandon_file):
            if os.path.exists(path):
                os.unlink(path)

    def _give_up(self, request: DataRequest) -> DataAnswer:
        progress = self._files.read_progress(self._task, 0)
        return DataAnswer(request, "the job no longer waits for it", 0 if progress is None else progress.left)

    def _read_answer(self, request: DataRequest) -> Optional[DataAnswer]:
        return next((answer for answer in self._files.read_answers() if answer.request == request), None)

    def _tell_progress(self) -> None:
        """Print the flush's progress: the daemon reads it in the container's log."""
        progress = self._files.read_progress(self._task, 0)
        if progress is not None:
            print(json.dumps({"left": progress.left, "trouble": progress.trouble}), flush=True)


def _leave(text: str) -> None:
    print(text, flush=True)
    try:
        with open(TERMINATION_LOG, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        print(f"{TERMINATION_LOG}: {error}", flush=True)


def renew(root: str, line: str) -> int:
    """Take stores, as a list of documents, that a pod whose program has ended is not given any more by its node."""
    write_stores(name_renewed(root), [decode(StoreAccess, document) for document in json.loads(line)])
    return 0


def mount_and_run(folder: str, targets: str, failure: str, *program: str) -> int:
    """Mount the targets of a list in JSON, and become a program; `failure` is left in the log if that fails."""
    try:
        enter(folder, json.loads(targets), program)
    except OSError as error:
        print(f"span: error: the folders of stores cannot be mounted: {error}", file=sys.stderr, flush=True)
        with open(TERMINATION_LOG, "w", encoding="utf-8") as file:
            file.write(failure)
    return 1


def main(words: Sequence[str]) -> int:
    """Do one of these; gives the exit code."""
    if words[0] == "renew":
        return renew(words[1], sys.stdin.readline())
    if words[0] == "enter":
        return mount_and_run(*words[1:])
    verb, root, text = words
    job = read_job(text)
    if verb == "serve":
        return serve(root, job)
    kind = FETCH
    if verb == "fetch":
        place_cache(root, text)
        if json.loads(text).get("fuse") and prepare(root, job):
            kind = MOUNT
    else:
        start_server(root, text)
    mover = PodMover(root, job, read_place(os.environ))
    mover.start()
    code = mover.send() if verb == "send" else mover.fetch(kind)
    if verb == "fetch":
        open_cache(root).trim()
    elif json.loads(text).get("kept"):
        mover.clear()
    # Threads that wait for a store would keep the process.
    os._exit(code)
