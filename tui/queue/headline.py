"""What stands above the table: how many jobs are in each state, how the clusters are, what is shown and how sorted.

Ages are told in minutes, so that a screen on which nothing happens is not written anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from overspan.bridge.client.records import Stale
from overspan.bridge.listings.fields import FIELDS
from overspan.bridge.listings.fitting import cut_widths
from overspan.bridge.model.state_words import CODES
from overspan.tui.daemon.feed import Lost
from overspan.tui.queue.columns import clean_line, style_of, title_of
from overspan.tui.queue.order import SortOrder
from overspan.tui.queue.styled_text import StyledText, cut_parts, cut_text, measure

_STATES = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "PENDING")
_QUIET_ENDS = ("COMPLETED", "CANCELLED")
_LEAST_TROUBLE = 24
"""Letters that a cluster's trouble has at least, before others have more."""


class QueueSummary(NamedTuple):
    """What the line above the table tells."""

    matches: int
    total: int
    filter: str = ""
    scope: str = ""
    order: SortOrder = ()
    marked: int = 0
    marked_hidden: int = 0
    hidden_columns: int = 0
    known: bool = True
    """Whether the daemon has told anything yet."""


def format_age(seconds: float) -> str:
    """An age in one unit: <1m, 2m, 3h, 4d."""
    minutes = int(seconds // 60)
    if minutes < 1:
        return "<1m"
    if minutes < 120:
        return f"{minutes}m"
    return f"{minutes // 60}h" if minutes < 48 * 60 else f"{minutes // 1440}d"


def describe_counts(counts: Mapping[str, int] | None, ended: bool) -> list[StyledText]:
    """`12 R  40 PD  2 F`: what lives, then what failed; what ended well only where ended jobs are shown.

    Nothing where nothing is known.
    """
    if counts is None:
        return []
    quiet = _QUIET_ENDS if ended else ()
    bad = [state for state in CODES if state not in (*_STATES, *_QUIET_ENDS)]
    found = [state for state in (*_STATES, *bad, *quiet) if counts.get(state)]
    parts = [StyledText(f"{counts[state]} {CODES[state]}", style_of(state)) for state in found]
    return _join(parts, "  ") if parts else [StyledText("no jobs", "dim")]


def describe_troubles(stale: Sequence[Stale], lost: Lost | None, now: float, lost_now: float) -> list[str]:
    """A sentence for the daemon, and for each cluster that does not answer, or not in full, with its age.

    `now` is the daemon's time, `lost_now` the time that the loss was noted by.
    """
    found = []
    if lost is not None:
        what = "no answer" if lost.present else "no daemon"
        how = "one is starting" if lost.starting else f"{lost.why}; `r` tries again"
        found.append(f"{what} for {format_age(lost_now - lost.since)}: {how}")
    for one in stale:
        age = "" if one.partial else f" {format_age(now - one.since)} old"
        found.append(f"{one.cluster}{age}: {one.message or 'it does not answer'}")
    return [clean_line(text).rstrip(": ") for text in found]


def write_status(
    counts: Sequence[StyledText], troubles: Sequence[str], width: int, ascii_only: bool = False
) -> list[StyledText]:
    """The line of counts and troubles; the troubles share what room is left. `width` 0 is any number."""
    bar = StyledText("  |  " if ascii_only else "  │  ", "dim")
    ellipsis = "~" if ascii_only else "…"
    parts = [*counts]
    if troubles:
        sizes = [measure([StyledText(text)]) for text in troubles]
        room = width - measure(parts) - len(troubles) * measure([bar])
        if width:
            sizes = cut_widths(sizes, [min(size, _LEAST_TROUBLE) for size in sizes], max(room, 0))
        for text, size in zip(troubles, sizes, strict=True):
            parts += [bar] if parts else []
            parts += [StyledText(cut_text(text, size, ellipsis), "bad")]
    return cut_parts(parts, width, ellipsis) if width else parts


def write_frame(summary: QueueSummary, width: int, ascii_only: bool = False) -> list[StyledText]:
    """The line between head and table: how many jobs match what, and how they are sorted. `width` 0 is any number."""
    line, dot, ellipsis = ("-", " - ", "~") if ascii_only else ("─", " · ", "…")
    left = [StyledText(line * 2 + " ", "dim"), *_describe_matches(summary)]
    for text in filter(None, (summary.scope, _describe_marks(summary))):
        left += [StyledText(dot, "dim"), StyledText(text, "accent")]
    right = _describe_order(summary.order, ascii_only)
    if summary.hidden_columns:
        right = f"{count_words(summary.hidden_columns, 'column')} hidden{dot}{right}"
    end = f" {right} {line * 2}"
    if width and measure(left) + measure([StyledText(end)]) + 2 > width:
        # What is shown counts more than its order.
        end = ""
        left = cut_parts(left, max(width - 3, 0), ellipsis)
    room = width - measure(left) - measure([StyledText(end)]) - 1 if width else 4
    fill = StyledText(f" {line * max(room, 0)}{end}", "dim")
    return cut_parts([*left, fill], width, ellipsis) if width else [*left, fill]


def explain_emptiness(summary: QueueSummary, keys: bool = True) -> str:
    """What is said in place of lines, and what to press or to ask for."""
    if summary.filter:
        matching = f"no jobs match {summary.filter!r}, of {summary.total}"
        return f"{matching}; Esc drops the filter" if keys else matching
    if summary.scope:
        return f"no jobs match: {summary.scope}" + ("; `f` shows those of others, `e` those that ended" if keys else "")
    ended = "`e` shows those that ended" if keys else "`-t all` shows those that ended"
    return f"no job waits or runs; {ended}, `span submit` adds one"


def explain_silence(lost: Lost | None) -> str:
    """What is said before the daemon has answered once."""
    if lost is None:
        return "asking the daemon..."
    if lost.starting:
        return "a daemon is starting..."
    what = "no answer" if lost.present else "the daemon does not answer"
    return f"{what}: {clean_line(lost.why)}; `r` tries again"


def count_words(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _describe_matches(summary: QueueSummary) -> list[StyledText]:
    if not summary.known:
        return [StyledText("no answer yet", "dim")]
    if not summary.filter:
        return [StyledText(count_words(summary.matches, "job"))]
    return [StyledText(f"{summary.matches}/{summary.total} match "), StyledText("/" + summary.filter, "accent")]


def _describe_marks(summary: QueueSummary) -> str:
    hidden = f", {summary.marked_hidden} of them not shown" if summary.marked_hidden else ""
    return f"{summary.marked} marked{hidden}" if summary.marked else ""


def _describe_order(order: SortOrder, ascii_only: bool) -> str:
    if not order:
        return "by state and priority"
    rising, falling = (" up", " down") if ascii_only else ("▲", "▼")
    names = [title_of(FIELDS[key.field]) + (falling if key.falling else rising) for key in order]
    return f"by {', '.join(names)}"


def _join(parts: Sequence[StyledText], between: str) -> list[StyledText]:
    found: list[StyledText] = []
    for part in parts:
        found += [StyledText(between), part] if found else [part]
    return found
