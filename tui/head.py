"""The head of the screen: the places that there are, how many jobs are in each state, and what does not answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical

from overspan.tui.queue.headline import describe_counts, write_status
from overspan.tui.queue.styled_text import StyledText, cut_parts, measure
from overspan.tui.widgets.text_line import TextLine


class PlaceTab(NamedTuple):
    """A place in the head: its key, its title, and the action that goes there."""

    key: str
    title: str
    action: str
    chosen: bool = False


class HeadFacts(NamedTuple):
    """What the head tells."""

    tabs: Sequence[PlaceTab] = ()
    counts: Mapping[str, int] | None = None
    """By state; None where nothing is known."""
    ended: bool = False
    troubles: Sequence[str] = ()
    marks: Sequence[str] = ()
    """What changes how the whole application behaves: read-only, paused."""
    ascii: bool = False


class Head(Vertical):
    """Two lines: places, then counts and troubles."""

    DEFAULT_CSS = "Head { dock: top; height: 2; padding: 0 1; background: $panel; }"

    def compose(self) -> ComposeResult:
        yield TextLine(id="head-places")
        yield TextLine(id="head-status")

    def show(self, facts: HeadFacts) -> None:
        """Tell something else; what reads as before is not painted."""
        counts = describe_counts(facts.counts, facts.ended)
        self.query_one("#head-places", TextLine).show(lambda width: write_places(facts, width))
        self.query_one("#head-status", TextLine).show(
            lambda width: write_status(counts, facts.troubles, width, facts.ascii)
        )

    @property
    def text(self) -> str:
        """What it reads."""
        return "\n".join(line.text for line in self.query(TextLine))


def write_places(facts: HeadFacts, width: int) -> list[StyledText]:
    """The places, each with its key, and on the right what changes how the application behaves.

    Where there is no room, only the place in sight has its title.
    """
    marks = [StyledText("  ".join(facts.marks), "waiting")] if facts.marks else []
    room = width - measure(marks) - bool(marks)
    tabs = _write_tabs(facts.tabs, all_titles=True)
    if measure(tabs) > room:
        tabs = _write_tabs(facts.tabs, all_titles=False)
    tabs = cut_parts(tabs, room, "~" if facts.ascii else "…")
    gap = StyledText(" " * max(0, width - measure(tabs) - measure(marks)))
    return [*tabs, gap, *marks]


def _write_tabs(tabs: Sequence[PlaceTab], all_titles: bool) -> list[StyledText]:
    parts: list[StyledText] = []
    for tab in tabs:
        title = f" {tab.title}" if all_titles or tab.chosen else ""
        style = "chosen" if tab.chosen else "dim"
        parts += [StyledText("  ")] if parts else []
        parts.append(StyledText(f"{tab.key}{title}", style, tab.action))
    return parts
