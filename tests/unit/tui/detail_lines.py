"""What the detail pane tells of a job, as lines of text, and documents that it is told."""

from __future__ import annotations

from typing import Any

from tests.unit.tui.fake_source import NOW

from overspan.tui.detail.answers import JobAnswers
from overspan.tui.detail.layout import lay_out
from overspan.tui.detail.sections import make_sections


def write(answers: JobAnswers, width: int = 80) -> list[str]:
    """What the sections tell, at a width."""
    blocks = [block for section in make_sections(answers, NOW) for block in section.blocks]
    return ["".join(piece.text for piece in line).rstrip() for block in blocks for line in lay_out(block, width)]


def document(number: int = 1, state: str = "RUNNING", **more: Any) -> dict[str, Any]:
    """What `show` tells of a job of one task that has run for a minute."""
    node = {"index": 0, "node": "n1", "started_at": NOW - 60, "ended_at": None}
    attempt = {"number": 0, "state": state, "cause": None, "started_at": NOW - 60, "ended_at": None, "nodes": [node]}
    task = {"name": "main", "state": state, "nodes": 1, "cpus": 2, "time_limit": 3600, "started_at": NOW - 60}
    task |= {"ended_at": None, "attempts": [attempt], "node_list": "n1"}
    given = {"id": number, "name": "fit", "user": "ana", "cluster": "leo", "state": state, "submitted_at": NOW - 100}
    return {**given, "tasks": [task], **more}
