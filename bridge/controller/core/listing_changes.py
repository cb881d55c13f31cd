"""Which jobs' rows in the listings changed since when, for clients that hold a queue and want what is new."""

from __future__ import annotations

from collections import OrderedDict

from overspan.bridge.controller.core.wakeups import Wakeup

REMEMBERED = 50_000
"""Jobs whose last change is remembered; who is behind them all has to read the whole queue."""


class ListingChanges:
    """The last changed jobs in the order of their changes. A removed job is one that changed."""

    def __init__(self) -> None:
        self.revision = 0
        """Grows with every change that the listings show."""
        self.wakeup = Wakeup()
        # An OrderedDict: the first key of a dict is found only behind all that were taken out before it.
        self._revisions: OrderedDict[int, int] = OrderedDict()
        self._forgotten = 0
        """The newest revision that is not remembered any more."""

    def note(self, job_id: int) -> None:
        """The job's rows are new, others or gone."""
        self.revision += 1
        self._revisions[job_id] = self.revision
        self._revisions.move_to_end(job_id)
        if len(self._revisions) > REMEMBERED:
            _, self._forgotten = self._revisions.popitem(last=False)
        self.wakeup.wake()

    def list_since(self, revision: int) -> list[int] | None:
        """The jobs that changed after a revision, the newest change first; None where that is not known."""
        if not self._forgotten <= revision <= self.revision:
            return None
        found = []
        for job_id, changed in reversed(self._revisions.items()):
            if changed <= revision:
                break
            found.append(job_id)
        return found
