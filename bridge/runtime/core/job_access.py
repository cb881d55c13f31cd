"""What commands inside a job need to reach a daemon elsewhere, as its supervisor leaves it in the run directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from overspan.bridge.runtime.core.environment import SHIMS

ACCESS = "SPAN_JOB_ACCESS"
"""The variable that names the file which says where the daemon is; the file has the job's token, so it is 0600."""
ACCESS_FILE, COMMANDS = "access.json", "commands"
"""That file, and the folder of `span`, in a run directory."""


def give_access(folder: str, access: str, program: Sequence[str]) -> dict[str, str]:
    """Write the access file and `span` into a run directory, and give the variables that name them.

    `program` are the words that start this application. A disk that is full costs the work its way to the daemon alone.
    """
    path, commands = os.path.join(folder, ACCESS_FILE), os.path.join(folder, COMMANDS)
    try:
        os.makedirs(commands, mode=0o700, exist_ok=True)
        _write(path, access.encode(), 0o600)
        _write(os.path.join(commands, "span"), render_command(program).encode(), 0o700)
    except OSError as error:
        print(f"span: commands inside the job do not reach the daemon: {error}", file=sys.stderr)
        return {}
    return {ACCESS: path, SHIMS: commands}


def render_command(program: Sequence[str], run_dir: str = "") -> str:
    """The sh program `span` of a job. `run_dir` is where it keeps the client in a job without a supervisor."""
    words = " ".join(map(_quote, (*program, "command")))
    own = f"OVERSPAN_RUN_DIR={_quote(run_dir)} " if run_dir else ""
    return f'#!/bin/sh\n{own}exec {words} "$@"\n'


def _quote(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def _write(path: str, data: bytes, mode: int) -> None:
    fresh = f"{path}.{os.urandom(8).hex()}"
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    os.replace(fresh, path)
