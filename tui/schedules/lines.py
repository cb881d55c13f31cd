"""Lines of schedules and their columns: what `span cron list` tells, with times as they lie before or behind. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.durations import DAY, HOUR, MINUTE, format_timestamp
from overspan.bridge.model.state_words import CODES
from overspan.tui.filter_language import Filter, Texts, spell_word
from overspan.tui.queue.columns import style_of
from overspan.tui.widgets.line_table import Cell, TableColumn

FIELDS = ("cluster", "id", "message", "name", "state", "times", "user")
"""What a filter may name."""
SORTED = ("next", "id", "name", "last", "runs")
"""What the schedules are sorted by; the one that is due first comes first."""
_NEVER = float("inf")
_NOTES = 100
"""The width from which notes have a column."""
_WIDE_TABLE = 120
"""The width from which a time is shown beside the span."""
_RECENT = 3600.0
"""Seconds for which a message is news."""


class ScheduleLine(NamedTuple):
    """A schedule as the daemon tells it."""

    key: int
    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of its jobs."""
        return str(self.facts.get("name", ""))

    @property
    def label(self) -> str:
        """The schedule as users write it, with its name, fit for a terminal."""
        return clean_text(f"c{self.key} {self.name}")

    @property
    def paused(self) -> bool:
        """Whether it makes no runs."""
        return bool(self.facts.get("paused"))

    @property
    def owed(self) -> int:
        """Runs that were missed and are still to be made."""
        return int(self.facts.get("owed_runs") or 0)

    def count(self, what: str) -> int:
        """A count of the schedule."""
        return int(self.facts.get(what) or 0)


def make_lines(
    schedules: Iterable[Mapping[str, Any]], chosen: Filter[Texts], sort: str, reverse: bool = False
) -> list[ScheduleLine]:
    """The schedules that match, in an order."""
    lines = [ScheduleLine(int(schedule["id"]), schedule) for schedule in schedules]
    lines = [line for line in lines if chosen.matches(list_texts(line))]
    return sorted(lines, key=_sort_key(sort), reverse=reverse)


def list_texts(line: ScheduleLine) -> dict[str, str]:
    """What a filter is asked about a schedule."""
    facts = line.facts
    state = "paused" if line.paused else str(facts.get("last_state") or "")
    texts = {"id": f"c{line.key}", "name": line.name, "times": str(facts.get("schedule", "")), "state": state}
    return {**texts, **{name: str(facts.get(name) or "") for name in ("cluster", "message", "user")}}


def _sort_key(name: str) -> Callable[[ScheduleLine], Any]:
    if name == "next":
        return lambda line: (_NEVER if line.paused else line.facts.get("next_due") or _NEVER, line.key)
    if name == "last":
        return lambda line: (-(line.facts.get("last_run_at") or 0.0), line.key)
    if name == "runs":
        return lambda line: (-line.count("runs"), line.key)
    return lambda line: (line.name if name == "name" else "", line.key)


def find_jobs(line: ScheduleLine) -> str:
    """The filter of the history that finds its jobs: they have its name, which may hold `{id}`, and its user."""
    words = [spell_word("user", str(line.facts["user"]))] if line.facts.get("user") else []
    before, mark, after = line.name.partition("{id}")
    if not mark:
        return " ".join([spell_word("name", line.name), *words])
    head = spell_word("name", before).removesuffix("$")
    tail = spell_word("name", after).removeprefix("name:^")
    return " ".join([rf"{head}\d+{tail}", *words])


def make_columns(width: int) -> list[TableColumn[ScheduleLine]]:
    """The columns for a table of so many cells."""
    wide = width >= _WIDE_TABLE
    return [
        TableColumn("id", "ID", 5, lambda line, now: Cell(f"c{line.key}", "accent")),
        TableColumn("name", "NAME", 14, _show_text("name"), wide=width < _NOTES),
        TableColumn("times", "TIMES", 15, _show_text("schedule")),
        TableColumn("zone", "ZONE", 16, _show_text("timezone"), from_width=140),
        TableColumn("next", "NEXT", 25 if wide else 12, _show_next(wide), ticks=True),
        TableColumn("last", "LAST", 8, _show_last_run, ticks=True),
        TableColumn("job", "JOB", 7, _show_text("last_job"), from_width=76),
        TableColumn("state", "ST", 3, _show_state),
        TableColumn("runs", "RUNS", 4, lambda line, now: Cell(str(line.count("runs")), _fade(line)), right=True),
        TableColumn("note", "NOTES", 10, _show_note, wide=True, from_width=_NOTES, ticks=True),
    ]


def _fade(line: ScheduleLine) -> str:
    return "dim" if line.paused else "text"


def _show_text(key: str) -> Callable[[ScheduleLine, float], Cell]:
    return lambda line, now: Cell(clean_text(str(line.facts.get(key) or "-")), _fade(line))


def _show_next(whole: bool) -> Callable[[ScheduleLine, float], Cell]:
    def show(line: ScheduleLine, now: float) -> Cell:
        due = line.facts.get("next_due")
        if line.paused:
            return Cell("paused", "waiting")
        if not due:
            return Cell("never", "dim")
        span = "now" if due <= now else f"in {format_span(due - now)}"
        return Cell(f"{span}, {format_timestamp(due)[5:16].replace('T', ' ')}" if whole else span, "good")

    return show


def _show_last_run(line: ScheduleLine, now: float) -> Cell:
    at = line.facts.get("last_run_at")
    return Cell(f"{format_span(now - at, 1)} ago" if at else "-", _fade(line))


def format_span(seconds: float, units: int = 2) -> str:
    """A time before or behind, in its largest units: 45 s, 12 m, 3 h 20 m, 2 d 4 h."""
    whole = max(0, int(seconds))
    parts = []
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m")):
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:units]) if parts else f"{whole} s"


def _show_state(line: ScheduleLine, now: float) -> Cell:
    state = str(line.facts.get("last_state") or "")
    return Cell(clean_text(CODES.get(state, state[:3]) or "-"), style_of(state) if state else "dim")


def _show_note(line: ScheduleLine, now: float) -> Cell:
    """What did not go as planned: news before counts."""
    message, at = " ".join(str(line.facts.get("message") or "").split()), line.facts.get("message_at")
    news = bool(message) and at is not None and now - at < _RECENT
    told = f"{format_span(now - at)} ago: {message}" if message and at is not None else message
    counts = describe_counts(line)
    text = "; ".join(filter(None, (told, counts) if news else (counts, told)))
    return Cell(clean_text(text), "waiting" if news or line.owed else "dim")


def describe(line: ScheduleLine) -> str:
    """What a line of the table has no room for."""
    facts = line.facts
    zone = f" {facts['timezone']}" if facts.get("timezone") else ""
    due = "paused" if line.paused else f"next at {format_timestamp(facts.get('next_due'), 'no time')}"
    policy = f"missed: {facts.get('missed', '')}, overlap: {facts.get('overlap', '')}"
    rest = (describe_counts(line), " ".join(str(facts.get("message") or "").split()))
    return "; ".join(filter(None, (f"{line.label}: {facts.get('schedule', '')}{zone}", due, policy, *rest)))


def describe_counts(line: ScheduleLine) -> str:
    """The runs that were not made, by why."""
    owed = f" ({line.owed} owed)" if line.owed else ""
    parts = [f"{line.count('missed_runs')} missed{owed}"] if line.count("missed_runs") or owed else []
    parts += [f"{line.count(f'{what}_runs')} {what}" for what in ("skipped", "refused") if line.count(f"{what}_runs")]
    return ", ".join(parts)
