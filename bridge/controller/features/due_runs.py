"""The due runs of a schedule, and its policy for missed ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.schedule import Missed
from overspan.bridge.store.schedule_records import ScheduleFacts

GRACE = 60.0
"""Seconds after which a run that was not made counts as missed."""
MAX_COUNTED = 10_000
"""Missed runs that are counted; a schedule of every minute misses so many in a week."""
MAX_OWED = 100
"""Missed runs that `missed: all` makes up for: the latest ones."""


class DueRuns(NamedTuple):
    """Times that have come: `late` ones were missed, `ready` ones are to be run now. `more` were not counted."""

    late: tuple[float, ...] = ()
    ready: tuple[float, ...] = ()
    more: bool = False


def split_due(times: Iterable[float], now: float) -> DueRuns:
    """Tell what is due at a time from the schedule's times after the last that was dealt with."""
    late: list[float] = []
    ready: list[float] = []
    for at in times:
        if at > now:
            break
        if at >= now - GRACE:
            ready.append(at)
        elif len(late) < MAX_COUNTED:
            late.append(at)
        else:
            # Counting on would take long; the newest of them still is the one to be made up for.
            return DueRuns(tuple(late), (), True)
    return DueRuns(tuple(late), tuple(ready))


def take_missed(facts: ScheduleFacts, due: DueRuns, now: float) -> ScheduleFacts:
    """The schedule after runs were missed: counted, told, and owed as its policy says."""
    if not due.late:
        return facts
    policy = facts.schedule.missed
    owed = facts.owed
    if policy is Missed.ALL:
        owed = (*owed, *due.late)[-MAX_OWED:]
    elif policy is Missed.ONCE:
        # A run that is due now stands for those before it.
        owed = () if due.ready else due.late[-1:]
    many = f"{len(due.late)}{' or more' if due.more else ''}"
    what = "1 run was" if many == "1" else f"{many} runs were"
    first = format_timestamp(due.late[0])
    return replace(
        facts,
        last_due=now - GRACE if due.more else due.late[-1],
        owed=owed,
        missed=facts.missed + len(due.late),
        message=f"{what} missed, the first at {first}; policy: {policy.value}",
        message_at=now,
    )


def skip(facts: ScheduleFacts, at: float, job_id: int, now: float) -> ScheduleFacts:
    """The schedule after a run was left out because a former one lives."""
    text = f"the run of {format_timestamp(at)} was left out: job {job_id} was not over"
    return replace(facts, last_due=at, skipped=facts.skipped + 1, message=text, message_at=now)


def refuse(facts: ScheduleFacts, at: float, why: str, now: float) -> ScheduleFacts:
    """The schedule after a run's submission was refused; `facts` say already that it was dealt with."""
    text = f"the run of {format_timestamp(at)} was refused: {why}"
    return replace(facts, refused=facts.refused + 1, message=text, message_at=now)


def made(facts: ScheduleFacts, job_id: int, now: float) -> ScheduleFacts:
    """The schedule with one more run."""
    return replace(facts, runs=facts.runs + 1, last_job=job_id, last_run_at=now)
