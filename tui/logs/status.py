"""The two lines around a log: what it is, and where in it one is. Pure."""

from __future__ import annotations

from typing import NamedTuple


class LogPlaceFacts(NamedTuple):
    """What the line below a log tells of."""

    size: int = 0
    share: float = 0.0
    following: bool = False
    over: bool = False
    lines_below: int = 0
    bytes_below: int = 0
    new_lines: int = 0
    search: str = ""
    trouble: str = ""
    busy: bool = False
    paused: bool = False


def format_bytes(size: int) -> str:
    """A size in the unit that suits it."""
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def count_lines(count: int, which: str = "") -> str:
    """A number of lines in words."""
    return f"{count:,} {which}line{'' if count == 1 else 's'}"


def describe_place(facts: LogPlaceFacts) -> str:
    """The line below a log."""
    words = [facts.trouble] if facts.trouble else []
    if facts.paused:
        words.append("paused")
    if facts.following:
        words.append("the end: the job has printed all" if facts.over else "following")
    else:
        words.append(f"{facts.share:.0%}")
        if facts.new_lines:
            words.append(f"+{count_lines(facts.new_lines, 'new ')}, F follows")
        if facts.bytes_below:
            words.append(f"{format_bytes(facts.bytes_below)} below")
    words.append(format_bytes(facts.size))
    if facts.search:
        words.append(facts.search)
    if facts.busy:
        words.append("reading...")
    return "  │  ".join(words)


class SearchFacts(NamedTuple):
    """How far a search is."""

    text: str
    found: int = 0
    share: float = 0.0
    done: bool = False
    capped: bool = False
    only: bool = False
    trouble: str = ""
    slow: bool = False
    waits: bool = False
    captured: bool = False
    first: int = 0


def describe_search(facts: SearchFacts) -> str:
    """A search in words: what was found, and where it looked."""
    sign = "&" if facts.only else "/"
    nothing = "nothing found" if facts.done else "nothing yet"
    words = [f"{sign}{facts.text}: {count_lines(facts.found) if facts.found else nothing}"]
    if facts.capped:
        words.append("the newest ones")
    elif not facts.done:
        words.append(f"searched {facts.share:.0%}")
    if facts.waits:
        words.append("looking for the next")
    if facts.captured:
        words.append("in what the daemon has captured of the pod's log")
    if facts.first:
        words.append(f"the first {format_bytes(facts.first)} are gone")
    if facts.trouble:
        words.append(facts.trouble)
    if facts.slow:
        words.append("too slow to mark")
    return ", ".join(words)
