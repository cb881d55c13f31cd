"""Dialogs in which fields are chosen: the columns and their order, and what the lines are sorted by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static
from textual.widgets.option_list import Option

from overspan.tui.keyboard.keys import bind
from overspan.tui.queue.column_choice import begin_choice, describe_field
from overspan.tui.queue.columns import DEFAULT, list_fields
from overspan.tui.queue.order import SortOrder, choose_order
from overspan.tui.widgets.choice_list import ChoiceList

_CSS = """
{name} {{ align: center middle; }}
{name} > Vertical {{
    width: 52; max-width: 100%; height: 80%; padding: 0 1; border: solid $primary; background: $surface;
}}
{name} OptionList {{ height: 1fr; border: none; padding: 0; background: $surface; }}
{name} .chooser-hint {{ color: $text-muted; }}
"""
_QUEUE_ORDER = "queue"
"""The id of the order that the queue has by itself."""


class FieldList(ChoiceList):
    """Lines of fields, by their names."""

    BINDINGS: ClassVar[list[BindingType]] = [*bind("choice")]

    def action_drop(self) -> None:
        """Choose nothing."""
        self.screen.dismiss(None)

    @property
    def field(self) -> str:
        """The field under the cursor."""
        return "" if self.highlighted is None else self.get_option_at_index(self.highlighted).id or ""


class ColumnList(FieldList):
    """All fields; those chosen are the columns."""

    BINDINGS: ClassVar[list[BindingType]] = [*bind("columns")]

    def __init__(self, columns: Sequence[str], ascii_only: bool) -> None:
        super().__init__(compact=True)
        self.choice = begin_choice(columns)
        self._ascii = ascii_only

    def on_mount(self) -> None:
        """Show the fields."""
        self.show_fields(self.choice.fields[0])

    def show_fields(self, current: str) -> None:
        """Write the lines again; the cursor is on this field."""
        lines = [Option(Content(self.choice.describe(name, self._ascii)), name) for name in self.choice.fields]
        self.set_options(lines)
        self.highlighted = self.choice.fields.index(current)

    def action_choose(self) -> None:
        """Choose the field, or not."""
        self.choice = self.choice.toggle(self.field)
        self.show_fields(self.field)

    def action_shift(self, by: int) -> None:
        """Move the field to the left or to the right among the columns."""
        self.choice = self.choice.move(self.field, by)
        self.show_fields(self.field)

    def action_default(self) -> None:
        """The queue's own columns."""
        self.choice = begin_choice(DEFAULT)
        self.show_fields(DEFAULT[0])


class ColumnChooser(ModalScreen[tuple[str, ...] | None]):
    """Choose columns, and in which order they stand; gives their fields, or None."""

    DEFAULT_CSS = _CSS.format(name="ColumnChooser")

    def __init__(self, columns: Sequence[str], ascii_only: bool = False) -> None:
        super().__init__()
        self._list = ColumnList(columns, ascii_only)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static("Columns", markup=False)
            yield self._list
            yield Static("space choose  J K move  0 default  enter take", markup=False, classes="chooser-hint")

    def on_option_list_option_selected(self) -> None:
        """Take the columns."""
        self.dismiss(self._list.choice.columns)


class OrderChooser(ModalScreen[SortOrder | None]):
    """Choose what to sort by; what it is sorted by already is turned round. Gives the order, or None."""

    DEFAULT_CSS = _CSS.format(name="OrderChooser")

    def __init__(self, columns: Sequence[str], order: SortOrder, ascii_only: bool = False) -> None:
        super().__init__()
        self._order = order
        self._ascii = ascii_only
        others = [field.name for field in list_fields() if field.name not in columns]
        self._names = (_QUEUE_ORDER, *columns, *others)
        self._list = FieldList(*self._list_options(), compact=True)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static("Sort by", markup=False)
            yield self._list
            yield Static("enter sort, once more turn it round", markup=False, classes="chooser-hint")

    def on_mount(self) -> None:
        """Begin at what it is sorted by."""
        self._list.highlighted = self._names.index(self._order[0].field if self._order else _QUEUE_ORDER)

    def on_option_list_option_selected(self) -> None:
        """Take the order."""
        name = self._list.field
        self.dismiss(() if name == _QUEUE_ORDER else choose_order(self._order, name))

    def _list_options(self) -> Iterable[Option]:
        rising, falling = ("^", "v") if self._ascii else ("▲", "▼")
        arrows = {key.field: falling if key.falling else rising for key in self._order} or {_QUEUE_ORDER: "*"}
        for name in self._names:
            text = "state and priority" if name == _QUEUE_ORDER else describe_field(name)
            yield Option(Content(f" {arrows.get(name, ' ')} {text}"), name)
