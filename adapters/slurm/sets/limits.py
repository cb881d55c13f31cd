"""New wall times of a set's tasks, and the time limits of its native jobs that follow from them.

The daemon enforces wall times. Slurm kills a job at its own time limit, so a limit has to be raised before the wall
time.
"""

from __future__ import annotations

from collections.abc import Sequence

from overspan.adapters.contract import Order
from overspan.adapters.slurm.groups.files import append_words
from overspan.adapters.slurm.groups.limits import list_limits
from overspan.adapters.slurm.groups.ordering import plan_limits
from overspan.adapters.slurm.handles import GroupHandle
from overspan.adapters.slurm.observation.journals import JournalChunk, read_orders
from overspan.adapters.slurm.orders.command_lines import OrderSteps, Words
from overspan.adapters.slurm.sets.handles import SetHandle
from overspan.adapters.slurm.transports.transport import Transport
from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.events import SetTime

_WHOLE = 64 << 20


async def read_limits(handle: SetHandle, transport: Transport) -> list[SetTime]:
    """The orders about a set's wall times, oldest first."""
    try:
        data = (await transport.read(handle.orders, 0, _WHOLE)).data
    except NotFound:
        return []
    return [event for _, event in read_orders(JournalChunk(len(data), data)) if isinstance(event, SetTime)]


async def plan_times(
    handle: SetHandle, members: Sequence[GroupHandle], order: Order, transport: Transport
) -> OrderSteps:
    """The commands of a new wall time: raise limits, then write the order down, then lower limits."""
    given = await read_limits(handle, transport)
    longer: list[Words] = []
    shorter: list[Words] = []
    for member in members:
        files = [f"{member.folder}/{name}.{member.launch}.json" for name in ("plan", "placement")]
        try:
            plan, placement = [(await transport.read(path, 0, _WHOLE)).data for path in files]
            before, after = (list_limits(plan, placement, orders) for orders in (given, [*given, order.event]))
        except (NotFound, ValueError):
            continue
        steps = plan_limits(member, OrderSteps(()), before, after)
        longer += steps.first
        shorter += (*steps.then, *steps.hints)
    note = append_words(handle.orders, order.token, order.event)
    return OrderSteps(tuple(longer), then=(note, *shorter)) if longer else OrderSteps((note,), tuple(shorter))
