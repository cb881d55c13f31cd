"""The screen of a job's large texts: read, searched, copied."""

from __future__ import annotations

import re
from typing import ClassVar

from textual.binding import BindingType
from textual.widgets import Input

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.log_matching import compile_pattern
from overspan.tui.actions.target import Target
from overspan.tui.detail.texts import PARTS, JobText, TextRows, ask_text
from overspan.tui.keyboard.keys import bind
from overspan.tui.logs.deadline import TooSlow, deadline
from overspan.tui.logs.line_screen import LineScreen
from overspan.tui.logs.view import LogView

SEARCH_SECONDS = 2.0
"""A pattern that takes longer is given up."""


class TextScreen(LineScreen):
    """What a job was sent as, its variables, and what was submitted; each is asked for when it is looked at."""

    BINDINGS: ClassVar[list[BindingType]] = [*bind("text")]

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.part = PARTS[0]
        self._known: dict[str, JobText | OverspanError] = {}
        self._found: int | None = None
        self._pattern: re.Pattern[str] | None = None

    def on_mount(self) -> None:
        """Show the first part."""
        self.view.following = False
        self._show()

    # --- what is shown ------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        """Show the chosen part; ask for it where it is not known."""
        self._found = None
        known = self._known.get(self.part)
        if known is None:
            self._ask(self.part)
        view = self.view
        # Why nothing could be told stands in the line below.
        view.empty = "it is empty" if isinstance(known, JobText) else ""
        view.set_rows(TextRows(known.text if isinstance(known, JobText) else ""))
        view.go_to_begin()
        self._describe()

    def _ask(self, part: str) -> None:
        ref = self.target.ref

        def take(answer: JobText | OverspanError) -> None:
            if self.is_attached:
                self._known[part] = answer
                if part == self.part:
                    self._show()

        self.top.questions.ask("texts", lambda source: ask_text(source, part, ref), take, take)

    def _describe(self) -> None:
        tabs = "  ".join(f"[{part}]" if part == self.part else f" {part} " for part in PARTS)
        self.say("head", f"{self.target.label}  │  {tabs}")
        known = self._known.get(self.part)
        self.status.set_class(isinstance(known, JobText) and known.doubtful, "-doubtful")
        self.status.set_class(known is not None and not isinstance(known, JobText), "-trouble")
        self.say("status", self._sum_up(known))
        view = self.view
        total = max(1, len(view.rows))
        view.set_bounds(view.rows_above / total, (total - view.rows_below) / total)

    def _sum_up(self, known: JobText | OverspanError | None) -> str:
        if known is None:
            return "asking the daemon..."
        if not isinstance(known, JobText):
            return "; ".join(filter(None, (known.message, known.remedy)))
        place = [f"line {self._found + 1}"] if self._found is not None else []
        return "  │  ".join((known.source, f"{len(self.view.rows)} lines", *place))

    # --- moving -------------------------------------------------------------------------------------------------------

    def action_edge(self, end: bool) -> None:
        """Go to the beginning, or to the end."""
        self.view.go_to(max(0, len(self.view.rows) - 1) if end else 0)
        self._describe()

    def on_log_view_scrolled(self, event: LogView.Scrolled) -> None:
        """The place is another one."""
        event.stop()
        self._describe()

    def on_log_view_pointed(self, event: LogView.Pointed) -> None:
        """A place of the bar was clicked."""
        event.stop()
        self.view.go_to(int(event.share * max(0, len(self.view.rows) - 1)))
        self._describe()

    def action_part(self, by: int) -> None:
        """Show the next text, or the one before."""
        self.part = PARTS[(PARTS.index(self.part) + by) % len(PARTS)]
        self._show()

    # --- searching ----------------------------------------------------------------------------------------------------

    def action_search(self) -> None:
        """Ask for a pattern."""
        self.open_prompt("/", "a regular expression", self.prompt.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the first match; a wrong pattern is said, and stays."""
        event.stop()
        try:
            pattern = compile_pattern(event.value) if event.value else None
        except ValueError as error:
            self.notify(clean_text(str(error)), severity="error", markup=False)
            return
        self.close_prompt()
        self._pattern = pattern
        self.view.set_pattern(pattern)
        if pattern is not None:
            self._go_to_match(self.view.rows_above, backwards=False)

    def action_hit(self, by: int) -> None:
        """Go to the next match, or the one before."""
        if self._pattern is None:
            self.notify("`/` searches", markup=False)
            return
        here = self._found if self._found is not None else self.view.rows_above
        self._go_to_match(here + by, backwards=by < 0)

    def _go_to_match(self, start: int, *, backwards: bool) -> None:
        view = self.view
        rows = view.rows
        assert self._pattern is not None and isinstance(rows, TextRows)
        try:
            with deadline(SEARCH_SECONDS):
                self._found = rows.find(self._pattern, start, backwards=backwards)
        except TooSlow:
            self.notify("the pattern takes too long", severity="warning", markup=False)
            return
        if self._found is None:
            self.notify("nothing found", markup=False)
        else:
            # The view looks for a line around the one at its top.
            view.go_to(max(0, self._found - view.size.height // 3))
            view.show_row(rows[self._found], hit=True)
        self._describe()

    # --- the rest -----------------------------------------------------------------------------------------------------

    def action_copy(self) -> None:
        """Send the whole text to the terminal's clipboard."""
        known = self._known.get(self.part)
        text = clean_text(known.text, keep="\n\t") if isinstance(known, JobText) else ""
        if text:
            self.top.send_to_clipboard(text, f"{len(self.view.rows)} lines")

    def action_close(self) -> None:
        """Close the prompt, the search, or the texts."""
        if self.prompt.has_focus:
            self.close_prompt()
        elif self._pattern is not None:
            self._pattern = self._found = None
            self.view.set_pattern(None)
            self._describe()
        else:
            self.dismiss()
