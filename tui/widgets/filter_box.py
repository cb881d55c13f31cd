"""Where a filter is typed: completion of fields and values, earlier filters, and what could not be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input, Static

from overspan.bridge.client.terminal_texts import clean_text
from overspan.tui.filter_language import FilterHistory
from overspan.tui.keyboard.keys import bind
from overspan.tui.widgets.text_inputs import TextInput


class _Completion(Suggester):
    """Completes the last word."""

    def __init__(self, suggest: Callable[[str], str | None]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._suggest = suggest

    async def get_suggestion(self, value: str) -> str | None:
        """The whole text with its last word completed."""
        return self._suggest(value)


class FilterInput(TextInput):
    """The line that is typed into; the arrows bring earlier filters."""

    BINDINGS: ClassVar[list[BindingType]] = [*bind("filter")]

    class Finished(Message):
        """The user is done: the filter is kept, or dropped."""

        def __init__(self, kept: bool) -> None:
            self.kept = kept
            super().__init__()

    def __init__(self, hint: str, suggest: Callable[[str], str | None]) -> None:
        super().__init__(placeholder=hint, compact=True, suggester=_Completion(suggest))
        self.history = FilterHistory()

    def action_keep(self) -> None:
        """Keep the filter."""
        self.post_message(self.Finished(True))

    def action_drop(self) -> None:
        self.post_message(self.Finished(False))

    def action_older(self) -> None:
        """An earlier filter."""
        self.value = self.history.older(self.value)
        self.cursor_position = len(self.value)

    def action_newer(self) -> None:
        """A later one, at last what was being typed."""
        self.value = self.history.newer(self.value)
        self.cursor_position = len(self.value)

    def action_complete(self) -> None:
        """Take what is proposed."""
        self.action_end()
        self.action_cursor_right()


class FilterBox(Vertical):
    """The line, hidden except while the user types, and a sentence about what of the filter could not be read."""

    DEFAULT_CSS = """
    FilterBox { height: auto; }
    FilterBox > #filter-line { height: 1; layout: horizontal; display: none; }
    FilterBox #filter-sign { width: 2; color: $text-accent; }
    FilterBox FilterInput { width: 1fr; }
    FilterBox > #filter-trouble { height: auto; max-height: 3; color: $text-error; display: none; }
    """

    class Changed(Message):
        """The filter is another one."""

        def __init__(self, source: str) -> None:
            self.source = source
            super().__init__()

    class Closed(Message):
        """The user has left the line."""

    def __init__(
        self,
        hint: str,
        suggest: Callable[[str], str | None],
        find_trouble: Callable[[str], str],
        source: str = "",
    ) -> None:
        super().__init__()
        self._input = FilterInput(hint, suggest)
        self._find_trouble = find_trouble
        self._input.value = clean_text(source)

    def compose(self) -> ComposeResult:
        yield Static(id="filter-trouble", markup=False)
        with Vertical(id="filter-line"):
            yield Static("/", id="filter-sign", markup=False)
            yield self._input

    @property
    def source(self) -> str:
        """The filter as it is typed."""
        return self._input.value

    @property
    def typing(self) -> bool:
        """Whether it is open."""
        return bool(self.query_one("#filter-line").display)

    def open(self) -> None:
        """Type a filter."""
        self.query_one("#filter-line").display = True
        # At once: what is typed next belongs into it.
        self.screen.set_focus(self._input)

    def set_source(self, source: str) -> None:
        """Have this filter, as if it had been typed and kept."""
        self._input.value = clean_text(source)
        self._input.history.add(self.source)

    def close(self, kept: bool) -> None:
        """Put the line away."""
        if kept:
            self._input.history.add(self.source)
        else:
            self._input.value = ""
        self.query_one("#filter-line").display = False
        self.post_message(self.Closed())

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell of each letter, and of what cannot be read."""
        event.stop()
        if event.value != clean_text(event.value):
            # What was pasted may hold anything.
            self._input.value = clean_text(event.value)
            return
        trouble = self.query_one("#filter-trouble", Static)
        text = self._find_trouble(event.value)
        trouble.update(text)
        trouble.display = bool(text)
        self.post_message(self.Changed(event.value))

    def on_filter_input_finished(self, event: FilterInput.Finished) -> None:
        """Keep or drop what was typed."""
        event.stop()
        self.close(event.kept)
