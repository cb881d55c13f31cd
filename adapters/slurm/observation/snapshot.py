"""A snapshot of Slurm: the answers of squeue and of the accounting to one query, and each launch's view. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.groups.handles import NativeJob
from overspan.adapters.slurm.handles import Handle
from overspan.adapters.slurm.observation.outcomes import Phase
from overspan.adapters.slurm.observation.ownership import is_another, list_own
from overspan.adapters.slurm.observation.projection import (
    NativeView,
    view_accounts,
    view_ended_array,
    view_queue,
    view_unstarted,
)
from overspan.adapters.slurm.observation.requeues import may_be_unstarted
from overspan.adapters.slurm.submission.arrays import Lookup

OVER = (Phase.ENDED, Phase.REQUEUED)
"""Phases in which a run has ended."""


@dataclass(frozen=True)
class AccountingSnapshot:
    """The accounting's answer. `kept` says that the site has accounting, `answered` that the answer is complete.

    `unstarted` are the jobs whose current run never started its program.
    """

    runs: Mapping[str, list[AccountingRecord]] = field(default_factory=dict)
    kept: bool = True
    answered: bool = True
    unstarted: Collection[str] = ()


@dataclass(frozen=True)
class QueueSnapshot:
    """squeue's answer, and when it was asked (this machine's time); the accounting's answer is added later."""

    queue: Lookup
    asked: float
    accounts: AccountingSnapshot = field(default_factory=AccountingSnapshot)

    def record(self, handle: Handle | NativeJob) -> QueueRecord | None:
        """The record of the launch; None if there is none, or if its id belongs to another job."""
        found = self.queue.find(handle.native, handle.index)
        return None if found is None or is_another(handle, found.comment) else found

    def is_unclear(self, handle: Handle | NativeJob) -> bool:
        """Whether squeue is not enough and the accounting has to be asked."""
        record = self.record(handle)
        return record is None or record.restarts > handle.run or self.is_suspect(handle)

    def is_suspect(self, handle: Handle | NativeJob) -> bool:
        """Whether the run shows as failed but may never have started its program."""
        record = self.record(handle)
        return record is not None and record.restarts == handle.run and may_be_unstarted(record, handle.run)

    def names(self, handle: Handle | NativeJob) -> Collection[str]:
        """The job ids that the accounting is asked for."""
        if handle.index is None or self.record(handle) is not None:
            return {handle.name}
        # An array that ended before Slurm split it into elements is one job in the accounting.
        return {handle.name, str(handle.native)}

    def view(self, handle: Handle | NativeJob, last: NativeView | None) -> NativeView | None:
        """The view of the launch after `last`; None if neither squeue nor the accounting knows it."""
        view: NativeView | None
        record, own = self.record(handle), list_own(handle, self.accounts.runs.get(handle.name, ()))
        if record is not None:
            view = view_queue(record, handle.run, own, self.asked)
            return view_unstarted(view) if handle.name in self.accounts.unstarted else view
        view = view_accounts(own, handle.run, self.asked)
        waited = last is not None and last.outcome.phase is Phase.QUEUED
        if view is None and handle.index is not None and self.accounts.answered and (self.accounts.kept or waited):
            return self._view_array(handle)
        return None if view is None or (self.is_taken(handle) and view.outcome.phase not in OVER) else view

    def is_taken(self, handle: Handle | NativeJob) -> bool:
        """Whether its id belongs to another job now: then Slurm has dropped this one, even if a record is left."""
        found = self.queue.find(handle.native, handle.index)
        return found is not None and is_another(handle, found.comment)

    def _view_array(self, handle: Handle | NativeJob) -> NativeView | None:
        whole = self.queue.find(handle.native)
        runs = list_own(handle, self.accounts.runs.get(str(handle.native), ()))
        return view_ended_array(None if whole and is_another(handle, whole.comment) else whole, runs, self.asked)


def take_view(last: NativeView | None, view: NativeView, answered_at: float) -> NativeView:
    """The view with the time of its answer; for an end, of the first answer that showed it."""
    was_over = last is not None and last.outcome.phase in OVER
    first = last.answered_at if last is not None and was_over and view.outcome.phase in OVER else 0.0
    return replace(view, answered_at=first or answered_at)
