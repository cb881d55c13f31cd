"""Transcripts of commands as text that people read: `$ COMMAND`, its output, then what was not plain success.

    $ squeue -j abc
    ! squeue: error: Invalid job id: abc
    = 1

A line with `! ` is of stderr, `= ` gives an exit code that is not 0, `\\` ends an output without a newline.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Transcript(NamedTuple):
    """One command and its answer."""

    argv: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str


def write_transcripts(path: Path, transcripts: Iterable[Transcript]) -> None:
    """Write a file of transcripts."""
    path.write_text("".join(_block(transcript) for transcript in transcripts), encoding="utf-8")


def read_transcripts(path: Path) -> list[Transcript]:
    """Read what `write_transcripts` wrote."""
    found: list[Transcript] = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.startswith("$ "):
            found.append(Transcript(tuple(shlex.split(line[2:])), 0, "", ""))
        elif found and line.startswith("! "):
            found[-1] = found[-1]._replace(stderr=f"{found[-1].stderr}{line[2:]}\n")
        elif found and line.startswith("= "):
            found[-1] = found[-1]._replace(rc=int(line[2:]))
        elif found and line == "\\":
            found[-1] = found[-1]._replace(stdout=found[-1].stdout.removesuffix("\n"))
        elif found:
            found[-1] = found[-1]._replace(stdout=f"{found[-1].stdout}{line}\n")
    # The last newline of the file is not an empty line of the last output.
    return [*found[:-1], found[-1]._replace(stdout=found[-1].stdout.removesuffix("\n"))] if found else []


def _block(transcript: Transcript) -> str:
    text = f"$ {shlex.join(transcript.argv)}\n{transcript.stdout}"
    if transcript.stdout and not transcript.stdout.endswith("\n"):
        text += "\n\\\n"
    text += "".join(f"! {line}\n" for line in transcript.stderr.splitlines())
    return text + (f"= {transcript.rc}\n" if transcript.rc else "")
