"""What a supervisor asks of its data mover, and what that answers: two files of lines in the run directory.

    data.R/requests.jsonl   {"kind", "task", "attempt"}: written by the supervisor, each as often as it likes
    data.R/answers.jsonl    the request and {"error", "left", "passes"}: written by the mover, once for each request
    data.R/progress.json    how much the flushes that are under way still have to send
    data.R/log              what went wrong

Both sides may die at any time: their successors read the files and go on. Nothing in them is secret.
"""

from __future__ import annotations

import json
import os
from typing import Any, Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core.run_directory import RunDirectory

FETCH = "fetch"
"""Bring what the task's storage has to this node; it may start then."""
MOUNT = "mount"
"""The same, but what is mounted with FUSE stays in the store."""
FLUSH = "flush"
"""The attempt's programs have ended: send all that they wrote."""
ABANDON = "abandon"
"""The attempt no longer waits for its data: send no more of it."""
END = "end"
"""The launch is over: end, and remove what is in the store."""

END_FILE = "end"
"""In the root of a pod's mover: its pod ends."""
ABANDON_FILE = "abandon"
"""There too: the attempt no longer waits for its data."""
PLACE_VARIABLES = ("OVERSPAN_SESSION", "OVERSPAN_ATTEMPT", "OVERSPAN_NODE_INDEX", "OVERSPAN_NUM_NODES")
"""What a pod's mover is told where several pods write the same folders: attempts of a launch are sessions."""
PASSES = 75
"""The exit code (EX_TEMPFAIL, sysexits.h) of a mover that ends because of something that may be over in a while."""


class DataRequest(NamedTuple):
    """Something that is asked of the mover, for an attempt of a task."""

    kind: str
    task: str = ""
    attempt: int = 0


class DataAnswer(NamedTuple):
    """What came of a request. `passes`: the error may be over in a while, as a store that does not answer."""

    request: DataRequest
    error: str = ""
    left: int = 0
    passes: bool = False


class FlushProgress(NamedTuple):
    """How many bytes a flush still has to send, and what keeps it from that."""

    left: int
    trouble: str = ""


class MoverFiles:
    """The files of one launch's mover."""

    def __init__(self, directory: RunDirectory) -> None:
        self.folder = os.path.join(directory.own, f"data.{directory.launch}")
        self.log = os.path.join(self.folder, "log")
        self._progress = os.path.join(self.folder, "progress.json")
        self._requests = LineFile(os.path.join(self.folder, "requests.jsonl"))
        self._answers = LineFile(os.path.join(self.folder, "answers.jsonl"))

    def make(self) -> None:
        """Make the folder. Raises OSError."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)

    def ask(self, request: DataRequest) -> None:
        """Add a request. Raises OSError."""
        self._requests.append({"kind": request.kind, "task": request.task, "attempt": request.attempt})

    def answer(self, answer: DataAnswer) -> None:
        """Add an answer. Raises OSError."""
        facts = {"error": answer.error, "left": answer.left, "passes": answer.passes}
        self._answers.append({**answer.request._asdict(), **facts})

    def read_requests(self) -> list[DataRequest]:
        """The requests that have come since the last call."""
        return [_read_request(row) for row in self._requests.read()]

    def read_answers(self) -> list[DataAnswer]:
        """The answers that have come since the last call."""
        return [
            DataAnswer(_read_request(row), str(row.get("error", "")), int(row.get("left", 0)), bool(row.get("passes")))
            for row in self._answers.read()
        ]

    def write_progress(self, progress: dict[DataRequest, FlushProgress]) -> None:
        """Say how far all flushes are; a disk that is full costs the figure alone."""
        rows = [[each.task, each.attempt, *facts] for each, facts in progress.items()]
        try:
            with open(f"{self._progress}.new", "w", encoding="utf-8") as file:
                json.dump(rows, file)
            os.replace(f"{self._progress}.new", self._progress)
        except OSError:
            pass

    def read_progress(self, task: str, attempt: int) -> Optional[FlushProgress]:
        """How far a flush is; None where the mover has not reported it."""
        try:
            with open(self._progress, encoding="utf-8") as file:
                rows = json.load(file)
            return next(
                (FlushProgress(*facts) for name, number, *facts in rows if (name, number) == (task, attempt)), None
            )
        except (OSError, ValueError, TypeError):
            return None


class LineFile:
    """A file of JSON lines that one side adds to and the other reads on from where it was."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0

    def append(self, row: dict[str, Any]) -> None:
        """Add a line. Raises OSError; a part of a line that was written then is no line."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            # A line that a full disk cut short is ended first.
            start = b"\n" if size and os.pread(fd, 1, size - 1) != b"\n" else b""
            os.write(fd, start + json.dumps(row).encode() + b"\n")
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def read(self) -> list[dict[str, Any]]:
        """The lines that have come since the last call."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return []
        try:
            size = os.fstat(fd).st_size
            data = os.pread(fd, size - self._offset, self._offset) if size > self._offset else b""
        finally:
            os.close(fd)
        end = data.rfind(b"\n") + 1
        self._offset += end
        return [row for row in map(_parse, data[:end].splitlines()) if row is not None]


def _parse(line: bytes) -> Optional[dict[str, Any]]:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _read_request(row: dict[str, Any]) -> DataRequest:
    return DataRequest(str(row.get("kind", "")), str(row.get("task", "")), int(row.get("attempt", 0)))
