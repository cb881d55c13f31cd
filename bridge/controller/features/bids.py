"""What clusters say of bids, as changes of the job: who comes first, who refuses, who loses what it had."""

from __future__ import annotations

from overspan.adapters.contract import Accepted, Refusal, Report
from overspan.bridge.controller.core.unit_of_work import UnitOfWork
from overspan.bridge.lifecycle.bids import find_bid, note_bid
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.job import Bid
from overspan.bridge.store.records import OutboxRow


def bid_of(draft: UnitOfWork, row: OutboxRow) -> Bid | None:
    """The bid that a submission is for; None for the launch itself, and for a bid that has ended."""
    return next((bid for bid in draft.job.bids if bid.launch == row.payload["launch"]), None)


def answer_bid(draft: UnitOfWork, bid: Bid, row: OutboxRow, answer: Accepted | Refusal, now: float) -> None:
    """The answer to the submission of a bid. A final refusal takes its cluster out of the race."""
    if isinstance(answer, Accepted):
        draft.done.append(row.token)
        draft.job = note_bid(draft.job, bid.cluster, handle=answer.handle, native_id=answer.native_id, cursor="")
    elif answer.transient:
        draft.job = note_bid(draft.job, bid.cluster, reason=answer.waiting_reason)
    else:
        draft.done.append(row.token)
        draft.advance(events.Withdraw(now, bid.cluster, answer.text, refused=True))


def follow_bid(draft: UnitOfWork, cluster: str, report: Report, now: float) -> bool:
    """Heed the news of a bid; True where the job goes on with it, so that they are the launch's news.

    That is so when it is granted, and when somebody ends it on its cluster: who cancels a job there wants it ended.
    """
    bid = find_bid(draft.job, cluster)
    if bid is None or bid.handle != report.handle:
        return False
    for event in report.events:
        if isinstance(event, events.Granted) or _is_cancel(event):
            draft.promote(bid, now)
            return draft.job.launch == bid.launch
        if isinstance(event, events.LaunchLost):
            draft.advance(events.Withdraw(now, cluster, event.detail or "its launch was lost"))
            return False
        if isinstance(event, events.Queued):
            draft.job = note_bid(draft.job, cluster, reason=event.reason)
    if report.gone:
        draft.advance(events.Withdraw(now, cluster, "the cluster no longer knows the launch"))
    else:
        draft.job = note_bid(
            draft.job, cluster, cursor=report.cursor, **({"native_id": report.native_id} if report.native_id else {})
        )
    return False


def _is_cancel(event: object) -> bool:
    return isinstance(event, events.LaunchLost) and event.cause == Cause.CANCEL.value
