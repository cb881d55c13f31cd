"""Tasks that wait for a file, and what squeue says of those that wait for their turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Span = Any


def wait_for(path: Path) -> str:
    """A command that waits for a file."""
    return f"until [ -e {path} ]; do sleep 0.05; done"


def list_rows(span: Span, job: int) -> list[str]:
    """The rows of squeue, with their states and reasons."""
    return sorted(str(span.run("squeue", "-h", "-j", str(job), "-o", "%i %T %r").stdout).splitlines())
