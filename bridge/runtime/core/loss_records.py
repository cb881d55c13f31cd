"""Records of lost launches: those that were given up because their files are damaged, gone or out of reach.

ROOT/lost/N.R is the record of launch R of job N. It lies outside the run directory, which cannot be trusted any more.
The supervisor that gives a launch up writes the record; the adapter then ends its processes and reports its end.
"""

from __future__ import annotations

import errno
import json
import os
from typing import Optional

from overspan.bridge.model.records import NamedTuple

FOLDER = "lost"
PATIENCE = 5.0
"""Seconds after which a damaged or missing file counts as lost."""
LONG_PATIENCE = 60.0
"""The same where the file system itself fails, which may be temporary."""

_DAMAGE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EBADMSG,
)


class Loss(NamedTuple):
    """When a launch was given up, and why. No supervisor opens it after that."""

    at: float
    why: str


def is_damage(error: BaseException) -> bool:
    """Whether an error means a damaged file, and not a failing file system."""
    return not isinstance(error, OSError) or error.errno in _DAMAGE


def word_damage(error: BaseException) -> str:
    """What is wrong with a run's files, as a text for its user."""
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return f"{error.filename}: {reason}" if error.filename else reason
    return str(error) if isinstance(error, ValueError) and str(error) else repr(error)


def name_loss(root: str, run: str, launch: int) -> str:
    """The path of a launch's loss record, given its run directory."""
    return os.path.join(root, FOLDER, f"{os.path.basename(os.path.normpath(run))}.{launch}")


def write_loss(path: str, loss: Loss) -> None:
    """Write a loss record. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    part = f"{path}.new"
    with open(
        os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w", encoding="utf-8"
    ) as file:
        json.dump(loss._asdict(), file)
    os.replace(part, path)


def read_loss(path: str) -> Optional[Loss]:
    """Read a loss record; None where there is none, or it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        return Loss(float(document["at"]), str(document["why"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def list_losses(root: str) -> list[str]:
    """The names (N.R) of all launches with a loss record."""
    try:
        return [name for name in os.listdir(os.path.join(root, FOLDER)) if not name.endswith(".new")]
    except OSError:
        return []
