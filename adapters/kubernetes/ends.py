"""Ends of programs as their logs tell them, about a second before their nodes do.

A kubelet looks for containers that have ended once a second (pkg/kubelet/pleg), but passes on at once what they print
(it watches the file). So the first process of a pod whose end ends others prints a line when its program has ended,
and the logs of these pods are followed while they run, of a bounded number. Nothing depends on it: the pod's status
tells the same end later, and alone tells why a program failed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from overspan.adapters.kubernetes.connection import Connection
from overspan.adapters.kubernetes.end_marks import Ear, Heard, mark_of
from overspan.adapters.kubernetes.records import MAIN, PodRecord
from overspan.adapters.kubernetes.streams import Stream
from overspan.bridge.model.errors import Denied, NotFound, OverspanError

_log = logging.getLogger(__name__)

STREAMS = 64
"""Logs that are followed at the same time; each has a connection and a thread."""
SILENCE = 3600.0
"""Seconds after which a silent log is asked for anew."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds until a stream that ended is opened again, doubled from the first to the longest."""
WINDOW, MOST_BYTES = 10.0, 8 << 20
"""Whose program prints more than so many bytes in so many seconds is left to its status."""
_LAST_LINES = 20
"""Lines from which on a log is read: the end is among the last ones."""


@dataclass
class _Followed:
    """One log that is followed, by a thread of its own."""

    pod: PodRecord
    thread: threading.Thread | None = None
    stream: Stream | None = None
    closed: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        """Have the thread end."""
        self.closed.set()
        if self.stream is not None:
            self.stream.close()


class Ends:
    """Follows logs; `tell` is called on the event loop with each pod whose program ended well, and when."""

    def __init__(self, connection: Connection, tell: Callable[[PodRecord, float], None]) -> None:
        self._connection = connection
        self._tell = tell
        self._followed: dict[str, dict[str, _Followed]] = {}
        """By launch and pod; those that are not followed any more stay as long as their pods run."""
        self._open = 0

    def follow(self, token: str, pods: Iterable[PodRecord]) -> None:
        """Follow these pods of a launch and no others of it. On the event loop."""
        wanted = {pod.uid: pod for pod in pods}
        known = self._followed.get(token, {})
        for uid in known.keys() - wanted.keys():
            known.pop(uid).close()
        for uid in wanted.keys() - known.keys():
            if self._open < STREAMS:
                self._start(self._followed.setdefault(token, {}), wanted[uid])
        if not known and not wanted:
            self._followed.pop(token, None)

    def keep(self, tokens: Collection[str]) -> None:
        """Follow nothing of other launches."""
        for token in [token for token in self._followed if token not in tokens]:
            self.follow(token, ())

    async def close(self) -> None:
        """Follow nothing any more, and wait for the threads."""
        threads = [one.thread for pods in self._followed.values() for one in pods.values()]
        self.keep(())
        for thread in threads:
            if thread is not None and thread.is_alive():
                await asyncio.to_thread(thread.join, 1.0)

    def _start(self, pods: dict[str, _Followed], pod: PodRecord) -> None:
        loop = asyncio.get_running_loop()
        followed = pods[pod.uid] = _Followed(pod)
        self._open += 1

        def run() -> None:
            heard = None
            try:
                heard = self._listen(followed)
            except Exception:
                _log.exception("the log of pod %s", pod.name)
            try:
                loop.call_soon_threadsafe(self._finish, followed, heard)
            except RuntimeError:
                # The loop has ended before this was closed.
                return

        followed.thread = threading.Thread(target=run, name=f"end of {pod.name}", daemon=True)
        followed.thread.start()

    def _finish(self, followed: _Followed, heard: Heard | None) -> None:
        self._open -= 1
        if heard is not None and heard.code == 0 and not followed.closed.is_set():
            now = time.time()
            _log.info("pod %s: its log tells its end", followed.pod.name)
            self._tell(followed.pod, now if heard.at is None else min(heard.at, now))

    def _listen(self, followed: _Followed) -> Heard | None:
        """Follow a log until it tells the end, or nobody wants it any more."""
        failures = 0
        while not followed.closed.is_set():
            begun = time.monotonic()
            try:
                heard, goes_on = self._read(followed)
                if heard is not None or not goes_on:
                    return heard
            except (Denied, NotFound) as error:
                _log.info("the log of pod %s is not followed: %s", followed.pod.name, error)
                return None
            except OverspanError as error:
                _log.debug("the log of pod %s: %s", followed.pod.name, error)
            failures = 0 if time.monotonic() - begun > LONGEST_WAIT else failures + 1
            followed.closed.wait(min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures, 10)))
        return None

    def _read(self, followed: _Followed) -> tuple[Heard | None, bool]:
        """One stream to its end: what it told, and whether another one is worth it."""
        pod = followed.pod
        query = {"container": MAIN, "follow": "true", "timestamps": "true", "tailLines": _LAST_LINES}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log"
        stream = followed.stream = self._connection.stream(path, query, SILENCE)
        if followed.closed.is_set():
            stream.close()
        ear, since, size = Ear(mark_of(pod)), time.monotonic(), 0
        parts = stream.parts()
        try:
            for part in parts:
                heard = ear.listen(part)
                if heard is not None:
                    return heard, False
                now = time.monotonic()
                if now - since > WINDOW:
                    since, size = now, 0
                size += len(part)
                if size > MOST_BYTES:
                    _log.info("pod %s prints too much: its end is told by its status alone", pod.name)
                    return None, False
        finally:
            parts.close()
            followed.stream = None
        return None, True
