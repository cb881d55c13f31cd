"""What pods print, kept in files of the daemon's: read on demand while a pod lives, and once more at its end.

The log API shows a log for as long as its pod is there, and only what its node has not rotated away. So each read
takes what is new into a file, and the file is what is shown. Without readers no log is asked for.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from weakref import WeakValueDictionary

from overspan.adapters.contract import LogPart, LogRequest
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.logs.end_marks import leave_out, mark_of
from overspan.adapters.kubernetes.logs.live_logs import STREAMS, LiveLogs
from overspan.adapters.kubernetes.logs.log_lines import CUT, LogPosition, since_time, take_new
from overspan.adapters.kubernetes.logs.output_files import OutputFiles, copy_log, read_output
from overspan.adapters.kubernetes.observation.records import MAIN, PodRecord
from overspan.bridge.model.errors import NotFound, OverspanError, Rejected
from overspan.bridge.runtime.core.log_times import add_line

_log = logging.getLogger(__name__)

KEEP_BYTES = 64 << 20
"""Of one log; older bytes are dropped, and the gap is reported."""
READ_BYTES = 32 << 20
"""Of one answer; nodes rotate logs at 10 MiB by default."""
SILENT_SECONDS = 30.0
"""How long readers are shown what is here, without a question, after one that a node did not answer."""

READERS = 4
"""Questions about logs at the same time: each has a thread of the process, for as long as its node is silent."""
_TIME = re.compile(r"[0-9]{1,12}\.[0-9]{3}")
KEPT_TASKS = 1000
"""Pods that are remembered as followed; those that went without a trace are forgotten."""


@dataclass
class LogFileState:
    """What a file holds: of which run, up to which line, how many bytes, and how many were dropped before them."""

    run: int = 0
    time: str = ""
    count: int = 0
    size: int = 0
    dropped: int = 0
    whole: bool = False
    """Whether that run has ended and all of it is here."""


class Logs:
    """The logs of all launches of one cluster, in `folder`/TOKEN/TASK-INDEX-aATTEMPT.log."""

    def __init__(self, connection: Connection, folder: str, live: LiveLogs, files: OutputFiles | None = None) -> None:
        self._connection = connection
        self._folder = folder
        self._files = files or OutputFiles(folder)
        self._unwritten: set[str] = set()
        """Output files that could not be written; each is logged once."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By file; a lock lives as long as it is held or waited for."""
        self._readers = asyncio.Semaphore(READERS)
        self._live = live
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, PodRecord] = {}
        """Pods that are being ended, whose logs are not here yet."""
        self._silent: dict[str, tuple[float, OverspanError]] = {}
        """By node that did not answer, since when it is not asked, and why."""

    def follow_to_end(self, pods: Iterable[PodRecord]) -> None:
        """Follow the logs of pods that are being ended: their nodes remove them with the containers."""
        if len(self._followed) > KEPT_TASKS:
            self._followed = {uid: task for uid, task in self._followed.items() if not task.done()}
            self._ending = {uid: pod for uid, pod in self._ending.items() if uid in self._followed}
        room = STREAMS - self._live.count() - sum(not task.done() for task in self._followed.values())
        for pod in pods:
            new = pod.uid not in self._followed and pod.go and pod.started_at is not None and not pod.ended
            if new and room > 0:
                room -= 1
                self._ending[pod.uid] = pod
                self._followed[pod.uid] = asyncio.create_task(self._follow(pod))

    async def _follow(self, pod: PodRecord) -> None:
        path = self._path(pod.token, pod.task, pod.index, pod.attempt)
        try:
            await self._take(path, pod)
        except (OSError, OverspanError) as error:
            _log.info("the log of pod %s cannot be read: %s", pod.name, error)
        index = await asyncio.to_thread(_read_index, path)
        if self._followed.get(pod.uid) is not asyncio.current_task():
            # It has gone meanwhile.
            return
        since = since_time(LogPosition(index.time, index.count)) if index.run == pod.run else ""
        self._live.keep(pod, since)

    async def finish(self, seconds: float) -> None:
        """Keep the last lines of the pods that are being ended just now, as far as they end within so long.

        Their nodes remove the rest with the containers, and no daemon would have read it by then.
        """
        known = list(self._ending.values())
        await asyncio.gather(*self._followed.values(), return_exceptions=True)
        await self._live.await_ends(seconds)
        for pod in known:
            if self._live.is_whole(pod.uid):
                try:
                    await self._take(self._path(pod.token, pod.task, pod.index, pod.attempt), pod)
                except (OSError, OverspanError) as error:
                    _log.info("the log of pod %s cannot be kept: %s", pod.name, error)

    async def close(self) -> None:
        """Stop following."""
        tasks = list(self._followed.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def read(self, request: LogRequest, token: str, pods: Iterable[PodRecord]) -> LogPart:
        """Bytes of a log from an offset. NotFound when there is none.

        A pod's output and error are one stream, but what a script writes to a shared volume is in its file there.
        """
        known = [pod for pod in pods if pod.task == request.task and pod.index == request.node]
        runs = [pod for pod in known if pod.go]
        if not known or any(pod.started_at is not None for pod in runs):
            # Before that the file is another job's, if there is one.
            written = await asyncio.to_thread(self._read_shared, token, request)
            if written is not None:
                return written
        attempt = request.attempt
        if attempt is None:
            numbers = [*(pod.attempt for pod in runs), *await asyncio.to_thread(self._attempts, token, request)]
            attempt = max([*numbers, request.begun])
        path = self._path(token, request.task, request.node, attempt)
        present = sorted((pod for pod in runs if pod.attempt == attempt), key=lambda pod: pod.run)
        whole = True
        for pod in present:
            try:
                since, trouble = self._silent.get(pod.node, (0.0, None))
                if trouble is not None and time.monotonic() < since + SILENT_SECONDS:
                    raise trouble
                whole = await self._take(path, pod)
            except OverspanError as error:
                whole = False
                # What was read before is still here.
                if not await asyncio.to_thread(os.path.exists, path):
                    raise
                _log.info("the log of pod %s cannot be read: %s", pod.name, error)
        if not present and not await asyncio.to_thread(os.path.exists, path):
            raise NotFound(f"there is no output of {request.task}, node {request.node}, attempt {attempt}")
        part = await asyncio.to_thread(_read_part, path, request.offset, request.limit)
        part = replace(part, partial=not whole)
        return replace(part, marks=await asyncio.to_thread(_read_times, path)) if request.times else part

    def _read_shared(self, token: str, request: LogRequest) -> LogPart | None:
        """What the pod itself has written to a file of the submitter's; None where the container's log has it."""
        files = self._files.find(token)
        path = files.find(request.stream) if files is not None and files.has(request.task, request.node) else ""
        return read_output(path, request) if path else None

    async def capture(self, pod: PodRecord) -> bool:
        """Capture the rest of an ended pod's log. True once it is captured, or can never be read."""
        if not pod.go or pod.started_at is None:
            return True
        attended = self._followed.get(pod.uid)
        if attended is not None and not attended.done():
            return False
        try:
            done = await self._take(self._path(pod.token, pod.task, pod.index, pod.attempt), pod)
        except OSError as error:
            _log.warning("the log of pod %s cannot be kept: %s", pod.name, error)
            return False
        if done:
            self.forget(pod.uid)
        return done

    def forget(self, uid: str) -> None:
        """Stop following a pod that is removed, or whose log is captured."""
        self._followed.pop(uid, None)
        self._ending.pop(uid, None)
        self._live.forget(uid)

    def _path(self, token: str, task: str, index: int, attempt: int) -> str:
        return os.path.join(self._folder, token, f"{task}-{index}-a{attempt}.log")

    def _attempts(self, token: str, request: LogRequest) -> list[int]:
        begin, found = f"{request.task}-{request.node}-a", []
        try:
            names = os.listdir(os.path.join(self._folder, token))
        except OSError:
            return []
        for name in names:
            number = name.removeprefix(begin).removesuffix(".log")
            if name.startswith(begin) and name.endswith(".log") and number.isdigit():
                found.append(int(number))
        return found

    async def _take(self, path: str, pod: PodRecord) -> bool:
        """Take what is new of a pod's log into its file; whether it is whole now."""
        # A cancelled caller does not stop the thread, so the lock must stay held until it ends.
        task = asyncio.create_task(self._take_locked(path, pod))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _take_locked(self, path: str, pod: PodRecord) -> bool:
        turn, asked = self._locks.setdefault(path, asyncio.Lock()), time.monotonic()
        async with turn, self._readers:
            since, trouble = self._silent.get(pod.node, (asked, None))
            if trouble is not None and since > asked:
                # Another call has waited for that node meanwhile.
                raise trouble
            return await self._ask(path, pod)

    async def _ask(self, path: str, pod: PodRecord) -> bool:
        try:
            whole = await asyncio.to_thread(self._take_now, path, pod)
            self._silent.pop(pod.node, None)
            return whole
        except OverspanError as error:
            now = time.monotonic()
            self._silent = {node: one for node, one in self._silent.items() if one[0] + SILENT_SECONDS > now}
            self._silent[pod.node] = now, error
            raise

    def _take_now(self, path: str, pod: PodRecord) -> bool:
        index = _read_index(path)
        if pod.run < index.run or (pod.run == index.run and index.whole):
            return True
        if pod.run > index.run:
            index = LogFileState(pod.run, size=index.size, dropped=index.dropped)
        position = LogPosition(index.time, index.count)
        query: dict[str, object] = {"container": MAIN, "timestamps": "true", "limitBytes": READ_BYTES}
        if position.time:
            query["sinceTime"] = since_time(position)
        # A container's log may end before its status shows the end. Judged before the question: what is printed behind
        # its answer would be taken for read.
        ended, cut = pod.ended or self._live.is_whole(pod.uid), False
        data = self._read(pod, query) if pod.started_at is not None else b""
        if data is None:
            if pod.ended and self._live.goes_on(pod.uid):
                return False
            data = self._live.read(pod.uid) if ended else b""
            cut = pod.ended and not self._live.is_whole(pod.uid)
        more = len(data) >= READ_BYTES
        fresh = take_new(data, position, final=ended and not more)
        index.time, index.count = fresh.position
        index.whole = ended and not more
        _note_times(path, fresh.times, index)
        _append(path, leave_out(fresh.data, mark_of(pod)), index)
        if cut:
            _append(path, CUT, index)
        self._copy(path, pod)
        return index.whole

    def _copy(self, path: str, pod: PodRecord) -> None:
        """Add what is new to the file that the submitter looks for; the log itself is kept also where that fails."""
        files = self._files.find(pod.token)
        if files is None or not files.outputs.kept or not files.has(pod.task, pod.index) or pod.started_at is None:
            return
        try:
            copy_log(path, files, partial(_read_part, path))
        except OSError as error:
            if files.outputs.kept not in self._unwritten:
                _log.warning("the output file %s cannot be written: %s", files.outputs.kept, error.strerror)
            self._unwritten.add(files.outputs.kept)

    def _read(self, pod: PodRecord, query: dict[str, object]) -> bytes | None:
        """Lines of a pod's log with their times; None where there is none (any more). Blocking."""
        try:
            data = self._connection.read(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log", query)
        except (NotFound, Rejected) as error:
            # The pod has gone, or its container has not begun.
            _log.info("the log of pod %s cannot be read: %s", pod.name, error)
            return None
        # A kubelet that has removed the container says so with status 200, where lines begin with their times.
        return data if data[:1].isdigit() or not data else None


async def capture_all(logs: Logs, pods: Iterable[PodRecord]) -> set[str]:
    """Take the logs of ended pods; the uids of those that are taken. A node that does not answer keeps its own."""

    async def capture(pod: PodRecord) -> str:
        try:
            return pod.uid if await logs.capture(pod) else ""
        except OverspanError as error:
            _log.info("the log of pod %s cannot be read: %s", pod.name, error)
            return ""

    return {uid for uid in await asyncio.gather(*map(capture, pods)) if uid}


def _read_index(path: str) -> LogFileState:
    try:
        with open(f"{path}.json", encoding="utf-8") as file:
            return LogFileState(**json.load(file))
    except (OSError, ValueError, TypeError):
        return LogFileState()


def _append(path: str, data: bytes, index: LogFileState) -> None:
    """Add to the file, then note how far it goes: what a crash left behind the noted size is written over."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(fd, "r+b") as file:
        file.truncate(index.size)
        file.seek(index.size)
        file.write(data)
        index.size += len(data)
        if index.size > KEEP_BYTES:
            surplus = index.size - KEEP_BYTES // 2
            file.seek(surplus)
            kept = file.read()
            file.seek(0)
            file.write(kept)
            file.truncate(len(kept))
            index.size, index.dropped = len(kept), index.dropped + surplus
    with open(f"{path}.json.new", "w", encoding="utf-8") as file_of_index:
        json.dump(asdict(index), file_of_index)
    os.replace(f"{path}.json.new", f"{path}.json")


def _note_times(path: str, times: Sequence[tuple[float, int]], index: LogFileState) -> None:
    """Add when the lines came that are added next; places count from the log's beginning."""
    if not times:
        return
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    begin = index.dropped + index.size
    add_line(f"{path}.times", "".join(f"{at:.3f} {begin + size}\n" for at, size in times).encode())


def _read_times(path: str) -> tuple[tuple[float, int], ...] | None:
    """When lines came, up to which byte; what was noted twice, after a crash, counts once."""
    try:
        with open(f"{path}.times", encoding="ascii", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    marks: list[tuple[float, int]] = []
    for line in lines:
        at, _, size = line.partition(" ")
        if _TIME.fullmatch(at) and size.isdecimal() and int(size) > (marks[-1][1] if marks else 0):
            marks.append((float(at), int(size)))
    return tuple(marks)


def _read_part(path: str, offset: int, limit: int) -> LogPart:
    """Bytes from an offset that counts from the log's beginning; a negative one from its end."""
    index = _read_index(path)
    size = index.dropped + index.size
    begin = max(0, size + offset) if offset < 0 else min(offset, size)
    gap = max(0, index.dropped - begin)
    begin += gap
    data = b""
    if os.path.exists(path):
        with open(path, "rb") as file:
            file.seek(begin - index.dropped)
            data = file.read(min(limit, max(0, size - begin)))
    return LogPart(data, begin, size, path, gap)
