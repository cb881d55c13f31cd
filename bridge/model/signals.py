"""Signals as users write them: a number, or a name with or without SIG."""

from __future__ import annotations

import signal


def signal_number(text: str) -> int:
    """The number of a signal such as `USR1`, `sigusr1` or `10`; 0 for anything else.

    A number needs no name: Linux has real-time signals that have none.
    """
    if text.isascii() and text.isdigit():
        number = int(text) if len(text) <= 3 else 0
        return number if number < signal.NSIG else 0
    found = signal.Signals.__members__.get("SIG" + text.upper().removeprefix("SIG"))
    return 0 if found is None else int(found)


def signal_name(number: int) -> str:
    """The name of a signal, with SIG; empty where the number has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
