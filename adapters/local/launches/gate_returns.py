"""Gives back what launches have booked that wait at their start gates: a hold makes them wait in memory again.

A granted launch has a supervisor and files. The supervisor ends first, then the files go, and the launch is submitted
anew as the store has it. Nothing of it has run, so it is the same launch. The plan goes last: after a crash anywhere
the same order goes on, and without a plan the store hands the launch over (`ClusterConfig.list_waiting`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from overspan.adapters.contract import Launch, Order, Refusal
from overspan.adapters.local.files import journals
from overspan.adapters.local.files.launch_files import LaunchFiles, parse_handle, read_document, remove
from overspan.adapters.local.launches.dispatch import Dispatch
from overspan.adapters.local.launches.launches import make_run
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.deciders import Decider
from overspan.bridge.model.documents import decode
from overspan.bridge.model.events import Hold, LaunchLost
from overspan.bridge.model.job import Job


async def give_back(
    dispatch: Dispatch, root: str, orders: Sequence[Order], list_waiting: Callable[[], Sequence[Launch]]
) -> dict[str, Refusal]:
    """Begin to take back the launches at their start gates that are to be held.

    The answers are those to holds that have to be given again, by token; the other launches wait in the queue by now.
    """
    later = {}
    for order in orders:
        if not isinstance(order.event, Hold) or order.event.by:
            # A user's hold: the daemon follows the launch from where it is, and its end would be the job's.
            continue
        try:
            waits = await _give_back(dispatch, parse_handle(root, order.handle), list_waiting)
        except (OSError, ValueError, LookupError) as error:
            later[order.token] = Refusal(order.token, f"it cannot be taken back: {error}", transient=True)
            continue
        if not waits:
            later[order.token] = Refusal(order.token, "its supervisor is being ended", transient=True)
    return later


async def _give_back(dispatch: Dispatch, place: LaunchFiles, list_waiting: Callable[[], Sequence[Launch]]) -> bool:
    """Whether nothing is left to do before the hold."""
    run = dispatch.runs.get(place.handle)
    if place.handle in dispatch.lost_launches or (run is not None and (run.booking is None or not run.ticket.gated)):
        return True
    plan = await asyncio.to_thread(read_document, place.plan)
    if plan is None or plan.get("decider") != Decider.DAEMON.value:
        return True
    if await asyncio.to_thread(journals.has_launched, place):
        return True
    if run is not None:
        if not run.leaving:
            lost = LaunchLost(time.time(), place.launch, Cause.CANCEL.value, "it gives back what it has booked")
            (failure,) = await dispatch.order([Order(f"return-{time.time_ns()}", place.handle, lost)])
            run.leaving = failure is None
        return False
    launch = Launch(str(plan["token"]), decode(Job, plan["job"]), plan.get("environment", {}))
    # The store has what was changed since: priority, nice, limits.
    launch = next((known for known in list_waiting() if known.token == launch.token), launch)
    await asyncio.to_thread(_remove_files, place)
    await _take_again(dispatch, place, launch)
    return True


async def _take_again(dispatch: Dispatch, place: LaunchFiles, launch: Launch) -> None:
    """Put it back in the queue. It is not judged anew: a refusal would lose a launch that was accepted."""
    dispatch.enter(await asyncio.to_thread(make_run, place, launch, dispatch.bookings.capacity))


def list_files(place: LaunchFiles) -> tuple[str, ...]:
    """What a launch at its start gate has, in the order in which it goes."""
    return (place.grant, place.orders, place.journal, place.ticket, place.ended, place.plan)


def _remove_files(place: LaunchFiles) -> None:
    for path in list_files(place):
        remove(path)
