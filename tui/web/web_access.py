"""Access: an invitation opens one browser, once; from then on a secret in its cookie stands for it.

An invitation is in the link that the terminal shows, behind `#`, where no proxy, log or referrer sees it. A browser's
history may keep it: it is worth nothing once it was used. Nothing here is stored: all ends with the server.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

SESSIONS = 32
"""Browsers that may be known at once; the oldest is forgotten for another."""
TRIES = 5
"""Wrong invitations in a row from one address before they are counted slowly."""
REFILL_SECONDS = 10.0
"""Until another wrong invitation may be tried from there."""
PEERS = 1000
"""Addresses whose tries are remembered."""
Clock = Callable[[], float]


class Entry(NamedTuple):
    """What became of an invitation: the session's secret, or empty, and the seconds to wait before the next try."""

    session: str
    wait: float = 0.0


class WebAccess:
    """The invitation in force, and the sessions."""

    def __init__(self, clock: Clock = time.monotonic, make_secret: Callable[[], str] = secrets.token_urlsafe) -> None:
        self._clock = clock
        self._make_secret = make_secret
        self.invitation = make_secret()
        self._sessions: dict[str, None] = {}
        """Hashes of the secrets, the oldest first: a copy of this memory opens nothing."""
        self._tries: dict[str, tuple[float, float]] = {}
        """By address: how many tries it has left, and when that was so."""

    def enter(self, peer: str, invitation: str) -> Entry:
        """Make a session for an invitation, which is used up then; a new one takes its place."""
        now = self._clock()
        left = self._count_left(peer, now)
        if left < 1:
            return Entry("", (1 - left) * REFILL_SECONDS)
        if not hmac.compare_digest(invitation.encode(), self.invitation.encode()):
            self._tries.pop(peer, None)
            self._tries[peer] = (left - 1, now)
            if len(self._tries) > PEERS:
                self._tries.pop(next(iter(self._tries)))
            return Entry("")
        self._tries.pop(peer, None)
        self.invitation = self._make_secret()
        session = self._make_secret()
        self._sessions[_digest(session)] = None
        if len(self._sessions) > SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        return Entry(session)

    def knows(self, session: str) -> bool:
        """Whether a cookie's secret is that of a session."""
        return _digest(session) in self._sessions

    def _count_left(self, peer: str, now: float) -> float:
        left, at = self._tries.get(peer, (float(TRIES), now))
        return min(float(TRIES), left + (now - at) / REFILL_SECONDS)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
