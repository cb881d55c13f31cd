"""Followed logs of running pods, one stream each, with two uses.

Ends: a kubelet looks for containers that have ended once a second (pkg/kubelet/pleg), but passes on at
once what they print (it watches the file); so the first process of a pod whose end ends others prints a line when its
program has ended. Last lines: a kubelet removes a deleted pod's containers, and their logs, within a second of telling
their end and sometimes before (ShouldPodContentBeRemoved, cleanUpContainersInPod). Nothing depends on either: the
pod's status tells the same end later, and alone why a program failed; a log that is still there is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.streams import AnswerStream
from overspan.adapters.kubernetes.logs.end_marks import EndMarkScanner, HeardEnd, mark_of
from overspan.adapters.kubernetes.observation.records import MAIN, PodRecord
from overspan.bridge.model.errors import Denied, NotFound, OverspanError

_log = logging.getLogger(__name__)

STREAMS = 128
"""Logs that are followed at the same time; each has a connection and a thread."""
HEARD = 64
"""Of these, how many may be followed for their ends alone; and how many that are over are held for their lines."""
SILENCE = 3600.0
"""Seconds after which a silent log is asked for anew."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds until a stream that ended is opened again, doubled from the first to the longest."""
WINDOW, MOST_HEARD = 10.0, 8 << 20
"""A program that prints more bytes in so many seconds is no longer followed: its status shows its end."""
TAIL_BYTES, KEPT_BYTES = 64 << 10, 4 << 20
"""Of each log's newest lines, and of one that is kept; older ones are dropped, and the gap shows by their times."""
CLOSE_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_LAST_LINES = 20
"""Lines from which on a log is heard: the end is among the last ones."""


@dataclass(eq=False)
class _FollowedLog:
    """One log that is followed, by a thread of its own."""

    pod: PodRecord
    begin: dict[str, object]
    """Where a stream of it begins, in the log API's words."""
    kept: bool = False
    """Whether all that comes is wanted, and no end."""
    over: bool = False
    whole: bool = False
    """Whether it was followed to the container's end."""
    left: bool = False
    """Whether it was given up, since too much was printed."""
    torn: bool = False
    """Whether the beginning of the present line was dropped."""
    data: bytearray = field(default_factory=bytearray)
    stream: AnswerStream | None = None
    thread: threading.Thread | None = None
    closed: threading.Event = field(default_factory=threading.Event)

    def add(self, part: bytes) -> None:
        """Hold a part, and of too much the newer half; whole lines."""
        if self.torn:
            _, end, part = part.partition(b"\n")
            self.torn = not end
        self.data += part
        most = KEPT_BYTES if self.kept else TAIL_BYTES
        if len(self.data) > most:
            cut = self.data.find(b"\n", most // 2) + 1
            self.torn = not cut
            del self.data[: cut or len(self.data)]

    def begin_anew(self) -> None:
        """Drop what an earlier stream brought: the new one repeats it."""
        self.data.clear()
        self.torn = self.whole = False

    def close(self) -> None:
        """Have the thread end."""
        self.closed.set()
        if self.stream is not None:
            self.stream.close()


class LiveLogs:
    """Follows logs; calls `tell` with each pod whose program exited with 0, and when. Used on the event loop."""

    def __init__(self, connection: Connection, tell: Callable[[PodRecord, float], None]) -> None:
        self._connection = connection
        self._tell = tell
        self._logs: dict[str, _FollowedLog] = {}
        """By pod; those that are not followed any more stay as long as their pods run, or their lines are wanted."""
        self._closed = False

    def follow_ends(self, token: str, pods: Iterable[PodRecord], ending: Collection[str] = ()) -> None:
        """Follow these pods of a launch for their ends, and no others but those that are kept, or `ending`."""
        wanted = {pod.uid: pod for pod in pods}
        for uid, log in list(self._logs.items()):
            if log.pod.token == token and not log.kept and uid not in wanted and uid not in ending:
                self._logs.pop(uid).close()
        for uid, pod in wanted.items():
            if uid not in self._logs and self.count() < HEARD:
                self._start(_FollowedLog(pod, {"tailLines": _LAST_LINES}))

    def follow_ends_only_of(self, tokens: Collection[str]) -> None:
        """Stop following logs of other launches."""
        for token in dict.fromkeys(log.pod.token for log in self._logs.values()):
            if token not in tokens:
                self.follow_ends(token, ())

    def keep(self, pod: PodRecord, since: str) -> None:
        """Hold what a pod prints from a time on (`sinceTime` of the log API, empty: its beginning) to its end."""
        log = self._logs.get(pod.uid)
        if log is not None and not log.left and (log.stream is not None or log.over):
            # What it has is all, if it has ended with its pod.
            log.kept = True
        elif self.count() < STREAMS and not (log is not None and log.kept):
            known = bytearray()
            if log is not None:
                log.close()
                known += log.data
            for uid in [uid for uid, one in self._logs.items() if one.kept and one.over][:-HEARD]:
                # The lines of a pod that was deleted by force are never taken.
                del self._logs[uid]
            whole = log is not None and log.whole
            self._start(_FollowedLog(pod, {"sinceTime": since} if since else {}, kept=True, data=known, whole=whole))

    def count(self) -> int:
        """How many logs are being followed just now."""
        return sum(not one.over for one in self._logs.values())

    def goes_on(self, uid: str) -> bool:
        """Whether what a pod prints is being kept just now."""
        found = self._logs.get(uid)
        return found is not None and found.kept and not found.over

    def is_whole(self, uid: str) -> bool:
        """Whether what a pod prints was kept to its container's end."""
        found = self._logs.get(uid)
        return found is not None and found.kept and found.over and found.whole

    async def await_ends(self, seconds: float) -> None:
        """Wait for the ends of all that is being kept, so long at most."""
        deadline = time.monotonic() + seconds
        while any(self.goes_on(uid) for uid in [*self._logs]) and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)

    def read(self, uid: str) -> bytes:
        """The newest lines of a followed log, with times as the log API writes them; empty for any other pod."""
        found = self._logs.get(uid)
        return bytes(found.data) if found is not None else b""

    def forget(self, uid: str) -> None:
        """Drop what was kept of a pod."""
        found = self._logs.pop(uid, None)
        if found is not None:
            found.close()

    async def close(self) -> None:
        """Follow nothing any more, and wait a moment for the threads.

        One that waits for the beginning of its answer, as of a node that hangs, cannot be woken.
        """
        self._closed = True
        left = list(self._logs.values())
        self._logs.clear()
        for log in left:
            log.close()
        deadline = time.monotonic() + CLOSE_SECONDS
        for log in left:
            if log.thread is not None and log.thread.is_alive():
                await asyncio.to_thread(log.thread.join, max(0.0, deadline - time.monotonic()))

    def _start(self, log: _FollowedLog) -> None:
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        self._logs[log.pod.uid] = log

        def run() -> None:
            heard = None
            try:
                heard = self._listen(log)
            except Exception:
                _log.exception("the log of pod %s", log.pod.name)
            log.over = True
            if heard is not None and heard.code == 0:
                # The loop may have ended before this was closed.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._finish, log, heard)

        log.thread = threading.Thread(target=run, name=f"log of {log.pod.name}", daemon=True)
        try:
            log.thread.start()
        except RuntimeError as error:
            # As at a limit of processes on a login node. The pod's status shows the end, too.
            log.over = True
            _log.warning("the log of pod %s is not followed: %s", log.pod.name, error)

    def _finish(self, log: _FollowedLog, heard: HeardEnd) -> None:
        if not log.closed.is_set():
            now = time.time()
            _log.info("pod %s: its log tells its end", log.pod.name)
            self._tell(log.pod, now if heard.at is None else min(heard.at, now))

    def _listen(self, log: _FollowedLog) -> HeardEnd | None:
        """Follow a log to its end mark, or until it is closed; one that is kept, to the stream's end."""
        failures = 0
        while not log.closed.is_set():
            begun = time.monotonic()
            try:
                heard, goes_on = self._read(log)
                if heard is not None or not goes_on:
                    return heard
            except (Denied, NotFound) as error:
                _log.info("the log of pod %s is not followed: %s", log.pod.name, error)
                return None
            except OverspanError as error:
                _log.debug("the log of pod %s: %s", log.pod.name, error)
            if log.kept:
                return None
            failures = 0 if time.monotonic() - begun > LONGEST_WAIT else failures + 1
            log.closed.wait(min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures, 10)))
        return None

    def _read(self, log: _FollowedLog) -> tuple[HeardEnd | None, bool]:
        """Read one stream to its end: the end mark, and whether to open another stream."""
        pod = log.pod
        query = {"container": MAIN, "follow": "true", "timestamps": "true", **log.begin}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log"
        stream = self._connection.stream(path, query, SILENCE)
        _log.info("pod %s: its log is followed", pod.name)
        log.stream = stream
        if log.closed.is_set():
            stream.close()
        scanner, rate, begun = EndMarkScanner(mark_of(pod)), _ByteRate(), False
        try:
            with contextlib.closing(stream.parts()) as parts:
                for part in parts:
                    if not begun and not part[:1].isdigit():
                        # A kubelet's words about a container that it has removed, with status 200.
                        return None, False
                    if not begun:
                        log.begin_anew()
                    begun = True
                    log.add(part)
                    heard = None if log.kept else scanner.scan(part)
                    if heard is not None:
                        return heard, False
                    if rate.exceeds(len(part)) and not log.kept:
                        log.left = True
                        _log.info("pod %s prints too much: its end is told by its status alone", pod.name)
                        return None, False
        finally:
            log.stream = None
        log.whole = not log.closed.is_set()
        return None, True


class _ByteRate:
    """How much a log brings in a time."""

    def __init__(self) -> None:
        self._since, self._size = time.monotonic(), 0

    def exceeds(self, size: int) -> bool:
        """Note so many bytes more; whether it is too much by now."""
        now = time.monotonic()
        if now - self._since > WINDOW:
            self._since, self._size = now, 0
        self._size += size
        return self._size > MOST_HEARD
