"""The worker's way to a daemon that it cannot connect to: files in a folder that the daemon visits.

For each of the worker's threads there is one request and one answer, each a file that is replaced as a whole. A request
has a name of its own, which its answer repeats; so an answer that comes late, or for a process before this one, is told
from the one that is waited for. The daemon's side is `mailbox_visit.py`.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Optional

from overspan.bridge.runtime.pool.connection import EXCHANGE, MARGIN_SECONDS, WorkerConnection, read_answer

MAILBOX = "mailbox"
"""The way's name, and that of the folder in a worker's run directory."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25
SETTLE_SECONDS = 2.0
"""How long after a change its folder is listed with each look: a time there may be rounded to so many seconds."""
LIST_SECONDS = 5.0
"""After which it is listed in any case: not all file systems note a change."""


class MailboxAddress:
    """The folder of one worker."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._word = os.urandom(6).hex()

    def open(self, name: str) -> WorkerConnection:
        """The connection of one thread: `NAME.request` and `NAME.answer`."""
        return MailboxConnection(self._folder, name, self._word)


class FolderWatch:
    """Tells whether a folder may have got something new, by one question to the server of its file system.

    NFS makes a client look at a folder anew when it is opened.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._mark: Optional[tuple[int, ...]] = None
        self._changed_at = self._listed_at = 0.0

    def is_stale(self, now: float) -> bool:
        """Whether the folder is to be listed, at that time of the monotonic clock."""
        mark = self._read_mark()
        if mark is None or mark != self._mark:
            self._mark, self._changed_at = mark, now
        if now - self._changed_at > SETTLE_SECONDS and now - self._listed_at < LIST_SECONDS:
            return False
        self._listed_at = now
        return True

    def _read_mark(self) -> Optional[tuple[int, ...]]:
        try:
            fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            status = os.fstat(fd)
            return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
        except OSError:
            return None
        finally:
            os.close(fd)


class MailboxConnection:
    """One request at a time. `word` is this process's: another one in the same folder has other requests."""

    def __init__(self, folder: str, name: str, word: str) -> None:
        self._folder = folder
        self._request, self._answer = (os.path.join(folder, f"{name}.{kind}") for kind in ("request", "answer"))
        self._word = word
        self._count = 0

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say how far the worker is, and give what it is owed. Raises OSError where there is no answer, Dismissed."""
        return self.post(EXCHANGE, message, float(message["wait"]))

    def post(self, path: str, message: dict[str, Any], wait: float = 0.0) -> dict[str, Any]:
        """Leave a request, and give its answer, for which it waits so long. Raises OSError, Dismissed."""
        self._count += 1
        own = f"{self._word}.{self._count}"
        body = json.dumps(message, separators=(",", ":")).encode()
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        head = {"id": own, "path": path, "size": len(body)}
        fresh = f"{self._request}.new"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            file.write(json.dumps(head).encode() + b"\n" + body)
        os.replace(fresh, self._request)
        return self._await(own, time.monotonic() + wait + MARGIN_SECONDS)

    def close(self) -> None:
        """Nothing is open between messages."""

    def _await(self, own: str, deadline: float) -> dict[str, Any]:
        """The answer of that name. Raises OSError where none has come by then, Dismissed."""
        pause, watch = _FIRST_PAUSE, FolderWatch(self._folder)
        while True:
            found = self._read(own) if watch.is_stale(time.monotonic()) else None
            if found is not None:
                status, body = found
                try:
                    return read_answer(status, body)
                except ValueError as error:
                    raise OSError(f"the daemon's answer cannot be read: {error!r}") from error
            if time.monotonic() >= deadline:
                raise OSError("the daemon does not answer: it has not visited this mailbox, or is away")
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def _read(self, own: str) -> Optional[tuple[int, bytes]]:
        """Status and body of the answer of that name; None while it is not there, or not whole.

        Raises OSError where the request is gone: somebody has removed it, and it is to be left anew.
        """
        try:
            names = os.listdir(self._folder)
        except OSError as error:
            raise OSError(f"the mailbox cannot be read: {error}") from error
        if os.path.basename(self._request) not in names:
            raise OSError("the mailbox has lost a request")
        try:
            with open(self._answer, "rb") as file:
                head, body = json.loads(file.readline()), file.read()
        except (OSError, ValueError):
            return None
        if not isinstance(head, dict) or head.get("id") != own or head.get("size") != len(body):
            return None
        try:
            # It has the plans of jobs, and so their secrets.
            os.unlink(self._answer)
        except OSError:
            pass
        return int(head.get("status", 0)), body
