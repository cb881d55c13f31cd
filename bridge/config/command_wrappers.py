"""Wrapper scripts: executables with the names of Slurm's commands that call `span VERB`. Standard library only."""

from __future__ import annotations

import os
import shlex
import sys

from overspan.bridge.model.errors import Conflict

VERBS = (
    *("sbatch", "srun", "salloc", "sattach", "squeue", "scancel", "scontrol"),
    *("sacct", "sacctmgr", "sinfo", "sprio", "sshare", "sstat", "sdiag"),
)
"""The commands that `span` has under Slurm's names."""
MARK = b"# Written by Overspan: "


def wrappers_folder(state: str) -> str:
    """The folder of a state directory that jobs have on PATH."""
    return os.path.join(state, "shims")


def ensure_wrappers(state: str) -> str:
    """Write this installation's wrappers to the state directory unless they are there already; give their folder.

    Cheap when nothing has changed: one small file is read. Raises as write_wrappers does.
    """
    folder = wrappers_folder(state)
    if _read(os.path.join(folder, VERBS[-1])) != make_wrapper(VERBS[-1]):
        write_wrappers(folder)
    return folder


def write_wrappers(folder: str) -> None:
    """Write a wrapper for every command, and the folder.

    Each appears whole, so that a running job never finds half of one. Raises Conflict, before anything is written,
    where a file of that name is not ours: Slurm's own commands are never replaced. Raises OSError.
    """
    os.makedirs(folder, mode=0o755, exist_ok=True)
    for verb in VERBS:
        found = _read(os.path.join(folder, verb))
        if found is not None and MARK not in found:
            raise Conflict(f"{folder} has a {verb} that is not Overspan's", remedy="name another folder with --folder")
    for verb in VERBS:
        _write(os.path.join(folder, verb), make_wrapper(verb))


def make_wrapper(verb: str) -> bytes:
    """The text of a wrapper. The shell execs the interpreter at once, so that it costs only a millisecond."""
    words = " ".join(shlex.quote(word) for word in find_span())
    return f'#!/bin/sh\n{MARK.decode()}span {verb}.\nexec {words} {verb} "$@"\n'.encode()


def find_span() -> tuple[str, ...]:
    """The words that start `span` of this installation, by absolute paths."""
    script = os.path.join(os.path.dirname(sys.executable), "span")
    return (script,) if os.access(script, os.X_OK) else (sys.executable, "-m", "overspan.bridge.cli")


def _read(path: str) -> bytes | None:
    """The beginning of a file; None where there is none."""
    try:
        with open(path, "rb") as stream:
            return stream.read(4096)
    except FileNotFoundError:
        return None
    except OSError:
        # A folder, or a file that this user may not read.
        return b""


def _write(path: str, text: bytes) -> None:
    fresh = f"{path}.{os.getpid()}"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)
    os.replace(fresh, path)
