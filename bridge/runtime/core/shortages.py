"""Resource shortages of this machine (disk, processes, memory, open files): temporary, and no failure of the job."""

from __future__ import annotations

import errno
import resource

EX_TEMPFAIL = 75
"""The exit status of a supervisor that gave up because of a shortage (sysexits.h)."""

_WORDS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EAGAIN: "the limit of processes is reached",
    errno.ENOMEM: "memory is short",
    errno.EMFILE: "the limit of open files is reached (ulimit -n)",
    errno.ENFILE: "the machine has no open file left",
}


def is_shortage(error: BaseException) -> bool:
    """Whether an error is a shortage: the same call may succeed in a moment."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _WORDS)


def word_shortage(number: int | None) -> str:
    """The resource that an errno says is short, as a text; empty for any other errno."""
    if number == errno.EAGAIN:
        limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        told = "has none, so pids.max of its control group" if limit == resource.RLIM_INFINITY else f"is {limit}"
        return f"{_WORDS[number]} (ulimit -u {told})"
    return "" if number is None else _WORDS.get(number, "")
