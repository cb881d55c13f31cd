"""Logs of jobs: the bytes of one stream, and the list of streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from overspan.adapters.contract import Adapter, LogPart, LogRequest
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.references import Directory, JobTarget
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.views.log_search import LogMatches, LogPattern, search_log
from overspan.bridge.lifecycle.stages import find_ended
from overspan.bridge.model.allocations import runs_daemon
from overspan.bridge.model.errors import InvalidRequest, NotFound, OverspanError
from overspan.bridge.model.job import Attempt, Job, NodeRun, Task

MAX_STREAMS = 2000
"""Streams that one listing names at most."""
LIST_SECONDS = 20.0
"""How long streams are asked for once one did not answer."""

ListJoined = Callable[[JobEntry], Awaitable[list[int]]]
"""Gives the ids of the jobs that have joined a group, ended ones too."""

SEARCHES = 2
"""Searches at the same time: each keeps a processor busy."""


@dataclass(frozen=True)
class LogQuery:
    """Which bytes: an empty task is the first, no attempt the newest; a negative offset counts from the end."""

    task: str = ""
    node: int = 0
    attempt: int | None = None
    stream: str = "output"
    offset: int = 0
    limit: int = 1 << 20


@dataclass(frozen=True)
class LogAnswer:
    """The bytes, and whether nothing more can come after them."""

    part: LogPart
    over: bool


@dataclass
class _Streams:
    """Streams that were found until a time (monotonic), whether one can be read, and why one cannot."""

    until: float
    rows: list[dict[str, Any]] = field(default_factory=list)
    readable: bool = False
    trouble: OverspanError | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more are looked for."""
        return len(self.rows) >= MAX_STREAMS or (self.trouble is not None and time.monotonic() > self.until)


class Logs:
    """Reads logs through the adapter of the job's cluster."""

    def __init__(
        self,
        directory: Directory,
        clusters: Clusters,
        clock: Callable[[], float],
        list_joined: ListJoined,
    ) -> None:
        self.clock = clock
        self.directory = directory
        self.clusters = clusters
        self.list_joined = list_joined
        self._searches = asyncio.Semaphore(SEARCHES)

    async def read(self, ref: str, query: LogQuery) -> LogAnswer:
        """Bytes of one stream. Raises NotFound when there is none."""
        target = await self.directory.find(ref)
        task = choose_task(target, query.task)
        adapter, handle = self._place(target.entry, task.name)
        # Before the bytes are read, so that a follower does not miss what is written afterwards.
        over = is_over(target.entry, task, query.attempt)
        request = LogRequest(
            handle=handle,
            task=task.name,
            node=_find_node(target.entry.job, query.node),
            attempt=query.attempt,
            stream=query.stream,
            offset=max(0, query.offset),
            limit=query.limit,
            begun=max((each.number for each in task.attempts if each.started_at is not None), default=0),
        )
        if query.offset < 0:
            size = (await adapter.logs(replace(request, limit=1))).size
            request = replace(request, offset=max(0, size + query.offset))
        part = await adapter.logs(request)
        return LogAnswer(part, over and not part.partial)

    async def search(self, ref: str, query: LogQuery, wanted: LogPattern) -> LogMatches:
        """Lines of one stream that match, the newest first. Raises NotFound, InvalidRequest for a wrong pattern."""

        async def read(offset: int, limit: int) -> LogPart:
            return (await self.read(ref, replace(query, offset=offset, limit=limit))).part

        async with self._searches:
            return await search_log(read, wanted)

    async def list(self, ref: str, times: bool = False) -> list[dict[str, Any]]:
        """Every stream that can be read, by task, attempt and node. Raises why where none can.

        Those of a group's further members are there too, and are read under the id in their `job`.
        With `times` each has its `marks`, of `LogPart`, the last of them behind all that is there now. A node whose
        logs cannot be read has a row with the `trouble`.
        """
        target = await self.directory.find(ref)
        found = _Streams(time.monotonic() + LIST_SECONDS)
        await self._add_streams(found, target, times)
        for member in await self._find_members(target):
            if not found.is_full:
                await self._add_streams(found, member, times, str(member.entry.job.id))
        if found.trouble is not None and not found.readable:
            raise found.trouble
        return found.rows

    async def _find_members(self, group: JobTarget) -> tuple[JobTarget, ...]:
        """The jobs of the further members of a group's elastic tasks, or of the one that is meant; ended ones too."""
        tasks = [task for task in group.entry.job.spec.tasks if group.task in ("", task.name)]
        if not any(task.elastic is not None for task in tasks):
            return ()
        names = {task.name for task in tasks}
        # One that was forgotten meanwhile hides no other's output.
        answers = await self.directory.find_all(map(str, await self.list_joined(group.entry)))
        joined = [target for answer in answers if isinstance(answer, list) for target in answer]
        found = [(each, each.entry.job.spec.member) for each in joined]
        return tuple(each for each, member in found if member is not None and member.task in names)

    async def _add_streams(self, found: _Streams, target: JobTarget, times: bool, job: str = "") -> None:
        """Add the streams of a job; `job` is asked for those of a group's further member."""
        if not target.entry.handle:
            return
        for task, attempt, node in _runs(target):
            number = attempt.number
            output = ""
            adapter, handle = self._place(target.entry, task.name)
            for stream in ("output", "error"):
                request = LogRequest(handle, task.name, node.index, number, stream, limit=1, times=times)
                row = _describe(target.entry.job, request, job)
                try:
                    part = await adapter.logs(request)
                except NotFound:
                    continue
                except OverspanError as error:
                    # A node that does not answer hides no other's output.
                    found.trouble = error
                    found.rows.append({**row, "path": "", "size": 0, "over": False, "trouble": error.message})
                    break
                if stream == "error" and part.path and part.path == output:
                    continue
                output, found.readable = part.path, True
                over = is_over(target.entry, task, number)
                row |= {"path": part.path, "size": part.size, "over": over}
                found.rows.append({**row, "marks": _date(part, node, self.clock())} if times else row)
            if found.is_full:
                break

    def _place(self, entry: JobEntry, task: str) -> tuple[Adapter, str]:
        """The adapter that reads a task's logs, and the handle of the launch that has them."""
        ended = find_ended(entry.job, task)
        cluster, handle = (entry.cluster, entry.handle) if ended is None else (ended.cluster, ended.handle)
        if not handle:
            raise NotFound(f"job {entry.job.id} has not started, so it has no output", remedy="wait until it runs")
        return self.clusters.get(cluster).adapter, handle


def _describe(job: Job, request: LogRequest, asked: str) -> dict[str, Any]:
    """The row of a stream, without what is in it; `asked` is the job under whose id it is read, if another."""
    member = job.spec.member
    node = member.index if asked and member is not None else request.node
    row = {"task": request.task, "node": node, "attempt": request.attempt, "stream": request.stream}
    return {**row, "job": asked} if asked else row


def _find_node(job: Job, node: int) -> int:
    """The node of a job that is meant: the only one of a further member has the member's number in the group."""
    member = job.spec.member
    return 0 if member is not None and node == member.index else node


def _date(part: LogPart, node: NodeRun, now: float) -> list[tuple[float, int]] | None:
    """The marks of a log; bytes without a mark get the node run's end, or now."""
    if part.marks is None:
        return None
    marks = list(part.marks)
    if part.size > (marks[-1][1] if marks else 0):
        marks.append((now if node.ended_at is None else node.ended_at, part.size))
    return marks


def is_over(entry: JobEntry, task: Task, attempt: int | None) -> bool:
    """Whether the attempt, or the newest of a task that will have no other, can print nothing more."""
    if attempt is None:
        return task.over or entry.job.over
    return entry.job.over or any(known.number == attempt and not known.live for known in task.attempts)


def choose_task(target: JobTarget, name: str) -> Task:
    """The task of that name, else the target's own, else the first. InvalidRequest for no such task."""
    job = target.entry.job
    name = name or target.task or job.tasks[0].name
    try:
        return job.task(name)
    except KeyError:
        names = ", ".join(task.name for task in job.tasks)
        raise InvalidRequest(f"job {job.id} has no task {name!r}", remedy=f"its tasks: {names}") from None


def _runs(target: JobTarget) -> Iterator[tuple[Task, Attempt, NodeRun]]:
    for task in target.entry.job.tasks:
        if target.task in ("", task.name):
            for attempt in task.attempts:
                for node in attempt.nodes:
                    # Where a batch script's steps are waited for, nothing of the user's writes.
                    if not runs_daemon(target.entry.job.spec_of(task.name), node.index):
                        yield task, attempt, node
