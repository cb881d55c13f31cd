"""The last line of the screen: the keys that matter here, as many as fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual.app import RenderResult
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from overspan.tui.keyboard.keymap import show_key
from overspan.tui.keyboard.keys import KEYS

_FIRST = ("detail", "job")
"""The scopes whose hints come first: what is open, then what can be done about the line under the cursor."""
_LAST = ("app.palette", "app.help")
"""They stand at the right end, and others give way to them."""

_TYPING = (("enter", "input.take", "take it"), ("escape", "input.close", "close"))
"""In a line that has no hints of its own."""


class KeyHint(NamedTuple):
    """A key and what it does."""

    key: str
    title: str

    @property
    def width(self) -> int:
        """In cells, with the two before the next one."""
        return cell_len(self.key) + cell_len(self.title) + 3


def list_hints(active: Iterable[tuple[str, str, str]], ascii_only: bool = False) -> tuple[list[KeyHint], list[KeyHint]]:
    """The hints of the shown bindings, each given as key, id and title, in the order of the table; the last ones apart.

    Of an action's keys the first one stands for all.
    """
    found: dict[str, KeyHint] = {}
    for key, name, title in active:
        found.setdefault(name, KeyHint(show_key(key, ascii_only), title))
    order = [action.id for action in KEYS]

    def rank(name: str) -> tuple[int, int]:
        scope = name.partition(".")[0]
        last = len(_FIRST) + (scope == "app")
        return _FIRST.index(scope) if scope in _FIRST else last, order.index(name) if name in order else -1

    names = sorted(found, key=rank)
    return [found[name] for name in names if name not in _LAST], [found[name] for name in _LAST if name in found]


def fit_hints(hints: Sequence[KeyHint], width: int) -> list[KeyHint]:
    """The hints that fit, from the first one on."""
    chosen = []
    for hint in hints:
        width -= hint.width
        if width < 0:
            break
        chosen.append(hint)
    return chosen


class KeyHints(Widget, can_focus=False):
    """The line of hints."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    KeyHints { dock: bottom; height: 1; padding: 0 1; background: $footer-background; color: $footer-foreground; }
    """

    def __init__(self, ascii_only: bool = False) -> None:
        super().__init__()
        self._ascii = ascii_only
        self._shown: tuple[list[KeyHint], list[KeyHint]] = ([], [])

    def on_mount(self) -> None:
        """Follow the bindings of the screen."""
        self.screen.bindings_updated_signal.subscribe(self, self._take)

    def _take(self, screen: Screen[object]) -> None:
        active = [
            (key, each.binding.id or key, each.binding.description)
            for key, each in screen.active_bindings.items()
            if each.binding.show
        ]
        if isinstance(screen.focused, Input):
            # What is typed goes into the line.
            active = [each for each in active if len(show_key(each[0])) > 1] or list(_TYPING)
        shown = list_hints(active, self._ascii)
        if shown != self._shown:
            self._shown = shown
            self.refresh()

    def render(self) -> RenderResult:
        """As many as fit; the last ones at the right end."""
        hints, last = self._shown
        width = self.size.width
        left = _paint(fit_hints(hints, width - sum(hint.width for hint in last)))
        right = _paint(last)
        return left + Content(" " * max(0, width - left.cell_length - right.cell_length)) + right


def _paint(hints: Sequence[KeyHint]) -> Content:
    parts = []
    for hint in hints:
        parts += [(hint.key, "bold $footer-key-foreground"), (f" {hint.title}  ", "$footer-foreground")]
    return Content.assemble(*parts)
