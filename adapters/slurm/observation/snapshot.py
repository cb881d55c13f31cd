"""A snapshot of Slurm: what squeue and the accounting said at one look, and each launch's view of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.handles import GroupHandle, Handle
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
"""Where a run of a job has come to its end."""


@dataclass(frozen=True)
class AccountingSnapshot:
    """What the accounting has said. `kept`: the site has one. `answered`: nothing of it is missing.

    `unstarted` are jobs whose present run had no program in it.
    """

    runs: Mapping[str, list[AccountingRecord]] = field(default_factory=dict)
    kept: bool = True
    answered: bool = True
    unstarted: Collection[str] = ()


@dataclass(frozen=True)
class QueueSnapshot:
    """What squeue has said, and when it was asked (this machine's time); the accounting's part comes later."""

    queue: Lookup
    asked: float
    accounts: AccountingSnapshot = field(default_factory=AccountingSnapshot)

    def record(self, handle: Handle | GroupHandle) -> QueueRecord | None:
        """The record of the launch; None where there is none, or its number is another's."""
        found = self.queue.find(handle.native, handle.index)
        return None if found is None or is_another(handle, found.comment) else found

    def is_unclear(self, handle: Handle | GroupHandle) -> bool:
        """Whether the accounting has to tell."""
        record = self.record(handle)
        return record is None or record.restarts > handle.run or self.is_suspect(handle)

    def is_suspect(self, handle: Handle | GroupHandle) -> bool:
        """Whether it shows as failed although it may have run nothing."""
        record = self.record(handle)
        return record is not None and record.restarts == handle.run and may_be_unstarted(record, handle.run)

    def names(self, handle: Handle | GroupHandle) -> Collection[str]:
        """What the accounting is asked for."""
        if handle.index is None or self.record(handle) is not None:
            return {handle.name}
        # An array that was ended before its elements were told apart is one job.
        return {handle.name, str(handle.native)}

    def view(self, handle: Handle | GroupHandle, last: NativeView | None) -> NativeView | None:
        """What is known of the launch, whose view was `last`; None where neither squeue nor the accounting knows it."""
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

    def is_taken(self, handle: Handle | GroupHandle) -> bool:
        """Whether its number is another's, so that Slurm does not have it any more, whatever is written of it."""
        found = self.queue.find(handle.native, handle.index)
        return found is not None and is_another(handle, found.comment)

    def _view_array(self, handle: Handle | GroupHandle) -> NativeView | None:
        whole = self.queue.find(handle.native)
        runs = list_own(handle, self.accounts.runs.get(str(handle.native), ()))
        return view_ended_array(None if whole and is_another(handle, whole.comment) else whole, runs, self.asked)


def take_view(last: NativeView | None, view: NativeView, heard: float) -> NativeView:
    """A view that was heard now; of an end, when that was heard first."""
    was_over = last is not None and last.outcome.phase in OVER
    first = last.heard if last is not None and was_over and view.outcome.phase in OVER else 0.0
    return replace(view, heard=first or heard)
