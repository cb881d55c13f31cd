"""sbatch --signal, and the signals that a job file names."""

from __future__ import annotations

import re
import signal

from overspan.bridge.model.signals import signal_number
from overspan.bridge.model.spec import SignalBefore

DEFAULT_SECONDS = 60
MAX_SECONDS = 65535
"""Slurm keeps the seconds of --signal in 16 bits."""


def parse_signal_name(value: str | int) -> str:
    """Read a signal: USR1, SIGUSR1 or a number. Gives the name without SIG. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(f"{value!r} is not a signal; write a name such as USR1, or a number")
    word = str(value).strip().upper()
    try:
        return signal.Signals(signal_number(word)).name.removeprefix("SIG")
    except ValueError:
        if re.fullmatch(r"[0-9]{1,3}", word):
            raise ValueError(f"there is no signal {word}") from None
        raise ValueError(f"{value!r} is not a signal; write a name such as USR1, or a number") from None


def parse_signal_before(value: str | int) -> SignalBefore:
    """Read --signal: [{R|B|RB}:]SIGNAL[@SECONDS], as in sbatch(1). Raises ValueError.

    R lets a reservation overlap; here it means nothing.
    """
    match = re.fullmatch(r"(?:([RB]{1,2}):)?([A-Za-z0-9+-]+)(?:@([0-9]{0,9}))?", str(value).strip(), re.IGNORECASE)
    if not match or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a signal before the time limit; write USR1@90, or B:USR1@90")
    # `USR1@` is the default too (measured on Slurm 22.05).
    seconds = int(match[3]) if match[3] else DEFAULT_SECONDS
    if seconds > MAX_SECONDS:
        raise ValueError(f"{seconds} seconds are too many; the limit is {MAX_SECONDS}")
    return SignalBefore(parse_signal_name(match[2]), seconds, "B" in (match[1] or "").upper())
