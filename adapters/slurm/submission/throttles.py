"""Keeping arrays' throttles by those of native arrays.

Mostly an array is one native array, and its throttle is that one's. Where it is several (elements that were submitted
anew, sites that take no more at once), they share it: each may run so many that all together keep to it, and what the
one leaves over goes to the next at the next look. An element for which there is no room is not submitted yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from overspan.adapters.contract import Launch
from overspan.adapters.slurm.commands.errors import FailureKind, read_failure
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.handles import GroupHandle, Handle
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
    """The throttles of a cluster's arrays, by Overspan's number, and the native arrays that they are kept with."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._limits: dict[int, int | None] = {}
        self._natives: dict[int, set[int]] = {}
        self._given: dict[int, int] = {}
        """The throttles of native arrays, 0 for none; where it is not known it is the array's."""
        self._looked = False

    def note(self, launch: Launch, native: int) -> None:
        """A native array was submitted."""
        if launch.job.element is not None and is_element(launch):
            self._natives.setdefault(launch.job.element.array, set()).add(native)
            self._given[native] = launch.throttle or 0

    def see(self, handles: Iterable[Handle | GroupHandle]) -> None:
        """Take these for all launches there are, also those of an earlier process."""
        self._looked = True
        natives: dict[int, set[int]] = {}
        for handle in handles:
            if handle.array:
                natives.setdefault(handle.array, set()).add(handle.native)
        for array, found in natives.items():
            self._natives.setdefault(array, set()).update(found)

    async def find_rooms(self, limits: Mapping[int, int], launches: Sequence[Launch]) -> dict[int, int]:
        """How many elements of each array may be started beside those that Slurm has. Raises Unreachable."""
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
        """From now on at most so many elements run. Raises Unreachable, also while it is not known what there is."""
        if not self._looked:
            raise Unreachable("the cluster has not been looked at yet")
        self._limits[array] = limit
        natives = self._natives.get(array)
        if natives:
            records = [record for record in await self._queries.own_queue() if record.array_job in natives]
            await self._change(array, records)

    async def balance(self, records: Sequence[QueueRecord]) -> None:
        """Give what one native array leaves over to the next, by the newest records. Raises Unreachable."""
        for array, natives in list(self._natives.items()):
            if self._limits.get(array) is not None and len(natives) > 1:
                await self._change(array, [record for record in records if record.array_job in natives])

    def _count(self, array: int, records: Sequence[QueueRecord]) -> dict[int, ArrayShare]:
        shares = count_shares(records)
        default = self._limits.get(array)
        for native, share in shares.items():
            given = self._given.get(native, default or 0)
            shares[native] = share._replace(limit=share.limit or given or None)
        return shares

    async def _change(self, array: int, records: Sequence[QueueRecord]) -> None:
        """Set what has to change, the lower ones first."""
        shares = self._count(array, records)
        self._natives[array] = set(shares)
        changes = share_limit(self._limits.get(array), shares)
        for native in set(shares) - set(changes):
            # Not known from this process: what it is taken for is made true.
            if native not in self._given and shares[native].waiting:
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
            self._given[native] = changes[native]
