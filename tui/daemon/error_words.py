"""An error in words: what is wrong, and what to do about it."""

from __future__ import annotations

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.errors import OverspanError


def word_error(message: str, *more: str) -> str:
    """An error with its remedy, or an answer with its notes, in one line."""
    return "; ".join(part.strip() for part in (message, *more) if part.strip())


def tell_error(error: OverspanError) -> str:
    """The error with its remedy, fit for a terminal."""
    return clean_text(word_error(error.message, error.remedy))
