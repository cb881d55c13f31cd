"""Frames of the application as text, and their golden files."""

from __future__ import annotations

import os
import re
from pathlib import Path

from textual.widget import Widget

GOLDEN = Path(__file__).parent / "golden"


def read_frame(widget: Widget) -> str:
    """What a widget, and all that lies over it, shows on the screen, without blanks at the ends of lines.

    Several empty lines are one, so that a frame does not depend on how high what stands around the widget is.
    """
    region = widget.region
    strips = widget.screen._compositor.render_strips()[region.y : region.bottom]
    lines = [strip.crop(region.x, region.right).text.rstrip() for strip in strips]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines) + "\n")


def check_frame(name: str, text: str) -> None:
    """Compare with a golden file; OVERSPAN_WRITE_GOLDEN=1 writes it."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("OVERSPAN_WRITE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
