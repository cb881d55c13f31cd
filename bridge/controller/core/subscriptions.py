"""Subscriptions to a cluster's reports on launches that are parts of groups across, beside those on jobs of its own.

A cluster is asked by one loop. The subscriber says which launches it wants to hear of, and from which stored cursor; a
launch that has news is not asked about again before the subscriber says that. A cluster takes the cursors of a question
for stored, and tidies away what they have behind them, so no other may be asked from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from overspan.adapters.contract import Report
from overspan.bridge.controller.core.wakeups import Wakeup


class Subscription:
    """The launches of one cluster that a subscriber follows."""

    def __init__(self) -> None:
        self._stored: dict[str, str] = {}
        self._news: dict[str, Report] = {}
        self.fresh = Wakeup()
        """Wakes when there is news."""

    def follow(self, cursors: Mapping[str, str]) -> bool:
        """Follow these launches and no others, from their stored cursors; whether others are asked for now."""
        before, self._news, self._stored = self.list_cursors(), {}, dict(cursors)
        return self._stored != before

    def list_cursors(self) -> dict[str, str]:
        """From where the cluster is to be asked, by handle."""
        return {handle: cursor for handle, cursor in self._stored.items() if handle not in self._news}

    def take(self, reports: Iterable[Report], since: Mapping[str, str]) -> None:
        """Take what the cluster told since these cursors; what was told of others, or from elsewhere, is dropped."""
        asked = self.list_cursors()
        for report in reports:
            if report.handle in asked and since.get(report.handle) == asked[report.handle]:
                self._news[report.handle] = report
                self.fresh.wake()

    def list_news(self) -> list[Report]:
        """What is not stored yet."""
        return list(self._news.values())
