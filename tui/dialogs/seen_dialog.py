"""A dialog whose Yes counts only if the user had seen the dialog when the key was pressed."""

from __future__ import annotations

import time
from math import inf
from typing import TypeVar

from textual.screen import ModalScreen

T = TypeVar("T")


class SeenDialog(ModalScreen[T]):
    """Notes when it has been painted. What was typed before, in one piece with the key that opened it, is no answer."""

    _seen_at = inf

    def note_painted(self) -> None:
        """Call it once all of the dialog is there; it is on the screen after that."""
        self.call_after_refresh(self._note_seen)

    def _note_seen(self) -> None:
        self._seen_at = time.monotonic()

    @property
    def _seen(self) -> bool:
        return self._seen_at < inf

    @property
    def was_answered(self) -> bool:
        """Whether the key or click that is being handled was given when the dialog was visible."""
        return self._seen and getattr(self.app, "acted_at", inf) >= self._seen_at
