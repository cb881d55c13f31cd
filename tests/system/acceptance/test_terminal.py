"""Listings on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.shared_daemon
NAME = "x\n  99  local forged\x1b[2J"


def on_terminal(span: Any, *words: str) -> str:
    """What a terminal gets from a command."""
    parent, child = pty.openpty()
    command = [str(Path(sys.executable).with_name("span")), *words]
    environment = {**span.environment, "TERM": "dumb"}
    done = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environment, cwd=span.folder)
    os.close(child)
    data = b""
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        data += part
    os.close(parent)
    assert done.wait(60) == 0
    return data.decode().replace("\r\n", "\n")


def test_names_and_comments_cannot_forge_lines(span: Any) -> None:
    job = span.run("sbatch", "-H", "--parsable", "-J", NAME, "--comment", NAME, "--wrap", "true").stdout.strip()
    for words in (
        ("squeue", "-o", "%i %j %k"),
        ("sacct", "-X", "-P", "-o", "JobID,JobName,Comment", "-j", job),
        ("scontrol", "show", "job", job),
        ("show", job),
        ("timeline", job),
    ):
        shown = on_terminal(span, *words)
        assert "\x1b" not in shown and "\n  99" not in shown, words
    assert "x?  99  local forged?[2J" in on_terminal(span, "squeue", "-o", "%i %j %k")
    # A pipe has the bytes, as with Slurm.
    assert NAME in span.run("squeue", "-o", "%i %j %k").stdout
    span.run("scancel", job)


def test_sinfo_says_what_the_machine_has_and_what_is_in_use(span: Any) -> None:
    refused = span.run("sbatch", "-c", "100000", "--wrap", "true", check=False)
    header, line = on_terminal(span, "sinfo").splitlines()
    found = dict(zip(header.split(), line.split(), strict=True))
    cpus = found["CPUS(A/T)"].partition("/")[2]
    assert f"has {cpus}\n" in refused.stderr and found["MEMORY(A/T)"].startswith("0/")
