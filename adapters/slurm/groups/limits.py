"""New wall times of a group's tasks, and the time limits of its native jobs that follow from them.

Who decides enforces wall times. Slurm kills a job at its own time limit, so a limit has to be raised before the wall
time, and is lowered after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from overspan.adapters.contract import Decider, Order
from overspan.adapters.slurm.groups.files import append_words
from overspan.adapters.slurm.groups.handles import GroupHandle, NativeJob
from overspan.adapters.slurm.groups.lifetimes import MARGIN, find_waits, latest_ends
from overspan.adapters.slurm.observation.journals import JournalChunk, read_orders
from overspan.adapters.slurm.orders.command_lines import OrderSteps, Words
from overspan.adapters.slurm.rendering.script import render_limit
from overspan.adapters.slurm.transports.transport import Transport
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.documents import decode
from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.events import Event, SetTime
from overspan.bridge.model.job import Job

_WHOLE = 64 << 20


class LimitChanges(NamedTuple):
    """The commands that raise limits, and those that lower them."""

    longer: tuple[Words, ...] = ()
    shorter: tuple[Words, ...] = ()


async def read_limits(handle: GroupHandle, transport: Transport) -> list[SetTime]:
    """The orders about a group's wall times, oldest first."""
    try:
        data = (await transport.read(handle.orders, 0, _WHOLE)).data
    except NotFound:
        return []
    return [event for _, event in read_orders(JournalChunk(len(data), data)) if isinstance(event, SetTime)]


async def plan_times(
    handle: GroupHandle, jobs: Sequence[NativeJob], order: Order, transport: Transport, hints: Sequence[Words]
) -> OrderSteps:
    """The commands of a new wall time: raise limits, write the order down, lower limits, and give the hints."""
    given = await read_limits(handle, transport)
    longer: list[Words] = []
    after: list[Words] = []
    for job in jobs:
        files = [f"{job.folder}/{name}.{job.launch}.json" for name in ("plan", "placement")]
        try:
            plan, placement = [(await transport.read(path, 0, _WHOLE)).data for path in files]
            limits = [list_limits(plan, placement, orders) for orders in (given, [*given, order.event])]
        except (NotFound, ValueError):
            continue
        changes = change_limits(job.native, *limits)
        longer += changes.longer
        after += changes.shorter
    note, after = append_words(handle.orders, order.token, order.event), [*after, *hints]
    return OrderSteps(tuple(longer), then=(note, *after)) if longer else OrderSteps((note,), tuple(after))


def change_limits(native: int, before: Sequence[int | None], after: Sequence[int | None]) -> LimitChanges:
    """The commands that change the limits of a native job. Only an operator may raise one (scontrol(1))."""
    longer: list[Words] = []
    shorter: list[Words] = []
    for component, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            target = f"JobId={native}" + (f"+{component}" if len(after) > 1 else "")
            words = ("scontrol", "update", target, f"TimeLimit={render_limit(new or 0)}")
            (longer if new is None or (old is not None and new > old) else shorter).append(words)
    return LimitChanges(tuple(longer), tuple(shorter))


def list_limits(plan: bytes, placement: bytes, orders: Iterable[Event]) -> list[int | None]:
    """Seconds for each component, None for no limit, from the plan and the orders that have changed it.

    The first component runs the batch script, so it lasts as long as the longest. Raises ValueError for a damaged
    document.
    """
    planned: dict[str, Any] = json.loads(plan)
    job = decode(Job, planned["job"])
    waits = find_waits(job) if planned.get("decider") == Decider.DAEMON.value else {}
    for event in orders:
        if isinstance(event, SetTime):
            job = reduce(job, event)
    document: dict[str, Any] = json.loads(placement)
    ends = latest_ends(job, waits)
    tasks: list[set[str]] = [set() for _ in document["components"]]
    for step in document["steps"]:
        tasks[step["component"]].add(step["task"])
    limits = [cover([ends[name] for name in sorted(names)]) for names in tasks]
    return [cover(limits, 0), *limits[1:]]


def cover(limits: Iterable[int | None], margin: int = MARGIN) -> int | None:
    """The longest of these limits with a margin; None if one of them is None."""
    longest = 0
    for limit in limits:
        if limit is None:
            return None
        longest = max(longest, limit)
    return longest + margin
