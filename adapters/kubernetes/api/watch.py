"""The pods of one namespace, kept up to date by one list and one watch, however many they are.

Facts: Kubernetes API concepts, "Efficient detection of changes"; KEP-956 (bookmarks). A resource version is an opaque
text; 410 comes inside the stream, as an ERROR event, and what happened meanwhile is known by a new list alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from overspan.adapters.kubernetes.api.answers import EXPIRED, ApiAnswer, to_error
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.streams import AnswerStream
from overspan.adapters.kubernetes.launches.abandoned_pods import read_end
from overspan.adapters.kubernetes.launches.relabelled_pods import keep
from overspan.adapters.kubernetes.observation.records import PodRecord, read_pod
from overspan.bridge.model.errors import OverspanError, TimedOut, Unreachable


@dataclass(frozen=True)
class WatchTimes:
    """How the API is asked. Times are seconds."""

    page: int = 500
    """Pods in one part of a list."""
    least: int = 240
    most: int = 300
    """Between these, one watch lasts; the server ends it."""
    silence: float = 75.0
    """The longest silence of a watch: a server that lives sends a bookmark about each minute."""
    relist: float = 600.0
    """Age of the list from which on the next watch begins with a new one: an event that no watch brought is healed."""
    first: float = 0.5
    longest: float = 10.0
    """Waits after failures, doubled from the first to the longest."""


class PodWatch:
    """The pods that a selector finds, as records, and those that vanished. `start` and `close` on the event loop.

    `changed` is set when pods change, and when a trouble begins or ends. Reading is safe from any thread.
    """

    def __init__(self, connection: Connection, namespace: str, selector: str, times: WatchTimes | None = None) -> None:
        self.changed = asyncio.Event()
        self.fresh = False
        """Whether the pods have been listed at least once."""
        self.trouble: OverspanError | None = None
        """Why nothing is known of the present, or None."""
        self._connection = connection
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._selector = selector
        self._times = times or WatchTimes()
        self._lock = threading.Lock()
        self._pods: dict[str, PodRecord] = {}
        self._launches: dict[str, dict[str, PodRecord]] = {}
        self._gone: dict[str, dict[str, PodRecord]] = {}
        self._news: set[str] = set()
        self._version = ""
        self._listed_at = -math.inf
        self._stream: AnswerStream | None = None
        self._closed = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # --- what is known ---

    @property
    def pods(self) -> dict[str, PodRecord]:
        """All pods by uid, as they are now."""
        with self._lock:
            return dict(self._pods)

    @property
    def version(self) -> str:
        """The resource version up to which all is known; '' before the first list, or when it must be read anew."""
        return self._version

    def tokens(self) -> set[str]:
        """The launches that have pods."""
        with self._lock:
            return set(self._launches)

    def of(self, token: str) -> dict[str, PodRecord]:
        """The pods of a launch by name, as they are now."""
        with self._lock:
            return {record.name: record for record in self._launches.get(token, {}).values()}

    def gone(self, token: str) -> tuple[PodRecord, ...]:
        """The last records of a launch's pods that vanished since the start, oldest first. `forget` drops them."""
        with self._lock:
            return tuple(self._gone.get(token, {}).values())

    def forget(self, token: str) -> None:
        """Drop the vanished pods of a launch."""
        with self._lock:
            self._gone.pop(token, None)

    def take_news(self) -> set[str]:
        """The launches whose pods have changed since the last call."""
        with self._lock:
            news, self._news = self._news, set()
            return news

    # --- its life ---

    def start(self) -> None:
        """Begin to watch; a second call does nothing. Raises Unreachable where there is no room for its thread."""
        if self._thread is not None:
            return
        self._loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._run, name=f"watch {self._path}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # As at a limit of processes on a login node. Nothing would be known of the pods, and nothing say so.
            raise Unreachable(f"the pods cannot be watched: {error}", remedy="raise the limit (`ulimit -u`)") from error
        self._thread = thread

    async def close(self) -> None:
        """Stop watching, and wait for the thread."""
        self._closed.set()
        stream = self._stream
        if stream is not None:
            stream.close()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 5.0)
        self._loop = None

    def _run(self) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                if not self._version or time.monotonic() - self._listed_at >= self._times.relist:
                    self._list()
                    self._settle(None)
                if self._watch():
                    failures = 0
                    continue
            except OverspanError as error:
                self._settle(error)
            except Exception as error:
                # An unreadable answer must not end the watch for good.
                self._version = ""
                self._settle(Unreachable(f"the cluster's answer is not readable: {error!r}"))
            failures += 1
            self._closed.wait(self._wait_time(failures))

    def _wait_time(self, failures: int) -> float:
        longest = min(self._times.longest, self._times.first * 2.0 ** (min(failures, 20) - 1))
        return longest * random.uniform(0.5, 1.0)

    def _settle(self, trouble: OverspanError | None) -> None:
        """Record success or a trouble, and wake the reader if that has changed."""
        before = self.trouble.message if self.trouble else ""
        news = before != (trouble.message if trouble else "") or (trouble is None and not self.fresh)
        self.trouble = trouble
        self.fresh = self.fresh or trouble is None
        if news:
            self._wake()

    def _wake(self) -> None:
        loop = self._loop
        # The reader clears the event before it reads, so that no change is missed.
        if loop is not None and not self._closed.is_set() and not self.changed.is_set():
            try:
                loop.call_soon_threadsafe(self.changed.set)
            except RuntimeError:
                # The loop has ended before the watch was closed.
                self._closed.set()

    # --- asking ---

    def _list(self) -> None:
        """Read all pods, part by part; those that are not among them have vanished."""
        seen: set[str] = set()
        part, begun = "", time.monotonic()
        while True:
            query: dict[str, Any] = {"labelSelector": self._selector, "limit": self._times.page}
            if part:
                query["continue"] = part
            answer = self._connection.request("GET", self._path, query=query)
            if not answer.works:
                raise to_error(answer, "list pods")
            metadata = answer.document.get("metadata") or {}
            records = [self._take_back(read_pod(item)) for item in answer.document.get("items") or []]
            seen.update(record.uid for record in records)
            self._put(records)
            part = metadata.get("continue") or ""
            if self._closed.is_set():
                # A partial list does not show which pods are gone.
                return
            if not part:
                break
        version = str(metadata.get("resourceVersion") or "")
        if not version:
            raise Unreachable("the cluster's list of pods has no version: the server that answered is not Kubernetes")
        with self._lock:
            lost = [record for uid, record in self._pods.items() if uid not in seen]
        for record in lost:
            self._let_go(record)
        self._version, self._listed_at = version, begun

    def _watch(self) -> bool:
        """Follow one watch to its end; whether it brought any event. A broken connection is an ordinary end."""
        query = {
            "labelSelector": self._selector,
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": random.randint(self._times.least, self._times.most),
        }
        try:
            stream = self._connection.stream(self._path, query, self._times.silence)
        except OverspanError as error:
            if not error.transient:
                self._version = ""
            raise
        self._stream = stream
        if self._closed.is_set():
            stream.close()
        self._settle(None)
        heard = False
        try:
            with contextlib.closing(iter(stream)) as lines:
                for line in lines:
                    if not self._take(json.loads(line)):
                        break
                    heard = True
        except (TimedOut, Unreachable):
            # Not a trouble yet: the next watch resumes here, and fails if the cluster is away.
            pass
        finally:
            self._stream = None
        return heard

    def _take(self, event: Mapping[str, Any]) -> bool:
        """Apply one event; False where the watch must be started anew."""
        kind, document = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            answer = ApiAnswer(int(document.get("code") or 500), document)
            # After any error only a new list is certain to be complete.
            self._version = ""
            if answer.status != EXPIRED:
                self._settle(to_error(answer, "watch pods"))
            return False
        self._version = str((document.get("metadata") or {}).get("resourceVersion") or self._version)
        try:
            if kind in ("ADDED", "MODIFIED"):
                self._put([self._take_back(read_pod(document))])
            elif kind == "DELETED":
                self._let_go(read_pod(document))
        except OverspanError:
            # Whether the pod is there is unknown: list anew.
            self._version = ""
            raise
        return True

    def _let_go(self, record: PodRecord) -> None:
        """Record that a pod is gone, unless only its labels have changed: a watch reports both as DELETED."""
        known = self._find(record.uid) or record
        # A pod with a finalizer cannot vanish before its deletion was requested, which the watch shows.
        kept = keep(self._connection, self._path, known) if record.deleting_at is None else None
        if kept is not None:
            self._put([kept])
            return
        # This process may have been away, as a laptop is that was closed.
        end = None if record.ended else read_end(self._connection, self._path, known)
        self._remove([end or record])

    def _take_back(self, record: PodRecord) -> PodRecord:
        """The pod under the launch that created it, also if its label was changed."""
        known = self._find(record.uid)
        if known is None or known.token == record.token:
            return record
        return keep(self._connection, self._path, known) or record

    def _find(self, uid: str) -> PodRecord | None:
        with self._lock:
            return self._pods.get(uid)

    # --- keeping ---

    def _put(self, records: Iterable[PodRecord]) -> None:
        news = set()
        with self._lock:
            for record in records:
                before = self._pods.get(record.uid)
                if record == before:
                    continue
                if before is not None and before.token != record.token:
                    self._drop(before)
                    news.add(before.token)
                self._pods[record.uid] = record
                self._launches.setdefault(record.token, {})[record.uid] = record
                news.add(record.token)
            self._news |= news
        if news:
            self._wake()

    def _remove(self, records: Iterable[PodRecord]) -> None:
        news = set()
        with self._lock:
            for record in records:
                self._drop(record)
                self._gone.setdefault(record.token, {})[record.uid] = record
                news.add(record.token)
            self._news |= news
        if news:
            self._wake()

    def _drop(self, record: PodRecord) -> None:
        self._pods.pop(record.uid, None)
        launch = self._launches.get(record.token, {})
        launch.pop(record.uid, None)
        if not launch:
            self._launches.pop(record.token, None)
