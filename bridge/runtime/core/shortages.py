"""What a machine may be short of for a moment: disk, processes, memory, open files. It is no verdict on any work."""

from __future__ import annotations

import errno
import resource

EX_TEMPFAIL = 75
"""The exit status of a supervisor that could not go on for such a reason (sysexits.h)."""

_WORDS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EAGAIN: "the limit of processes is reached",
    errno.ENOMEM: "memory is short",
    errno.EMFILE: "the limit of open files is reached (ulimit -n)",
    errno.ENFILE: "the machine has no open file left",
}


def is_shortage(error: BaseException) -> bool:
    """Whether what failed may succeed as it is in a moment."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _WORDS)


def word_shortage(number: int | None) -> str:
    """What an errno says is short; empty where it says something else."""
    if number == errno.EAGAIN:
        limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        told = "has none, so pids.max of its control group" if limit == resource.RLIM_INFINITY else f"is {limit}"
        return f"{_WORDS[number]} (ulimit -u {told})"
    return "" if number is None else _WORDS.get(number, "")
