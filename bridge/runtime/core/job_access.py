"""What commands inside a job need to reach a daemon elsewhere, as its supervisor leaves it in the run directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from overspan.bridge.runtime.core.environment import SHIMS

ACCESS = "SPAN_JOB_ACCESS"
"""The variable that names the file which says where the daemon is; the file has the job's token, so it is 0600."""


def give_access(folder: str, access: str, program: Sequence[str]) -> dict[str, str]:
    """Write the access file and `span` into a run directory, and give the variables that name them.

    `program` are the words that start this application. A disk that is full costs the work its way to the daemon alone.
    """
    path, commands = os.path.join(folder, "access.json"), os.path.join(folder, "commands")
    words = " ".join("'" + word.replace("'", "'\\''") + "'" for word in (*program, "command"))
    try:
        os.makedirs(commands, mode=0o700, exist_ok=True)
        _write(path, access.encode(), 0o600)
        _write(os.path.join(commands, "span"), f'#!/bin/sh\nexec {words} "$@"\n'.encode(), 0o700)
    except OSError as error:
        print(f"span: commands inside the job do not reach the daemon: {error}", file=sys.stderr)
        return {}
    return {ACCESS: path, SHIMS: commands}


def _write(path: str, data: bytes, mode: int) -> None:
    fresh = f"{path}.{os.urandom(8).hex()}"
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    os.replace(fresh, path)
