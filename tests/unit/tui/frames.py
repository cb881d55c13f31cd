"""Frames of the application as text, and their golden files."""

from __future__ import annotations

import os
from pathlib import Path

from textual.widget import Widget

GOLDEN = Path(__file__).parent / "golden"


def read_frame(widget: Widget) -> str:
    """What a widget, and all that lies over it, shows on the screen; blanks at the ends of lines are left out."""
    region = widget.region
    strips = widget.screen._compositor.render_strips()[region.y : region.bottom]
    lines = [strip.crop(region.x, region.right).text.rstrip() for strip in strips]
    return "\n".join(lines) + "\n"


def check_frame(name: str, text: str) -> None:
    """Compare with a golden file; OVERSPAN_WRITE_GOLDEN=1 writes it."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("OVERSPAN_WRITE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
