"""Notes that stand for every job of a kind, which a user is told once a day."""

from __future__ import annotations

from collections.abc import Collection, Sequence

AGAIN_SECONDS = 86400.0
MOST = 10_000
"""Notes that are remembered; the oldest are told again."""


class StandingNotes:
    """What was told whom, in memory alone: a new daemon tells it again."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], float] = {}

    def choose(self, user: str, notes: Sequence[str], standing: Collection[str], now: float) -> tuple[str, ...]:
        """Those of `notes` that the user is told now (epoch seconds); all but what is standing and was told."""
        chosen = []
        for note in notes:
            key = user, note
            if note in standing:
                if now - self._told.get(key, float("-inf")) < AGAIN_SECONDS:
                    continue
                self._told.pop(key, None)
                self._told[key] = now
            chosen.append(note)
        while len(self._told) > MOST:
            del self._told[next(iter(self._told))]
        return tuple(chosen)
