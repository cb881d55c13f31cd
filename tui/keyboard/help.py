"""Help: what the keys do in this view, made from the bindings in force."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import ActiveBinding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from overspan.bridge.client.terminal_texts import clean_text
from overspan.tui.keyboard.keymap import show_key
from overspan.tui.keyboard.keys import KEYS, SCOPES, KeyAction, bind

_TWO_COLUMNS = 110
"""The least width at which sections stand side by side."""
_GAP = 3
_LEAST_HELP = 12
"""Cells for what is said about a key, however narrow the screen is."""


_FIRST = ("queue", "evaluations", "pools", "nodes", "history", "clusters", "schedules", "job", "detail")


class HelpEntry(NamedTuple):
    """An action with its keys, as people write them."""

    id: str
    keys: str
    title: str
    help: str


class HelpSection(NamedTuple):
    """The actions of a scope."""

    title: str
    entries: tuple[HelpEntry, ...]

    @property
    def height(self) -> int:
        """Lines, with its title and the empty line below."""
        return len(self.entries) + 2


def list_help(
    active: Iterable[tuple[str, str]], table: Sequence[KeyAction] = KEYS, ascii_only: bool = False
) -> list[HelpSection]:
    """The sections of the active bindings, each given as its key and its id: the place first, the general last."""
    keys: dict[str, list[str]] = {}
    for key, name in active:
        keys.setdefault(name, []).append(show_key(key, ascii_only))
    sections = []
    for scope in [*_FIRST, *(each for each in reversed(SCOPES) if each not in _FIRST)]:
        found = [
            HelpEntry(action.id, " ".join(keys[action.id]), action.title, action.help)
            for action in table
            if action.scope == scope and action.id in keys
        ]
        if found:
            sections.append(HelpSection(SCOPES[scope], tuple(found)))
    return sections


def pair_active(active: Mapping[str, ActiveBinding]) -> list[tuple[str, str]]:
    """The keys of the bindings in force, with the bindings' ids."""
    return [(key, each.binding.id) for key, each in active.items() if each.binding.id and each.enabled]


def share_columns(sections: Sequence[HelpSection], width: int) -> list[list[HelpSection]]:
    """One column of sections; where there is room two, each section in the one that is shorter so far."""
    columns: list[list[HelpSection]] = [[] for _ in range(1 if width < _TWO_COLUMNS else 2)]
    for section in sections:
        min(columns, key=lambda column: sum(each.height for each in column)).append(section)
    return columns


def paint_help(sections: Sequence[HelpSection], width: int) -> Content:
    """The sections as text: keys, what they do, and more about that."""
    columns = share_columns(sections, width)
    room = (width - _GAP * (len(columns) - 1)) // len(columns)
    painted = [_paint_column(column, room) for column in columns]
    lines = []
    for place in range(max(map(len, painted), default=0)):
        parts = [column[place] if place < len(column) else Content("") for column in painted]
        lines.append(Content(" " * _GAP).join(part.pad_right(room - part.cell_length) for part in parts))
    return Content("\n").join(lines)


def _paint_column(sections: Sequence[HelpSection], width: int) -> list[Content]:
    """Sections below each other, their texts in line."""
    entries = [entry for section in sections for entry in section.entries]
    keys = max((len(entry.keys) for entry in entries), default=0)
    titles = max((len(entry.title) for entry in entries), default=0)
    return [line for section in sections for line in _paint_section(section, keys, titles, width)]


def _paint_section(section: HelpSection, keys: int, titles: int, width: int) -> list[Content]:
    lines = [Content.styled(section.title, "bold $text-primary")]
    indent = keys + titles + 6
    for entry in section.entries:
        # Backticks are for the page that is made of the same table.
        first, *more = textwrap.wrap(entry.help.replace("`", ""), max(_LEAST_HELP, width - indent)) or [""]
        lines.append(
            Content.assemble(
                ("  " + entry.keys.ljust(keys), "bold $text-accent"),
                ("  " + entry.title.ljust(titles), "$foreground"),
                ("  " + first, "$text-muted"),
            )
        )
        lines += [Content.styled(" " * indent + text, "$text-muted") for text in more]
    return [*lines, Content("")]


def paint_troubles(troubles: Sequence[str]) -> Content:
    """What of the configuration does not count."""
    lines = [Content.styled("Configuration: this does not count", "bold $text-warning")]
    return Content("\n").join([*lines, *(Content(f"  {clean_text(text)}") for text in troubles), Content("")])


class HelpBox(VerticalScroll, inherit_bindings=False):
    """What scrolls; its keys are the screen's."""


class HelpScreen(ModalScreen[None]):
    """What the keys do in the view below, and what of the configuration could not be used."""

    BINDINGS: ClassVar[list[BindingType]] = [*bind("help")]
    AUTO_FOCUS = "#help-text"
    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen #help-text {
        width: 1fr; max-width: 150; height: auto; max-height: 1fr; margin: 1 2; padding: 1 2;
        background: $surface; border: round $border; border-title-color: $text-primary;
        border-subtitle-color: $text-muted;
    }
    HelpScreen Static { min-width: 24; }
    """

    def __init__(self, active: Mapping[str, ActiveBinding], troubles: Sequence[str] = (), ascii_only: bool = False):
        super().__init__()
        self.sections = list_help(pair_active(active), ascii_only=ascii_only)
        self.troubles = troubles

    def compose(self) -> ComposeResult:
        with HelpBox(id="help-text") as box:
            box.border_title = "Keys of this view"
            box.border_subtitle = "Esc closes"
            yield Static(paint_troubles(self.troubles), id="help-troubles")
            yield Static(id="help-keys")

    def on_mount(self) -> None:
        """Leave out what there is nothing to say of."""
        self.query_one("#help-troubles").display = bool(self.troubles)

    def on_resize(self) -> None:
        """Share the width anew."""
        self.query_one("#help-keys", Static).update(paint_help(self.sections, min(144, self.size.width - 12)))

    def action_close(self) -> None:
        """Go back to the view."""
        self.dismiss()

    def action_scroll(self, lines: int) -> None:
        self.query_one(HelpBox).scroll_relative(y=lines, animate=False, immediate=True)

    def action_page(self, pages: int) -> None:
        """Scroll by screens."""
        box = self.query_one(HelpBox)
        box.scroll_relative(y=pages * max(1, box.container_size.height - 1), animate=False, immediate=True)

    def action_edge(self, last: bool) -> None:
        """Scroll to the first or the last line."""
        box = self.query_one(HelpBox)
        box.scroll_to(y=box.max_scroll_y if last else 0, animate=False)
