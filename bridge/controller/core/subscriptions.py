"""Reports of launches on a cluster for another reader than the job's own: a group across has a part there.

A cluster is asked by one loop. The subscriber says which launches it wants to hear of, and from which cursor; what the
loop hears of them is kept until the subscriber's next cursor shows that it has been stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from overspan.adapters.contract import Report
from overspan.bridge.controller.core.wakeups import Wakeup
from overspan.bridge.model.events import Event


@dataclass
class _Followed:
    """A launch: the cursor that is stored, the newest one, and what was told between them."""

    stored: str
    newest: str
    events: tuple[Event, ...] = ()
    gone: bool = False
    native_id: str = ""

    @property
    def is_news(self) -> bool:
        return bool(self.events) or self.gone or bool(self.native_id) or self.newest != self.stored


class Subscription:
    """The launches of one cluster that a subscriber follows."""

    def __init__(self) -> None:
        self._followed: dict[str, _Followed] = {}
        self.fresh = Wakeup()
        """Wakes when there is news."""

    def follow(self, cursors: Mapping[str, str]) -> bool:
        """Follow these launches and no others, from their stored cursors; whether others are asked for now."""
        before = self.list_cursors()
        self._followed = {handle: self._follow(handle, cursor) for handle, cursor in cursors.items()}
        return self.list_cursors() != before

    def _follow(self, handle: str, cursor: str) -> _Followed:
        known = self._followed.get(handle)
        if known is None or cursor not in (known.stored, known.newest):
            return _Followed(cursor, cursor)
        if cursor == known.stored and known.is_news:
            return known
        return _Followed(cursor, cursor)

    def list_cursors(self) -> dict[str, str]:
        """From where the cluster is to be asked, by handle; of one that it no longer knows it would only repeat that."""
        return {handle: followed.newest for handle, followed in self._followed.items() if not followed.gone}

    def take(self, reports: Iterable[Report], since: Mapping[str, str]) -> None:
        """Take what the cluster told since these cursors; what was told of others, or from elsewhere, is dropped."""
        for report in reports:
            followed = self._followed.get(report.handle)
            if followed is None or since.get(report.handle) != followed.newest:
                continue
            followed.events += report.events
            followed.newest = report.cursor
            followed.gone = followed.gone or report.gone
            followed.native_id = report.native_id or followed.native_id
            self.fresh.wake()

    def list_news(self) -> list[Report]:
        """What is not stored yet."""
        return [
            Report(handle, each.events, each.newest, each.gone, each.native_id)
            for handle, each in self._followed.items()
            if each.is_news
        ]
