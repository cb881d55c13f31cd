"""Frames of the application as text, and the golden files that they are compared with."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.tui.fake_source import NOW
from textual.app import App

from overspan.tui.app import TopApp

GOLDEN = Path(__file__).parent / "golden"


def read_screen(app: App[int]) -> str:
    """What stands on the screen, without blanks at the ends of lines."""
    size = app.size
    strips = app.screen._compositor.render_strips(size)
    return "".join(strip.text.rstrip() + "\n" for strip in strips)


def check_frame(name: str, text: str) -> None:
    """Compare with a golden file; OVERSPAN_WRITE_GOLDEN=1 writes it."""
    path = GOLDEN / name
    if os.environ.get("OVERSPAN_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A clock that stands, in UTC."""
    monkeypatch.setattr(TopApp, "now", lambda self: NOW)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
