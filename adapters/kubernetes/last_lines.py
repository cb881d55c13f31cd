"""The last lines of pods that are being ended: their logs are followed from when the deletion is seen to the end.

A kubelet removes a deleted pod's containers, and their logs, within a second of telling their end and sometimes before
(pkg/kubelet: ShouldPodContentBeRemoved, cleanUpContainersInPod). A finalizer keeps the pod's object only.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass, field

from overspan.adapters.kubernetes.connection import Connection
from overspan.adapters.kubernetes.records import MAIN, PodRecord
from overspan.adapters.kubernetes.streams import Stream
from overspan.bridge.model.errors import OverspanError

_log = logging.getLogger(__name__)

STREAMS = 64
"""Logs that are followed at the same time; those of further pods are read at their end alone."""
MOST_BYTES = 4 << 20
"""Of one log's last lines; older ones are dropped, and the gap shows by their times."""
SILENCE = 3600.0


@dataclass
class _Followed:
    """One log that is followed, by a thread of its own."""

    data: bytearray = field(default_factory=bytearray)
    stream: Stream | None = None
    thread: threading.Thread | None = None
    over: bool = False

    def add(self, part: bytes) -> None:
        """Keep a part, and of too much the newer half."""
        self.data += part
        if len(self.data) > MOST_BYTES:
            del self.data[: self.data.find(b"\n", MOST_BYTES // 2) + 1]


class LastLines:
    """Follows logs of pods that are being ended, each once, and has what they told until somebody takes it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._followed: dict[str, _Followed] = {}
        self._lock = threading.Lock()
        self._closed = False

    def follow(self, pod: PodRecord, since: str) -> None:
        """Follow a pod's log from a time (`sinceTime` of the log API, empty: its beginning)."""
        with self._lock:
            if self._closed or pod.uid in self._followed or self.count() >= STREAMS:
                return
            for uid in [uid for uid, one in self._followed.items() if one.over][:-STREAMS]:
                # Nobody takes the lines of a pod that was torn away.
                del self._followed[uid]
            followed = self._followed[pod.uid] = _Followed()
            followed.thread = threading.Thread(
                target=self._listen, args=(followed, pod, since), name=f"log of {pod.name}", daemon=True
            )
            # Within the lock: `close` must not meet a thread that has not begun.
            followed.thread.start()

    def count(self) -> int:
        """How many logs are being followed just now."""
        return sum(not one.over for one in list(self._followed.values()))

    def goes_on(self, uid: str) -> bool:
        """Whether a pod's log is being followed just now."""
        found = self._followed.get(uid)
        return found is not None and not found.over

    def read(self, uid: str) -> bytes:
        """What a pod's log told, with times, as the log API tells it; nothing for one that was not followed."""
        found = self._followed.get(uid)
        return bytes(found.data) if found is not None else b""

    def forget(self, uid: str) -> None:
        """Drop what was kept of a pod."""
        with self._lock:
            self._followed.pop(uid, None)

    def close(self) -> None:
        """Follow nothing any more, and wait for the threads. Blocking."""
        with self._lock:
            self._closed = True
            left = list(self._followed.values())
            self._followed.clear()
        for one in left:
            if one.stream is not None:
                one.stream.close()
        for one in left:
            if one.thread is not None:
                one.thread.join(1.0)

    def _listen(self, followed: _Followed, pod: PodRecord, since: str) -> None:
        query = {"container": MAIN, "follow": "true", "timestamps": "true", **({"sinceTime": since} if since else {})}
        try:
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log"
            followed.stream = self._connection.stream(path, query, SILENCE)
            if self._closed:
                followed.stream.close()
            with contextlib.closing(followed.stream.parts()) as parts:
                for part in parts:
                    followed.add(part)
        except OverspanError as error:
            _log.info("the last lines of pod %s are read at its end: %s", pod.name, error)
        except Exception:
            _log.exception("the last lines of pod %s", pod.name)
        finally:
            followed.over = True
