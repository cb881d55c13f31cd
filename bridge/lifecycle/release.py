"""What a supervisor decides by itself about a launch of the daemon's: its end, once nobody wants the launch. Pure."""

from __future__ import annotations

from typing import Optional

from overspan.bridge.lifecycle.decision import Decisions
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.job import Job


def decide_release(job: Job, now: float) -> Decisions:
    """TERM and, after the grace period, KILL for what runs of a released launch; nothing before that."""
    if job.ending is None:
        return Decisions((), None)
    found: list[events.Decision] = []
    wake_at: Optional[float] = None
    for task in job.tasks:
        attempt = task.current
        if attempt is None or not attempt.live:
            continue
        if attempt.stop is None:
            kill_at = now + job.spec_of(task.name).grace_period
            found.append(events.Terminate(now, task.name, attempt.number, Cause.CANCEL.value, kill_at))
        elif attempt.stop.killed_at is None and attempt.stop.kill_at <= now:
            found.append(events.Kill(now, task.name, attempt.number))
        elif attempt.stop.killed_at is None:
            wake_at = attempt.stop.kill_at if wake_at is None else min(wake_at, attempt.stop.kill_at)
    return Decisions(tuple(found), wake_at)
