"""Reads the queue by the library pyslurm in place of squeue, if the daemon runs on the cluster and the versions match.

Only documented attributes of `pyslurm.Job` are read (pyslurm 22.5 and later). If the library is missing, has another
version or fails, squeue is used.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Sequence
from typing import Any

from overspan.adapters.slurm.commands.listings import ExitStatus, TimeLimit
from overspan.adapters.slurm.commands.queries import Queries, read_version
from overspan.adapters.slurm.commands.squeue import QueueRecord, read_nodes
from overspan.adapters.slurm.commands.states import read_reason, read_state
from overspan.adapters.slurm.submission.arrays import Lookup
from overspan.adapters.slurm.transports.transport import Transport
from overspan.bridge.model.ids import ArraySpec, parse_array

log = logging.getLogger(__name__)


class LibraryQueries(Queries):
    """Queries the queue by the library, and everything else by commands."""

    def __init__(self, transport: Transport, timeout: float) -> None:
        super().__init__(transport, timeout)
        self._library: Any = None
        self._tried = False

    async def queue(self, ids: Sequence[int]) -> dict[int, QueueRecord]:
        """The jobs of those native ids that the queue has, by id."""
        found = await self._read(frozenset(ids))
        return await super().queue(ids) if found is None else found

    async def look(self, ids: Sequence[int]) -> Lookup:
        """The jobs of those native ids, and all elements of arrays among them."""
        found = await self._read(frozenset(ids))
        return await super().look(ids) if found is None else Lookup(found.values())

    async def _read(self, wanted: frozenset[int]) -> dict[int, QueueRecord] | None:
        """The library's answer; None if squeue has to be asked."""
        if not self._tried:
            self._tried = True
            self._library = await asyncio.to_thread(open_library, (await self.site()).version)
        if self._library is None:
            return None
        try:
            async with asyncio.timeout(self.timeout):
                return await asyncio.to_thread(read_library, self._library, wanted)
        except Exception as error:
            # A library of another build may raise anything; squeue still works.
            log.warning("pyslurm has failed, squeue is asked from now on: %s: %s", type(error).__name__, error)
            self._library = None
            return None


def open_library(version: tuple[int, ...]) -> Any:
    """The library; None if it is missing or made for another Slurm (the first two numbers of the versions match)."""
    try:
        library: Any = importlib.import_module("pyslurm")
        own = read_version(str(library.__version__))
    except Exception as error:
        log.warning("pyslurm cannot be used, squeue is asked: %s: %s", type(error).__name__, error)
        return None
    if own[:2] != version[:2] or not hasattr(library, "Jobs"):
        log.warning("pyslurm %s is for another Slurm than %s, squeue is asked", own, version)
        return None
    return library


def read_library(library: Any, wanted: frozenset[int]) -> dict[int, QueueRecord]:
    """Load all jobs with one call; the records of those with a wanted id, and of elements of wanted arrays."""
    jobs = library.Jobs.load().values()
    records = (read_job(job) for job in jobs if job.id in wanted or job.array_id in wanted)
    return {record.raw: record for record in records}


def read_job(job: Any) -> QueueRecord:
    """The library's job as a record. Its unknown values are None or empty, its times seconds since 1970."""
    index, waiting = job.array_task_id, _read_waiting(job.array_tasks_waiting)
    array = job.array_id if index is not None or waiting is not None else None
    het = job.heterogeneous_id or None
    signal = job.exit_code_signal
    return QueueRecord(
        shown=f"{array}_{index}" if array and index is not None else str(job.id),
        raw=job.id,
        array_job=array,
        array_index=index,
        waiting=waiting,
        het_job=het,
        het_offset=job.heterogeneous_offset if het else None,
        state=read_state(str(job.state)),
        reason=read_reason(str(job.state_reason or "None")),
        exit=None if job.exit_code is None and signal is None else ExitStatus(job.exit_code or 0, signal or 0),
        restarts=job.requeue_count or 0,
        user=job.user_name or "",
        partition=job.partition or "",
        nodes=read_nodes(job.allocated_nodes or ""),
        batch_host=job.batch_host or "",
        num_nodes=job.num_nodes,
        submit=_read_time(job.submit_time),
        start=_read_time(job.start_time),
        end=_read_time(job.end_time),
        limit=_read_limit(job.time_limit),
        used=job.run_time,
        priority=job.priority,
        name=job.name or "",
        comment=job.comment or "",
    )


def _read_waiting(text: str | None) -> ArraySpec | None:
    if not text:
        return None
    try:
        return parse_array(text)
    except ValueError:
        return ArraySpec(())


def _read_time(value: int | None) -> float | None:
    return float(value) if value else None


def _read_limit(minutes: int | str | None) -> TimeLimit:
    """A limit in minutes; a word is UNLIMITED."""
    if isinstance(minutes, int):
        return TimeLimit(minutes * 60)
    return TimeLimit(None, minutes is not None)
