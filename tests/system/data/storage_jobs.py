"""What stories of jobs with storage share."""

from __future__ import annotations

import os
from pathlib import Path

from tests.system.conftest import Span

CACHED = "file_mounts: {./out: {source: s3://lab/run, mode: MOUNT_CACHED}}\n"


def left_on_node(span: Span, job: int) -> dict[str, bytes]:
    """The files of a job's storage that are still on this machine."""
    top = span.state / "clusters/local/data" / str(job)
    while True:
        try:
            found = [path for path in top.glob("*/files/**/*") if path.is_file()]
            return {str(path.relative_to(top)).partition("/files/")[2]: path.read_bytes() for path in found}
        except FileNotFoundError:
            # The mover removes it meanwhile.
            continue


def movers(span: Span) -> list[int]:
    """The data movers that run for this daemon's jobs."""
    root = os.fsencode(str(span.state))
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"data" in words and any(word.startswith(root) for word in words[words.index(b"data") :]):
                found.append(int(entry.name))
    return found
