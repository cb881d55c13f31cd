"""Lines of a pod's log with their timestamps: which of them are new. Pure.

Facts: the log API writes RFC 3339 times in nanoseconds before each line, `sinceTime` counts whole seconds, and a log
that its node has rotated begins later than it was read to (kubernetes#115701, #126564). A runtime copies output and
error each by itself: a line may stand behind one of the other stream with a later time (containerd, cri/io).
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple

LOST = b"[overspan: lines are missing here, the node rotated its log]\n"


_DISORDER = timedelta(seconds=1)
"""How much later a line may be written than its time says."""
CUT = b"[overspan: what was printed after this is not known: the node removed it before it was read]\n"


class LogPosition(NamedTuple):
    """The last line that was taken: its time, and how many lines of that time were."""

    time: str = ""
    lines: int = 0


class NewLines(NamedTuple):
    """What is new, without the times, and the mark behind it.

    `times`: (epoch seconds, bytes up to there) of the last line of each second.
    """

    data: bytes
    position: LogPosition
    times: tuple[tuple[float, int], ...] = ()


def take_new(data: bytes, position: LogPosition, *, final: bool) -> NewLines:
    """The lines behind a position. A partial last line is left for the next call, unless `final`."""
    lines = data.split(b"\n")
    rest = lines.pop()
    parted = [_part(line + b"\n") for line in lines]
    if rest and final:
        parted.append(_part(rest))
    start, lost = _find_start(parted, position)
    found = parted[start:]
    if not found:
        return NewLines(b"", position)
    time = found[-1][0]
    same = sum(1 for known, _ in found if known == time)
    lines_of_time = same + (position.lines if position.time == time and not lost else 0)
    head = LOST if lost else b""
    times = _list_times(found, len(head))
    return NewLines(head + b"".join(text for _, text in found), LogPosition(time, lines_of_time), times)


def _list_times(lines: list[tuple[str, bytes]], size: int) -> tuple[tuple[float, int], ...]:
    """Up to where the lines of each second go, with the time of the last of them."""
    found: list[tuple[float, int]] = []
    last = ""
    for time, text in lines:
        size += len(text)
        at = _epoch(time)
        if at is None:
            continue
        if found and time[:19] == last:
            found.pop()
        found.append((at, size))
        last = time[:19]
    return tuple(found)


def _epoch(time: str) -> float | None:
    """RFC 3339 with nanoseconds, as seconds since 1970; None for a text that is none."""
    try:
        whole = datetime.fromisoformat(time[:19] + _zone_of(time))
        return whole.timestamp() + float(re.match(r"\.[0-9]+|", time[19:])[0] or 0)  # type: ignore[index]
    except ValueError:
        return None


def since_time(position: LogPosition) -> str:
    """The `sinceTime` that repeats the last line and shows what may come behind it with an earlier time.

    The start of the second before; empty for the beginning.
    """
    if not position.time:
        return ""
    return (datetime.fromisoformat(position.time[:19]) - _DISORDER).isoformat() + _zone_of(position.time)


def _zone_of(time: str) -> str:
    return "Z" if time.endswith("Z") else time[-6:]


def _part(line: bytes) -> tuple[str, bytes]:
    time, _, text = line.partition(b" ")
    return time.decode("ascii", "replace"), text


def _find_start(lines: list[tuple[str, bytes]], position: LogPosition) -> tuple[int, bool]:
    """Where the new lines begin, and whether some before them were lost."""
    if not position.time:
        return 0, False
    seen = 0
    for place, (time, _) in enumerate(lines):
        if time == position.time:
            seen += 1
            if seen == position.lines:
                return place + 1, False
    return (0, True) if lines and not seen else (len(lines), False)
