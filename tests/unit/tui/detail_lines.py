"""What the detail pane tells of a job, as lines of text."""

from __future__ import annotations

from tests.unit.tui.fake_source import NOW

from overspan.tui.detail.answers import JobAnswers
from overspan.tui.detail.layout import lay_out
from overspan.tui.detail.sections import make_sections


def write(answers: JobAnswers, width: int = 80) -> list[str]:
    """What the sections tell, at a width."""
    blocks = [block for section in make_sections(answers, NOW) for block in section.blocks]
    return ["".join(piece.text for piece in line).rstrip() for block in blocks for line in lay_out(block, width)]
