"""A screen of lines that are read: what it is about above them, where one is below them, and a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, Static

from overspan.bridge.client.terminal_texts import clean_text
from overspan.tui.keyboard.hints import KeyHints
from overspan.tui.logs.layout import ViewOptions
from overspan.tui.logs.view import LogView
from overspan.tui.widgets.text_inputs import TextInput
from overspan.tui.widgets.top_screen import TopScreen

if TYPE_CHECKING:
    from overspan.tui.app import TopApp


class LineScreen(TopScreen[None]):
    """The lines of a log, or of a text, on the whole screen."""

    DEFAULT_CSS = """
    LineScreen { background: $background; }
    LineScreen #lines-head, LineScreen #lines-status { height: 1; background: $panel; color: $foreground; padding: 0 1;
        text-wrap: nowrap; text-overflow: ellipsis; }
    LineScreen #lines-status.-doubtful { color: $text-warning; }
    LineScreen #lines-status.-trouble { color: $text-error; }
    LineScreen #lines-ask { height: 1; background: $surface; display: none; }
    LineScreen #lines-sign { width: auto; height: 1; padding: 0 0 0 1; color: $text-accent; text-style: bold; }
    LineScreen #lines-prompt { width: 1fr; height: 1; border: none; padding: 0; background: $surface; }
    """
    AUTO_FOCUS = "LogView"

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        yield Static(id="lines-head", markup=False)
        yield LogView(ascii=self.top.options.ascii)
        yield Static(id="lines-status", markup=False)
        with Horizontal(id="lines-ask"):
            yield Static(id="lines-sign", markup=False)
            yield TextInput(id="lines-prompt", compact=True)
        yield KeyHints(self.top.options.ascii)

    @property
    def top(self) -> TopApp:
        """The application."""
        from overspan.tui.app import TopApp

        assert isinstance(self.app, TopApp)
        return self.app

    @property
    def view(self) -> LogView:
        """The lines."""
        return self.query_one(LogView)

    @property
    def prompt(self) -> Input:
        """Where a pattern, a place or a name is typed."""
        return self.query_one("#lines-prompt", Input)

    @property
    def status(self) -> Static:
        """The line below the lines."""
        return self.query_one("#lines-status", Static)

    def say(self, where: str, text: str) -> None:
        """Write the `head`, the `status` or the `sign` of the prompt; what reads as before is not painted."""
        if self._said.get(where) != text:
            self._said[where] = text
            # With a new layout the whole screen would be sent again.
            line = self.query_one(f"#lines-{where}", Static)
            line.update(Content(clean_text(text)), layout=where == "sign")

    def open_prompt(self, sign: str, example: str, value: str = "") -> None:
        """Ask for a text."""
        self.say("sign", sign)
        self.prompt.placeholder = example
        self.prompt.value = value
        self.query_one("#lines-ask").display = True
        # At once: what is typed next belongs into it.
        self.set_focus(self.prompt)

    def close_prompt(self) -> None:
        """Go back to the lines."""
        self.query_one("#lines-ask").display = False
        self.view.focus()

    def set_options(self, options: ViewOptions) -> None:
        """Show the lines otherwise."""
        self.view.set_options(options)

    # --- keys ---------------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        """Move by lines."""
        self.view.scroll_rows(by)

    def action_page(self, pages: float) -> None:
        """Move by parts of a screen."""
        self.view.scroll_pages(pages)

    def action_sideways(self, by: int) -> None:
        """Move to the side."""
        self.view.scroll_columns(by)

    def action_wrap(self) -> None:
        """Fold long lines, or not."""
        self.set_options(self.view.options._replace(wrap=not self.view.options.wrap))

    def action_numbers(self) -> None:
        """Show the numbers of lines, or not."""
        self.set_options(self.view.options._replace(numbers=not self.view.options.numbers))
