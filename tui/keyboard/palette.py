"""The line after `:`: places, filters, themes and the actions of the view, found by parts of their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.fuzzy import Matcher
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from overspan.bridge.client.terminal_texts import clean_text
from overspan.tui.keyboard.keymap import show_key
from overspan.tui.keyboard.keys import KEYS, SCOPES, KeyAction, bind
from overspan.tui.queue.filters import STATES
from overspan.tui.widgets.choice_list import ChoiceList
from overspan.tui.widgets.text_inputs import TextInput

MAX_SHOWN = 200
"""Commands in the list at most."""
FIELDS = ("cluster", "user", "state", "name", "partition", "node", "reason", "group")
"""Filters by one field, as commands."""
_TAKING = (*FIELDS, "filter", "theme")
"""Commands with a word of the user's own."""
_PLACE_NAMES = {"queue": ("jobs", "squeue"), "evaluations": ("evals",), "nodes": ("sinfo",), "history": ("sacct",)}
"""Other names that people have for the places."""


class PaletteCommand(NamedTuple):
    """A command: what is typed, what it does, and the action that does it with its words. `keys` do the same."""

    text: str
    help: str
    action: str
    words: tuple[str, ...] = ()
    keys: str = ""


class KnownNames(NamedTuple):
    """What filters and themes can name."""

    clusters: Sequence[str] = ()
    users: Sequence[str] = ()
    themes: Sequence[str] = ()


def list_view_commands(
    active: Iterable[tuple[str, str]], table: Sequence[KeyAction] = KEYS, ascii_only: bool = False
) -> list[PaletteCommand]:
    """A command for each action of the view, by its title: places, then what is most special to the view.

    The active bindings are given as key and id.
    """
    keys: dict[str, list[str]] = {}
    for key, name in active:
        keys.setdefault(name, []).append(show_key(key, ascii_only))
    order = list(reversed(SCOPES))
    found = [action for action in table if action.id in keys and action.action != "palette"]
    found.sort(key=lambda action: -1 if _is_place(action) else order.index(action.scope))
    return [
        PaletteCommand(action.title.lower(), _explain(action), "run_binding", (action.id,), " ".join(keys[action.id]))
        for action in found
    ]


def _is_place(action: KeyAction) -> bool:
    return action.action.startswith("place(")


def _explain(action: KeyAction) -> str:
    if _is_place(action):
        return "go there"
    scope = SCOPES[action.scope].lower()
    return f"{scope}: {action.help}" if action.help else scope


def list_names(names: KnownNames, table: Sequence[KeyAction] = KEYS) -> list[PaletteCommand]:
    """The commands that every view has: filters, themes, and other names of places."""
    values: dict[str, Iterable[str]] = {"cluster": names.clusters, "user": names.users, "state": STATES}
    return [
        *(
            PaletteCommand(f"{field} {value}", f"only {field}:{value}", "filter_by", (field, value))
            for field, known in values.items()
            for value in known
        ),
        PaletteCommand("all", "drop the filter", "filter_by", ("", "")),
        *(PaletteCommand(f"theme {name}", "other colours", "choose_theme", (name,)) for name in names.themes),
        *(
            PaletteCommand(other, f"go to {action.title}", "run_binding", (action.id,))
            for action in table
            if _is_place(action)
            for other in _PLACE_NAMES.get(action.title.lower(), ())
        ),
    ]


def find_commands(commands: Sequence[PaletteCommand], typed: str) -> list[PaletteCommand]:
    """The commands that what is typed can mean, the likeliest first; what takes any word takes the one typed."""
    typed = " ".join(typed.split())
    if not typed:
        return list(commands)
    ranked = sorted(
        ((-score, place) for place, command in enumerate(commands) if (score := _rank(command.text, typed)) > 0)
    )
    found = [commands[place] for _, place in ranked[:MAX_SHOWN]]
    own = _read_own(typed)
    if own is not None and all(command.text.lower() != own.text.lower() for command in found):
        # What is typed whole comes before what only resembles it.
        near = any(command.text.lower().startswith(typed.lower()) for command in found)
        found.insert(len(found) if near else 0, own)
    return found


def _rank(text: str, typed: str) -> float:
    """How well a text fits: the beginning above a word's beginning above its letters in their order."""
    text, typed = text.lower(), typed.lower()
    if text == typed:
        return 1000
    if text.startswith(typed):
        return 900 - len(text)
    if re.search(rf"\b{re.escape(typed)}", text):
        return 600 - len(text)
    return min(300.0, Matcher(typed).match(text))


def _read_own(typed: str) -> PaletteCommand | None:
    """A command with a word that is in no list: a user without jobs, a filter."""
    head, _, rest = typed.partition(" ")
    head = head.lower()
    if not rest or head not in _TAKING or head == "theme":
        return None
    if head == "filter":
        return PaletteCommand(f"filter {rest}", "only what matches", "filter_by", ("", rest))
    return PaletteCommand(f"{head} {rest}", f"only {head}:{rest}", "filter_by", (head, rest))


def join_filter(source: str, field: str, value: str) -> str:
    """The filter with a field's value set: what it said of this field before is gone; without a field all of it is."""
    if not field:
        return value
    word = f"{field}:{value}" if not re.search(r"\s", value) else f'"{field}:{value}"'
    kept = [each for each in source.split() if not each.startswith(f"{field}:")]
    return " ".join([*kept, word])


class Palette(ModalScreen[PaletteCommand]):
    """The line and what it can mean."""

    BINDINGS: ClassVar[list[BindingType]] = [*bind("palette")]
    AUTO_FOCUS = "Input"
    DEFAULT_CSS = """
    Palette { align: center top; background: $background 40%; }
    Palette:ansi { background: transparent; }
    Palette #palette {
        width: 1fr; min-width: 30; max-width: 90; height: auto; max-height: 80%; margin: 2 2; background: $surface;
        border: round $border; border-title-color: $text-primary; border-subtitle-color: $text-muted;
    }
    Palette Input { background: $surface; margin: 0 1; }
    Palette OptionList { height: auto; max-height: 20; background: $surface; border: none; padding: 0; }
    Palette OptionList > .option-list--option-highlighted { background: $block-cursor-background; }
    """

    def __init__(self, commands: Sequence[PaletteCommand]) -> None:
        super().__init__()
        self.commands = commands
        self.found: list[PaletteCommand] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="palette") as box:
            box.border_title = "Go to"
            box.border_subtitle = "Enter goes, Tab completes, Esc closes"
            yield TextInput(placeholder="queue, user ana, state pd, theme light, cancel...", compact=True)
            results = ChoiceList(compact=True, markup=False)
            results.can_focus = False
            yield results

    def on_mount(self) -> None:
        """Show all there is."""
        self._show("")

    def on_resize(self) -> None:
        """Share the width anew."""
        self._show(self.query_one(Input).value)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Look for what is typed."""
        self._show(event.value)

    def _show(self, typed: str) -> None:
        self.found = find_commands(self.commands, typed)
        results = self.query_one(OptionList)
        # Border, padding and scroll bar.
        width = min(90, self.size.width - 4) - 5
        results.set_options(Option(paint_command(command, width)) for command in self.found)
        if self.found:
            results.highlighted = 0

    def on_input_submitted(self) -> None:
        """Do what is chosen."""
        place = self.query_one(OptionList).highlighted
        if place is not None:
            self.dismiss(self.found[place])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Do what was clicked."""
        self.dismiss(self.found[event.option_index])

    def action_choose(self, by: int) -> None:
        """Choose another one."""
        results = self.query_one(OptionList)
        if self.found:
            results.highlighted = max(0, min(len(self.found) - 1, (results.highlighted or 0) + by))

    def action_complete(self) -> None:
        """Write the chosen one into the line."""
        place = self.query_one(OptionList).highlighted
        if place is not None:
            box = self.query_one(Input)
            box.value = self.found[place].text
            box.cursor_position = len(box.value)

    def action_close(self) -> None:
        """Do nothing."""
        self.dismiss()


def paint_command(command: PaletteCommand, width: int) -> Content:
    """A command as one line: its text, what it does, and its keys at the right."""
    text, keys = clean_text(command.text), f" {command.keys}" if command.keys else ""
    left = Content.assemble((text.ljust(20), "$foreground"), ("  " + clean_text(command.help), "$text-muted"))
    left = left.truncate(max(1, width - len(keys)), ellipsis=True, pad=True)
    return left + Content.styled(keys, "$text-accent")
