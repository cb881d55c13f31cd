"""Enforces arrays' throttles by those of native arrays.

Usually an array is one native array, and Slurm enforces the throttle. If there are several (resubmitted elements, sites
that limit an array's size), they share it: the sum of their throttles keeps to the limit, and what one no longer needs
goes to the next with the next poll. An element for which there is no room is not submitted yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from overspan.adapters.contract import Launch
from overspan.adapters.slurm.commands.errors import FailureKind, read_failure
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.groups.handles import NativeJob
from overspan.adapters.slurm.handles import Handle
from overspan.adapters.slurm.rendering.script import find_token
from overspan.adapters.slurm.submission.arrays import (
    ArrayShare,
    count_shares,
    find_room,
    identify,
    is_element,
    share_limit,
)
from overspan.adapters.slurm.transports.transport import Call
from overspan.bridge.model.errors import Unreachable


class Throttles:
    """The throttles of a cluster's arrays, by the array's id in Overspan, and their native arrays."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._limits: dict[int, int | None] = {}
        self._natives: dict[int, set[int]] = {}
        self._native_limits: dict[int, int] = {}
        """The throttles of native arrays, 0 for none; one that is missing counts as the array's own."""
        self._polled = False

    def note(self, launch: Launch, native: int) -> None:
        """Note a native array that was submitted."""
        if launch.job.element is not None and is_element(launch):
            self._natives.setdefault(launch.job.element.array, set()).add(native)
            self._native_limits[native] = launch.throttle or 0

    def note_watched(self, handles: Iterable[Handle | NativeJob]) -> None:
        """Learn the native arrays of all watched launches, also those of an earlier process."""
        self._polled = True
        natives: dict[int, set[int]] = {}
        for handle in handles:
            if handle.array:
                natives.setdefault(handle.array, set()).add(handle.native)
        for array, found in natives.items():
            self._natives.setdefault(array, set()).update(found)

    async def find_rooms(self, limits: Mapping[int, int], launches: Sequence[Launch]) -> dict[int, int]:
        """How many more elements of each array may be submitted. Raises Unreachable."""
        self._limits.update(limits)
        heads = {
            identify(launch).token.rpartition("-")[0]: launch.job.element.array
            for launch in launches
            if launch.job.element is not None and launch.job.element.array in limits and is_element(launch)
        }
        records: dict[int, list[QueueRecord]] = {array: [] for array in limits}
        for record in await self._queries.own_queue():
            array = heads.get(find_token(record.comment).rpartition("-")[0])
            if array is not None:
                records[array].append(record)
        return {array: find_room(limit, self._count(array, records[array]).values()) for array, limit in limits.items()}

    async def set_limit(self, array: int, limit: int | None) -> None:
        """Set an array's limit. Raises Unreachable, also before the first poll, while native arrays are unknown."""
        if not self._polled:
            raise Unreachable("the cluster has not been polled yet")
        self._limits[array] = limit
        natives = self._natives.get(array)
        if natives:
            records = [record for record in await self._queries.own_queue() if record.array_job in natives]
            await self._change(array, records)

    async def balance(self, records: Sequence[QueueRecord]) -> None:
        """Share each limit anew among its native arrays, by the newest records. Raises Unreachable."""
        for array, natives in list(self._natives.items()):
            if self._limits.get(array) is not None and len(natives) > 1:
                await self._change(array, [record for record in records if record.array_job in natives])

    def _count(self, array: int, records: Sequence[QueueRecord]) -> dict[int, ArrayShare]:
        shares = count_shares(records)
        default = self._limits.get(array)
        for native, share in shares.items():
            known = self._native_limits.get(native, default or 0)
            shares[native] = share._replace(limit=share.limit or known or None)
        return shares

    async def _change(self, array: int, records: Sequence[QueueRecord]) -> None:
        """Set the throttles that have to change, the lower ones first, so that their sum never exceeds the limit."""
        shares = self._count(array, records)
        self._natives[array] = set(shares)
        changes = share_limit(self._limits.get(array), shares)
        for native in set(shares) - set(changes):
            # Submitted by an earlier process, so its throttle is an assumption: set it to that.
            if native not in self._native_limits and shares[native].waiting:
                changes[native] = shares[native].limit or 0
        order = sorted(changes, key=lambda native: changes[native] or 1 << 30)
        calls = [
            Call(["scontrol", "update", f"JobId={native}", f"ArrayTaskThrottle={changes[native]}"]) for native in order
        ]
        if not calls:
            return
        answers = await self._queries.transport.run_all(calls, self._queries.timeout + len(calls))
        for native, done in zip(order, answers, strict=True):
            if done is None:
                raise Unreachable("the cluster has not answered")
            failure = None if done.rc == 0 else read_failure(done.words or done.text, done.rc)
            if failure is not None and failure.kind not in (
                FailureKind.UNKNOWN_JOB,
                FailureKind.ENDED,
                FailureKind.REJECTED,
            ):
                raise failure.error()
            self._native_limits[native] = changes[native]
