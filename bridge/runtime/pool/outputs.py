"""Copies what launches print to the daemon, from a worker that does not see its folder.

A thread reads the files that `streams.jsonl` names and sends what they have got. The daemon writes a piece where it is
told to, so one that is sent twice does no harm. The end of a node run is told after all that it has printed.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Mapping
from typing import Any, Callable, Optional

from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.pool.connection import Dismissed, WorkerAddress, WorkerConnection

OUTPUT = "/v1/pool/output"
LOOK_SECONDS = 0.5
PIECE = 512 << 10
MOST_BYTES = 64 << 20
"""Bytes of a file that are copied; what is behind them stays on the worker's node alone."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_SHARED = ("task", "node", "attempt", "run", "stream")


class LaunchCopy:
    """How far the files of one launch are copied."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self._first = len(self._read_streams())
        """The lines before it are of earlier launches of the job."""
        self.sent: dict[int, int] = {}
        """For each file that the daemon knows of, the bytes that it has."""
        self.asked = False
        self.caught_up = False

    def read_piece(self) -> Optional[dict[str, Any]]:
        """What is to be sent next; None where the daemon has all. Raises OSError."""
        streams = self._read_streams()
        for number, line in enumerate(streams):
            if number < self._first:
                continue
            begin, path = int(line.get("start", 0)), str(line["path"])
            later = [int(other.get("start", 0)) for other in streams[number + 1 :] if other["path"] == path]
            sent = self.sent.get(number, 0)
            most = min(MOST_BYTES, later[0] - begin if later else MOST_BYTES)
            data = _read(path, begin + sent, min(PIECE, most - sent)) if sent < most else b""
            if data or number not in self.sent:
                stream = {name: line[name] for name in _SHARED}
                text = base64.b64encode(data).decode()
                return {"number": number, "stream": stream, "offset": sent, "data": text}
        return None

    def note_sent(self, piece: Mapping[str, Any]) -> None:
        """Note that the daemon has a piece."""
        size = len(base64.b64decode(piece["data"]))
        self.sent[piece["number"]] = int(piece["offset"]) + size

    def _read_streams(self) -> list[dict[str, Any]]:
        try:
            with open(self.directory.streams, encoding="utf-8") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except (OSError, ValueError):
            return []


class OutputCopies:
    """The copies of all launches, and the thread that makes them. `wake` is called when one has caught up."""

    def __init__(self, address: WorkerAddress, worker: Mapping[str, Any], wake: Callable[[], None]) -> None:
        self._address = address
        self._worker = dict(worker)
        self._wake = wake
        self._lock = threading.Condition()
        self._copies: dict[str, LaunchCopy] = {}
        self._stopped = False

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._work, args=(self._address.open("output"),), daemon=True).start()

    def stop(self) -> None:
        """Copy nothing any more."""
        with self._lock:
            self._stopped = True
            self._lock.notify_all()

    def follow(self, handle: str, directory: RunDirectory) -> None:
        """Copy what a launch prints from now on."""
        with self._lock:
            self._copies[handle] = LaunchCopy(directory)

    def forget(self, handle: str) -> None:
        """Copy nothing of a launch any more."""
        with self._lock:
            self._copies.pop(handle, None)

    def catch_up(self, handle: str) -> bool:
        """Whether the daemon has all that was printed before this was first asked; asks for it. True once."""
        with self._lock:
            copy = self._copies.get(handle)
            if copy is None or self._stopped or copy.caught_up:
                if copy is not None:
                    copy.caught_up = False
                return True
            copy.asked = True
            self._lock.notify_all()
            return False

    def _work(self, connection: WorkerConnection) -> None:
        pause = _FIRST_PAUSE
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._stopped or any(c.asked for c in self._copies.values()), LOOK_SECONDS)
                if self._stopped:
                    return
                copies = [(handle, copy, copy.asked) for handle, copy in self._copies.items()]
            try:
                for handle, copy, asked in copies:
                    self._copy(connection, handle, copy)
                    if asked:
                        self._note_caught_up(copy)
                pause = _FIRST_PAUSE
            except Dismissed:
                self.stop()
                self._wake()
                return
            except (OSError, ValueError):
                with self._lock:
                    self._lock.wait_for(lambda: self._stopped, timeout=pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _copy(self, connection: WorkerConnection, handle: str, copy: LaunchCopy) -> None:
        while True:
            with self._lock:
                if self._stopped or self._copies.get(handle) is not copy:
                    return
            piece = copy.read_piece()
            if piece is None:
                return
            answer = connection.post(OUTPUT, {**self._worker, "handle": handle, **piece})
            if not answer.get("taken"):
                # The lease is another one's by now, or its end is stored.
                self.forget(handle)
                return
            copy.note_sent(piece)

    def _note_caught_up(self, copy: LaunchCopy) -> None:
        with self._lock:
            copy.asked, copy.caught_up = False, True
        self._wake()


def _read(path: str, offset: int, most: int) -> bytes:
    """Bytes of a file; none where it is no regular file, or is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.pread(fd, most, offset)
    except OSError:
        return b""
    finally:
        os.close(fd)
