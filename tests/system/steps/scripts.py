"""Batch scripts with steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.system.conftest import Span


def script(span: Span, body: str, *directives: str, name: str = "job.sh") -> str:
    lines = ["#!/bin/bash", *(f"#SBATCH {line}" for line in directives), body]
    file = span.folder / name
    file.write_text("\n".join(lines) + "\n")
    return str(file)


def start_script(span: Span, body: str, *directives: str, lines: int, word: str = "ready") -> int:
    """Start a batch script and wait until its output has a word so often."""
    job = int(span.run("sbatch", "--parsable", "-o", "out", script(span, body, *directives)).stdout)
    out = span.folder / "out"
    span.wait_until(lambda: out.exists() and out.read_text().count(word) >= lines, 20, f"{lines} times {word}")
    # The daemon hears of a start a moment later than the program runs.
    span.until(job, "RUNNING")
    return job
