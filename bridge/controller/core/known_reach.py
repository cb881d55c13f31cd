"""What trials have found out about the ways between clusters, kept by the user who made them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Sequence

from overspan.bridge.controller.core.repository import Repository
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.reach import ReachFinding, ReachSide

log = logging.getLogger(__name__)

_KEY = "reach"
KEPT_SECONDS = 7 * 86400.0
"""For how long a finding counts: networks change."""
MOST = 2000
"""Findings that are kept of all users; the oldest go."""


class KnownReach:
    """The newest finding for each port of each way between two sides."""

    def __init__(self, repository: Repository, clock: Callable[[], float]) -> None:
        self._repository = repository
        self._clock = clock
        self._found: dict[str, list[ReachFinding]] = {}

    async def load(self) -> None:
        """Read what is kept; what cannot be read is as if it had never been found. Raises StoreFailed."""
        text = await self._repository.meta(_KEY)
        try:
            document = json.loads(text) if text else {}
            self._found = {user: [decode(ReachFinding, each) for each in rows] for user, rows in document.items()}
        except (ValueError, TypeError, AttributeError) as error:
            log.warning("what is known of the ways between clusters cannot be read: %s", error)

    def list_findings(self, user: str) -> Sequence[ReachFinding]:
        """What is known, by the trials of a user: no group is refused by the findings of another user."""
        since = self._clock() - KEPT_SECONDS
        return tuple(each for each in self._found.get(user, ()) if each.at > since)

    async def keep(self, user: str, findings: Sequence[ReachFinding]) -> None:
        """Put findings in the place of those about the same ways and ports. Raises StoreFailed."""
        about = {_key(each) for each in findings}
        kept = [each for each in self.list_findings(user) if _key(each) not in about]
        await self._write({**self._found, user: [*kept, *findings]})

    async def forget(self, user: str, sides: Collection[ReachSide]) -> None:
        """Drop what is known of the ways between these sides: they are tried anew. Raises StoreFailed."""
        known = self.list_findings(user)
        kept = [each for each in known if not {each.source, each.target} <= set(sides)]
        if len(kept) < len(known):
            await self._write({**self._found, user: kept})

    async def _write(self, found: dict[str, list[ReachFinding]]) -> None:
        oldest = sorted(each.at for rows in found.values() for each in rows)[:-MOST]
        since = oldest[-1] if oldest else float("-inf")
        kept = {user: [each for each in rows if each.at > since] for user, rows in found.items()}
        document = {user: [encode(each) for each in rows] for user, rows in kept.items() if rows}
        await self._repository.set_meta(_KEY, json.dumps(document, separators=(",", ":")))
        self._found = kept


def _key(finding: ReachFinding) -> tuple[ReachSide, ReachSide, int]:
    return finding.source, finding.target, finding.port
