"""`reduce(job, event)`: the next facts of a job.

Idempotent: an event that is late, repeated or makes no sense only increments the `late` counter, so reports may arrive
twice, and in any order after the end. Called by the supervisor, which decides for its groups, and by the daemon, which
copies journals and decides for the rest. The handlers are in `report_effects`, `order_effects`, `decision_effects` and
the modules of single features; arrays have their own, in `arrays`.
"""

from __future__ import annotations

from overspan.bridge.lifecycle import (
    bids,
    clocks,
    decision_effects,
    failover,
    flushing,
    members,
    order_effects,
    readiness,
    report_effects,
    suspension,
)
from overspan.bridge.lifecycle.arrays import reduce_array
from overspan.bridge.lifecycle.settlement import settle
from overspan.bridge.lifecycle.stages import bring_later, leave_later
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job
from overspan.bridge.model.records import replace

_HANDLERS = {
    **report_effects.HANDLERS,
    **readiness.HANDLERS,
    **flushing.HANDLERS,
    **order_effects.HANDLERS,
    **suspension.HANDLERS,
    **members.HANDLERS,
    **decision_effects.HANDLERS,
    **failover.HANDLERS,
    **bids.HANDLERS,
    **clocks.HANDLERS,
}


def reduce(job: Job, event: Event) -> Job:
    """The job after the event."""
    if job.array is not None:
        after = reduce_array(job, job.array, event)
        return replace(job, late=job.late + 1) if after is None else after
    handler = _HANDLERS.get(type(event))
    after = None if handler is None else handler(bring_later(job), event)
    if after is None:
        return replace(job, late=job.late + 1)
    return leave_later(settle(after, event.at))
