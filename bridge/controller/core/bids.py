"""Bids of a race: clusters' answers and reports, as changes of the job."""

from __future__ import annotations

from overspan.adapters.contract import Accepted, Refusal, Report
from overspan.bridge.controller.core.unit_of_work import UnitOfWork
from overspan.bridge.lifecycle.bids import find_bid, note_bid
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.job import Bid
from overspan.bridge.store.records import OutboxRow


def bid_of(unit: UnitOfWork, row: OutboxRow) -> Bid | None:
    """The bid that a submission is for; None for the launch itself, and for a bid that has ended."""
    return next((bid for bid in unit.job.bids if bid.launch == row.payload["launch"]), None)


def answer_bid(unit: UnitOfWork, bid: Bid, row: OutboxRow, answer: Accepted | Refusal, now: float) -> None:
    """The answer to the submission of a bid. A final refusal takes its cluster out of the race."""
    if isinstance(answer, Accepted):
        unit.done.append(row.token)
        unit.job = note_bid(unit.job, bid.cluster, handle=answer.handle, native_id=answer.native_id, cursor="")
    elif answer.transient:
        unit.job = note_bid(unit.job, bid.cluster, reason=answer.waiting_reason)
    else:
        unit.done.append(row.token)
        unit.advance(events.Withdraw(now, bid.cluster, answer.text, refused=True))


def follow_bid(unit: UnitOfWork, cluster: str, report: Report, now: float) -> bool:
    """Apply the report of a bid; True if the bid has become the launch, so that the report is now the launch's.

    A bid becomes the launch when it is granted, and when a user cancels it on its cluster: that cancel is for the job.
    """
    bid = find_bid(unit.job, cluster)
    if bid is None or bid.handle != report.handle:
        return False
    for event in report.events:
        if isinstance(event, events.Granted) or _is_cancel(event):
            unit.promote(bid, now)
            return unit.job.launch == bid.launch
        if isinstance(event, events.LaunchLost):
            unit.advance(events.Withdraw(now, cluster, event.detail or "its launch was lost"))
            return False
        if isinstance(event, events.Queued):
            unit.job = note_bid(unit.job, cluster, reason=event.reason)
    if report.gone:
        unit.advance(events.Withdraw(now, cluster, "the cluster no longer knows the launch"))
    else:
        unit.job = note_bid(
            unit.job, cluster, cursor=report.cursor, **({"native_id": report.native_id} if report.native_id else {})
        )
    return False


def _is_cancel(event: object) -> bool:
    return isinstance(event, events.LaunchLost) and event.cause == Cause.CANCEL.value
