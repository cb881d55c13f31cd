"""The run directories of ended jobs: packed soon after the end, and removed long after it.

ROOT/ended has an entry for each launch that is not packed yet, so that none is forgotten in a crash.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Sequence

from overspan.adapters.local.files.launch_files import LaunchFiles, parse_handle, remove
from overspan.adapters.local.files.run_packs import pack_run
from overspan.adapters.traits import FindKnown
from overspan.bridge.model.errors import InvalidRequest, Unreachable
from overspan.bridge.runtime.core.loss_records import FOLDER, list_losses
from overspan.bridge.runtime.core.shortages import is_shortage
from overspan.bridge.runtime.data.mounts import name_folder

_log = logging.getLogger(__name__)

SLICE_SECONDS = 0.05
"""The longest time that packing delays submissions and ends."""


class RunPacker:
    """Packs run directories of one cluster. `live` returns the jobs that have a live launch."""

    def __init__(self, root: str, lock: asyncio.Lock, live: Callable[[], Collection[int]]) -> None:
        self._root = root
        self._lock = lock
        self._live = live

    async def pack(self, handles: Collection[str], tokens: Collection[str]) -> None:
        """Pack each ended job, except those with a watched or unanswered launch. Raises Unreachable."""
        wanted = {handle.partition(".")[0] for handle in handles} | {_read_job(token) for token in tokens}
        ended = await asyncio.to_thread(_list_ended, self._root)
        waiting = [place for place in ended if str(place.job) not in wanted]
        while waiting:
            # No launch of a job may start while it is packed. Submissions get the lock between two slices.
            async with self._lock:
                live = frozenset(self._live())
                waiting = await asyncio.to_thread(_pack_some, self._root, waiting, live)


def _pack_some(root: str, waiting: list[LaunchFiles], live: Collection[int]) -> list[LaunchFiles]:
    """Pack for SLICE_SECONDS; returns what is left. Raises Unreachable where the disk is full."""
    until = time.monotonic() + SLICE_SECONDS
    lost = {name.partition(".")[0] for name in list_losses(root)}
    for count, place in enumerate(waiting, 1):
        if place.job not in live:
            _pack(place, str(place.job) in lost)
        if time.monotonic() > until:
            return waiting[count:]
    return []


def _pack(place: LaunchFiles, lost: bool) -> None:
    try:
        # A lost launch keeps its files as they are, for diagnosis.
        if not lost and os.path.isdir(place.folder):
            pack_run(place.folder)
        remove(place.ended)
    except OSError as error:
        if is_shortage(error):
            raise Unreachable(f"{place.folder} cannot be packed: {error.strerror}", remedy="free space") from error
        # The run stays readable unpacked; the next start of the daemon tries again.
        _log.warning("%s cannot be packed: %s", place.folder, error)


def _list_ended(root: str) -> list[LaunchFiles]:
    """The ended launches that are not packed, oldest first."""
    found = []
    for name in os.listdir(f"{root}/ended"):
        try:
            found.append(parse_handle(root, name))
        except InvalidRequest:
            continue
    return sorted(found)


def _read_job(token: str) -> str:
    """The job of a launch's token, INSTALLATION-JOB-LAUNCH."""
    return token.rpartition("-")[0].rpartition("-")[2]


async def forget_runs(root: str, before: float, jobs: Collection[int], find_known: FindKnown) -> int:
    """Remove each run directory that was last changed before that time and whose job is not known any more.

    Returns how many. `jobs` are those with a live launch that is known; one that cannot be read has its ticket.
    """
    old = await asyncio.to_thread(_list_old, root, before, jobs)
    # By its age alone a job would lose its data that has gone on elsewhere, or has been kept by `data_keep` from then.
    known = await find_known(old) if old else ()
    gone = [job for job in old if job not in known]
    await asyncio.to_thread(_remove_runs, root, gone)
    return len(gone)


def _list_old(root: str, before: float, jobs: Collection[int]) -> list[int]:
    """The jobs without a live launch whose run directories were last changed before that time."""
    live = {name.partition(".")[0] for name in _list(os.path.join(root, "tickets"))}.union(map(str, jobs))
    runs = os.path.join(root, "runs")
    names = [name for name in _list(runs) if name.isdecimal() and name not in live]
    return [int(name) for name in names if _last_change(os.path.join(runs, name)) < before]


def _remove_runs(root: str, jobs: Sequence[int]) -> None:
    names = set(map(str, jobs))
    for job in jobs:
        shutil.rmtree(os.path.join(root, "runs", str(job)), ignore_errors=True)
        # Data that was not rescued until then goes with all else that is known of the job.
        shutil.rmtree(name_folder(root, job), ignore_errors=True)
    for loss in _list(os.path.join(root, FOLDER)) if jobs else ():
        if loss.partition(".")[0] in names:
            remove(os.path.join(root, FOLDER, loss))


def _last_change(path: str) -> float:
    """When a file directly in the run directory was last written; every event writes to a journal there."""
    times = [os.stat(path).st_mtime]
    with os.scandir(path) as entries:
        times += [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
    return max(times)


def _list(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []
