"""The thread that sends what work writes into one mounted folder, and tells when an attempt's data is all there."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Collection, Mapping
from typing import Callable, Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.data.cached_folder import CachedFolder, SeenFile, count_bytes
from overspan.bridge.runtime.data.folder_state import FolderState
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble
from overspan.bridge.runtime.data.peers import PeersLost
from overspan.bridge.runtime.data.requests import DataAnswer, DataRequest, FlushProgress

LOOK_SECONDS = 1.0
_WAITED = 0.05
"""Seconds between two looks while a flush waits."""
_LOAD = 20
"""A look is followed by a pause of so many times what it took."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
DENIAL_SECONDS = 60.0
"""How long a store may refuse a flush before that is the answer: credentials may be renewed meanwhile."""
SECRET_SECONDS = 180.0
"""The same in a pod, where a renewed Secret is seen a minute or two later (kubelet's syncFrequency, and its cache)."""


class _Ticket(NamedTuple):
    """A flush that is not answered: the files that were not in the store when it was asked for, and when that was."""

    request: DataRequest
    files: Mapping[str, SeenFile]
    asked_at: float


class Uploader:
    """Sends one folder's files in a thread of its own, until it is stopped."""

    def __init__(
        self,
        folder: CachedFolder,
        answer: Callable[[DataAnswer], None],
        log: Callable[[str], None],
        patience: float = DENIAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience = patience
        self._clock = clock
        self._folder = folder
        self._answer = answer
        self._log = log
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = False
        self._new: list[DataRequest] = []
        self._tickets: list[_Ticket] = []
        self._left: dict[DataRequest, int] = {}
        self._trouble = ""
        self._denied_since: Optional[float] = None
        self._thread = threading.Thread(target=self._run, name="uploader", daemon=True)

    @property
    def state(self) -> FolderState:
        """What of the folder is in the store."""
        return self._folder.state

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def flush(self, request: DataRequest) -> None:
        """Answer the request when all that is in the folder now is in the store."""
        with self._lock:
            self._new.append(request)
        self._wake.set()

    def abandon(self, task: str, attempt: int) -> None:
        """Forget a flush."""
        with self._lock:
            self._new = [each for each in self._new if each[1:] != (task, attempt)]
            self._tickets = [each for each in self._tickets if each.request[1:] != (task, attempt)]

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._wake.set()
        self._thread.join()

    def progress(self) -> dict[DataRequest, FlushProgress]:
        """How far each flush is."""
        with self._lock:
            return {
                each.request: FlushProgress(self._left.get(each.request, count_bytes(each.files)), self._trouble)
                for each in self._tickets
            }

    def _run(self) -> None:
        try:
            self._send_until_stopped()
        except BaseException:
            # The supervisor starts another mover.
            self._log(traceback.format_exc())
            os._exit(70)

    def _send_until_stopped(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopped:
            began = time.monotonic()
            failed = self._look()
            took = time.monotonic() - began
            if failed:
                self._wake.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                pause = _FIRST_PAUSE
                self._wake.wait(_WAITED if self._tickets else max(LOOK_SECONDS, took * _LOAD))
            self._wake.clear()

    def _look(self) -> bool:
        """Send what can be sent; whether that failed."""
        failure: Optional[Exception] = None
        try:
            with self._lock:
                # Before the scan, which then has all that was written when they were asked for.
                asked = tuple(self._new)
            seen = self._folder.scan(ended=bool(asked))
            self._take_tickets(asked, self._folder.list_unsent(seen))
            self._folder.send(seen, ended=bool(self._tickets), going_on=lambda: not self._stopped)
            if not self._stopped:
                self._folder.remove_noted()
        except (ObjectStoreError, OSError, PeersLost) as error:
            failure = error
        self._note(failure)
        self._settle(failure)
        return failure is not None

    def _take_tickets(self, asked: Collection[DataRequest], unsent: Mapping[str, SeenFile]) -> None:
        with self._lock:
            # Without those that were abandoned meanwhile.
            self._tickets += [_Ticket(request, unsent, self._clock()) for request in asked if request in self._new]
            self._new = [request for request in self._new if request not in asked]

    def _note(self, failure: Optional[Exception]) -> None:
        text = "" if failure is None else str(failure)
        if text and text != self._trouble:
            self._log(text)
        with self._lock:
            self._trouble = text
        if isinstance(failure, ObjectStoreError) and failure.trouble is not StoreTrouble.SILENT:
            self._denied_since = self._clock() if self._denied_since is None else self._denied_since
        elif not isinstance(failure, ObjectStoreError):
            self._denied_since = None

    def _settle(self, failure: Optional[Exception]) -> None:
        """Answer the flushes that are done, and those that never will be."""
        try:
            unsent = self._folder.list_unsent(self._folder.scan())
        except OSError as error:
            unsent, failure = {}, error
        with self._lock:
            tickets, self._tickets = self._tickets, []
        kept = []
        for ticket in tickets:
            # A file that has changed since was written by another program, or is sent as it is now.
            left = {name: file for name, file in ticket.files.items() if unsent.get(name) == file}
            if self._is_final(failure, ticket):
                self._answer(DataAnswer(ticket.request, str(failure), count_bytes(left)))
            elif left or failure is not None:
                kept.append(ticket)
                self._left[ticket.request] = count_bytes(left)
            else:
                self._answer(DataAnswer(ticket.request))
        with self._lock:
            self._tickets += kept

    def _is_final(self, failure: Optional[Exception], ticket: _Ticket) -> bool:
        """Whether a flush is lost: a store has refused it for so long. What it refused before does not count."""
        if isinstance(failure, (FileNotFoundError, PeersLost)):
            return True
        refused = isinstance(failure, ObjectStoreError) and failure.trouble is not StoreTrouble.SILENT
        since = self._denied_since
        return refused and since is not None and self._clock() - max(since, ticket.asked_at) >= self._patience
