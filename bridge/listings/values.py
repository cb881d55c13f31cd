"""Values of Slurm's JSON, as its data parser v0.0.40 writes them (slurm 23.11, src/plugins/data_parser/v0.0.40)."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def number(value: float | None, infinite: bool = False) -> Document:
    """A number that may be missing or without bound."""
    if infinite:
        return {"set": False, "infinite": True, "number": 0}
    if value is None:
        return {"set": False, "infinite": False, "number": 0}
    return {"set": True, "infinite": False, "number": int(value) if value == int(value) else value}


def time_number(epoch: float | None) -> Document:
    """A point in time in whole seconds; 0 where Slurm knows none."""
    return number(int(epoch or 0))


def minutes_number(seconds: int | None) -> Document:
    """A time limit in minutes, rounded up; None is no limit."""
    return number(None if seconds is None else -(-seconds // 60), seconds is None)


def exit_status(code: int, signal: int) -> Document:
    """How a program ended."""
    import signal as signals

    name = ""
    if signal:
        try:
            name = signals.Signals(signal).name.removeprefix("SIG")
        except ValueError:
            name = "INVALID"
    status = "SIGNALED" if signal else "ERROR" if code else "SUCCESS"
    return {
        "status": [status],
        "return_code": number(code),
        "signal": {"id": number(signal or None), "name": name},
    }
