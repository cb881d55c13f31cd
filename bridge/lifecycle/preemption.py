"""Reducer for preemption: the job goes back into the queue, or ends as PREEMPTED."""

from __future__ import annotations

from typing import Any, Callable, Optional

from overspan.bridge.model import events
from overspan.bridge.model.causes import CONSEQUENCES, Cause
from overspan.bridge.model.job import Ending, Job
from overspan.bridge.model.records import replace
from overspan.bridge.model.states import State


def _preempt(job: Job, event: events.Preempt) -> Optional[Job]:
    if job.over or job.granted_at is None or job.ending is not None:
        return None
    state, reason, _ = CONSEQUENCES[Cause.PREEMPTION]
    if event.requeue and job.spec.requeue is not False:
        # Not charged to a budget: as with a user's requeue, neither the job nor its nodes failed.
        state, reason = State.PENDING, "BeginTime"
    ending = Ending(Cause.PREEMPTION, event.at, state, reason, by=event.by, at_once=True, grace=event.grace)
    return replace(job, ending=ending)


HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {events.Preempt: _preempt}
"""Each gives the job after the event; None where the event is late or makes no sense."""
