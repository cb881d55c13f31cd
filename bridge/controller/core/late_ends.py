"""The grace period of attempts whose TERM was told late, because their cluster had not answered for a while.

An attempt's KILL is due a grace period after the decision to end it. Where the cluster hears of that decision only
later, its grace period begins then: the TERM names the later time, and the KILL is kept back until it. When an earlier
daemon told a TERM is not known: where it is still owed, this daemon's first call counts.
"""

from __future__ import annotations

from overspan.bridge.controller.core.outbox import Outbox
from overspan.bridge.controller.core.unit_of_work import is_end_of
from overspan.bridge.model import events
from overspan.bridge.model.events import Event, event_from_document
from overspan.bridge.store.records import OutboxRow

LATE_SECONDS = 5.0
"""A TERM that is told later than this after its decision is late."""
HELD = "the grace period is not over"


class LateEnds:
    """When this daemon has told the cluster of each TERM that is owed."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._told: dict[str, float] = {}

    def renew(self, row: OutboxRow, event: Event, now: float) -> Event:
        """A TERM that is told late, with the end of a whole grace period; any other order as it is."""
        if isinstance(event, events.Terminate):
            return event._replace(kill_at=_find_end(event, self._told.get(row.token, now)))
        return event

    def note(self, row: OutboxRow, now: float) -> None:
        """Note that an order was delivered."""
        if isinstance(_read(row), events.Terminate) and row.token not in self._told:
            self._told = {token: at for token, at in self._told.items() if self._outbox.owes(token)}
            self._told[row.token] = now

    def find_time(self, row: OutboxRow, event: Event, now: float) -> float:
        """When an order may be given: `now`, or for a KILL the end of a grace period that began late."""
        if not isinstance(event, events.Kill):
            return now
        for other in self._outbox.of_job(row.job_id):
            if other.kind == row.kind and is_end_of(other, row):
                decided = _read(other)
                if isinstance(decided, events.Terminate):
                    end = _find_end(decided, self._told.get(other.token, now))
                    # Never longer than a grace period, also where the clock was set back.
                    return max(now, min(end, now + decided.kill_at - decided.at)) if end > decided.kill_at else now
        return now


def _find_end(event: events.Terminate, told: float) -> float:
    """When the grace period of an attempt is over whose TERM was told at that time."""
    late = told - event.at
    return event.kill_at + late if late > LATE_SECONDS else event.kill_at


def _read(row: OutboxRow) -> Event:
    return event_from_document(dict(row.payload["event"]))
