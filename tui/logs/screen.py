"""The screen of logs."""

from __future__ import annotations

import os
import threading
import time
from functools import cached_property
from typing import ClassVar

from textual.binding import BindingType
from textual.widgets import Input

from overspan.bridge.cli.jobs.logs import read_since
from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.log_matching import compile_pattern
from overspan.tui.actions.target import Target
from overspan.tui.daemon.error_words import tell_error
from overspan.tui.keyboard.keys import bind
from overspan.tui.logs.choice import (
    Choice,
    choose_attempt,
    choose_kind,
    choose_member,
    describe_choice,
    list_members,
    member_of,
    name_source,
)
from overspan.tui.logs.document import LogRow
from overspan.tui.logs.layout import ViewOptions, count_name_cells
from overspan.tui.logs.line_screen import LineScreen
from overspan.tui.logs.programs import open_log
from overspan.tui.logs.session import LogSession, format_mark, read_percent, suggest_name
from overspan.tui.logs.status import LogPlaceFacts, describe_place, describe_search, format_bytes
from overspan.tui.logs.view import LogView

TICK_SECONDS = 1.0
MOST_READS = 8
"""Parts that one key may have read, where they bring no lines."""
LITTLE = 64 * 1024
"""Bytes below that are not told of: they are being read."""
_SIGNS = {"search": "/", "only": "&", "place": "go to ", "save": "save as "}
_EXAMPLES = {
    "search": "a regular expression",
    "only": "a regular expression, !inverse; nothing shows all lines",
    "place": "50 (per cent), 14:05, 10m (ago)",
    "save": "a name",
}


class LogScreen(LineScreen):
    """What a job prints: any task, node, attempt and stream."""

    BINDINGS: ClassVar[list[BindingType]] = [*bind("logs")]

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.wants = 0
        self._reads = 0
        self._paused = False
        self._prompted = ""
        self._useful: tuple[object, ...] = (False, False)
        self._stopped = threading.Event()

    @cached_property
    def session(self) -> LogSession:
        """What is read."""
        return LogSession(self.target, self.top.questions, self, self.now)

    def on_mount(self) -> None:
        """Read the end of the newest logs."""
        self.session.choose(Choice())
        self.set_interval(TICK_SECONDS, self._tick)

    def on_unmount(self) -> None:
        """Ask for nothing any more."""
        self.session.closed = True
        self._stopped.set()

    def now(self) -> float:
        """The daemon's time."""
        return time.time() + self.top.clock_offset

    def _tick(self) -> None:
        if not self.is_current:
            return
        paused = self.top.paused_since is not None
        if not paused:
            self.session.tick()
        if paused != self._paused:
            self._paused = paused
            self._describe()

    # --- what the session needs of the screen -------------------------------------------------------------------------

    @property
    def following(self) -> bool:
        """Whether the end is shown, and what is written."""
        return self.view.following

    @following.setter
    def following(self, value: bool) -> None:
        self.view.following = value

    @property
    def filled(self) -> bool:
        """Whether the lines fill the screen."""
        return self.view.filled

    def draw(self) -> None:
        """Show the lines that there are now."""
        view, session = self.view, self.session
        view.empty = "no line matches" if session.only and session.document is not None else session.silence
        view.set_rows(session.rows())
        self._show_members()
        if session.awaited is not None:
            session.find_hit(session.awaited, self._find_near())
            if session.hit is None and session.awaited is None and session.search is not None and session.search.count:
                self.notify("no older match: `N` goes to newer ones", markup=False)
        self._turn_over()
        self._describe()

    def show_hit(self, row: LogRow) -> None:
        """Bring a line that matches into sight; where it is not here, read around it."""
        document = self.session.document
        if document is None:
            return
        if self.session.only or self.view.has(row):
            self.view.show_row(row, hit=True)
        else:
            self.view.following = False
            self.session.read(document.want_place(row.key, row.line.begin), lambda: self.view.show_row(row, hit=True))
        self._describe()

    def _turn_over(self) -> None:
        """Of the reader's way, what is left of it."""
        view = self.view
        short = view.at_begin if self.wants < 0 else view.rows_below < view.size.height
        self._reads -= 1
        if not short or self._reads < 0 or view.following:
            self.wants = 0

    def _find_near(self) -> LogRow | None:
        """The line from which a match is looked for: behind the last one in sight; None for the end."""
        row = self.view.last_row
        if row is None or self.view.at_end:
            return None
        return row._replace(line=row.line._replace(begin=row.line.begin + 1))

    def _show_members(self) -> None:
        document = self.session.document
        logs = {(member_of(one), one.stream) for one in (document.streams if document is not None else ())}
        names = count_name_cells([member for member, _ in logs]) if len(logs) > 1 else 0
        # Of all logs, not of those that are shown: a task keeps its colour.
        self.view.set_groups(name_source(stream) for stream in self.session.streams)
        if names != self.view.options.names:
            self.view.set_options(self.view.options._replace(names=names))

    # --- what is said -------------------------------------------------------------------------------------------------

    def _describe(self) -> None:
        session, view, document = self.session, self.view, self.session.document
        if view.following or view.at_end:
            session.note_seen()
        first, last = view.first_row, view.last_row
        begin = end = 1.0
        if document is not None and first is not None and last is not None:
            begin, end = document.locate(first), document.locate(last)
        view.set_bounds(0.0 if document is not None and document.whole and not view.rows_above else begin, end)
        facts = session.describe_search(view.slow)
        place = LogPlaceFacts(
            size=document.size if document is not None else 0,
            share=end,
            following=view.following,
            over=session.over,
            new_lines=session.count_new(),
            bytes_below=document.behind if document is not None and document.behind > LITTLE else 0,
            search=describe_search(facts) if facts is not None else "",
            trouble=session.trouble,
            busy=session.busy,
            paused=self.top.paused_since is not None,
        )
        self.say("status", describe_place(place) if document is not None else session.trouble)
        self.status.set_class(bool(session.trouble), "-trouble")
        useful = self.check_action("member", ()), self.check_action("stream", ())
        if useful != self._useful:
            # The footer is made anew by this.
            self._useful = useful
            self.refresh_bindings()
        choice = describe_choice(session.choice, session.streams)
        paths = {stream.path for stream in (document.streams if document is not None else ())}
        path = next(iter(paths)) if len(paths) == 1 else ""
        self.say("head", "  │  ".join(filter(None, (self.target.label, choice, path))))

    # --- moving -------------------------------------------------------------------------------------------------------

    def on_log_view_scrolled(self, event: LogView.Scrolled) -> None:
        """Read more, where the reader goes towards an end of what is here."""
        self.wants, self._reads = (1 if event.by > 0 else -1), MOST_READS
        self._turn_over()
        self._describe()
        self.session.go_on()

    def action_first(self) -> None:
        """Show the beginning."""
        document = self.session.document
        if document is not None and not self.session.only and document.want_before():
            self.view.following = False
            self.session.read(document.want_begin(), self.view.go_to_begin)
        else:
            self.view.go_to_begin()
        self._describe()

    def action_follow(self) -> None:
        """Show the end, and what is written."""
        document = self.session.document
        self.view.go_to_end()
        if document is not None and not self.session.only and document.behind:
            self.session.read(document.want_end())
        self._describe()

    def on_log_view_pointed(self, event: LogView.Pointed) -> None:
        """A place of the bar was clicked."""
        self._go_to_percent(event.share * 100)

    def _go_to_percent(self, percent: float) -> None:
        document, view = self.session.document, self.view
        if document is None:
            return
        if document.whole or self.session.only:
            share = percent / 100
            rows = view.rows
            place = next((at for at, row in enumerate(rows) if document.locate(row) >= share), len(rows) - 1)
            view.go_to(max(0, place))
        else:
            view.following = False
            self.session.read(document.want_percent(percent), view.go_to_begin)
        self._describe()

    def _go_to_time(self, text: str) -> None:
        document = self.session.document
        if document is None:
            return
        try:
            at = read_since(text, self.now())
        except ValueError:
            raise ValueError(f"{text!r}: write per cent (50), a time (14:05), or how long ago (10m)") from None
        if not document.timed:
            raise ValueError("when this was written is not known")

        def show() -> None:
            rows = self.view.rows
            self.view.go_to(
                next((place for place, row in enumerate(rows) if (row.at or 0) >= at), max(0, len(rows) - 1))
            )

        self.view.following = False
        if document.whole or self.session.only:
            show()
        else:
            self.session.read(document.want_time(at), show)
        self._describe()

    # --- what is shown ------------------------------------------------------------------------------------------------

    def _choose(self, choice: Choice) -> None:
        if choice != self.session.choice:
            self.view.set_pattern(None)
            self.session.choose(choice)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that have something to do; the footer shows no others."""
        if action == "member":
            return len(list_members(self.session.streams)) > 1
        if action == "stream":
            return len({stream.stream for stream in self.session.streams}) > 1
        return True

    def action_member(self, by: int) -> None:
        """Another task, node or element; or all."""
        self._choose(choose_member(self.session.choice, self.session.streams, by))

    def action_attempt(self, by: int) -> None:
        """Another attempt."""
        wanted = choose_attempt(self.session.choice, self.session.streams, by)
        if wanted == self.session.choice:
            self.notify("there is no such attempt", markup=False)
        self._choose(wanted)

    def action_stream(self) -> None:
        """Output, error, or both."""
        self._choose(choose_kind(self.session.choice, self.session.streams))

    def set_options(self, options: ViewOptions) -> None:
        """Show the lines otherwise."""
        super().set_options(options)
        self._describe()

    def action_times(self) -> None:
        """Show when lines came, or not."""
        self.set_options(self.view.options._replace(times=not self.view.options.times))
        if self.view.options.times and self.session.document is not None and not self.session.document.timed:
            self.notify("when this was written is not known", markup=False)

    def action_numbers(self) -> None:
        """Show the numbers of lines, or not."""
        super().action_numbers()
        if self.view.options.numbers and all(row.number is None for row in self.view.rows):
            self.notify("lines are counted from the log's beginning: `g` goes there", markup=False)

    def action_mark(self) -> None:
        """Draw a line below what there is now."""
        if self.session.document is not None:
            self.session.document.mark(format_mark(self.now()))
            self.draw()

    # --- prompts ------------------------------------------------------------------------------------------------------

    def action_prompt(self, what: str) -> None:
        """Ask for a text; for what is searched also before it is known which logs there are."""
        if self.session.document is None and what not in ("search", "only"):
            return
        self._prompted = what
        value = suggest_name(self.target, self.session.choice) if what == "save" else ""
        self.open_prompt(_SIGNS[what], _EXAMPLES[what], value)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Mark what matches while it is typed."""
        if self._prompted == "search" and event.value:
            try:
                self.view.set_pattern(compile_pattern(event.value))
            except ValueError:
                self.view.set_pattern(None)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Do what was asked for; a wrong text is said, and stays."""
        event.stop()
        what, text = self._prompted, event.value.strip() if self._prompted != "search" else event.value
        try:
            self._answer_prompt(what, text)
        except ValueError as error:
            self.notify(clean_text(str(error)), severity="error", markup=False)
            return
        self.close_prompt()

    def _answer_prompt(self, what: str, text: str) -> None:
        if what in ("search", "only"):
            self._search(text, only=what == "only")
        elif what == "save" and text:
            self._save(os.path.expanduser(text))
        elif what == "place" and text:
            percent = read_percent(text)
            if percent is None:
                self._go_to_time(text)
            else:
                self._go_to_percent(percent)

    def close_prompt(self) -> None:
        """Go back to the lines."""
        self._prompted = ""
        super().close_prompt()

    def _search(self, text: str, *, only: bool) -> None:
        if not text and self.session.search is not None and not only:
            self.action_hit(True)
        elif not text:
            self._end_search()
        else:
            self.session.begin_search(text, only, self._find_near())
            self.mark_matches()
            if only:
                self.view.go_to_end()
            self.draw()

    def mark_matches(self) -> None:
        """Mark what the search is for."""
        search = self.session.search
        self.view.set_pattern(None if search is None or search.inverted else search.expression)

    def _end_search(self) -> None:
        shown = self.view.last_row if self.session.only and not self.view.following else None
        self.session.end_search()
        self.view.set_pattern(None)
        self.draw()
        if shown is not None:
            self.show_hit(shown)

    def action_hit(self, older: bool) -> None:
        """Go to another match."""
        session = self.session
        if session.search is None:
            self.notify("`/` searches", markup=False)
            return
        before = session.hit
        session.find_hit(older, self._find_near())
        if session.hit is before and session.awaited is None:
            words = "older" if older else "newer"
            self.notify(f"no {words} match" if session.search.count else "nothing found", markup=False)
        self._describe()

    # --- files and programs -------------------------------------------------------------------------------------------

    def _save(self, path: str) -> None:
        document, reader = self.session.document, self.session.reader
        if document is None or not document.streams:
            self.notify("the log is empty", markup=False)
            return
        streams, stopped, shown = document.streams, self._stopped, clean_text(path)
        self.notify(f"saving to {shown}", markup=False)
        self.top.questions.ask(
            "log-save",
            lambda source: reader.save(source, streams, path, stopped),
            lambda size: self.app.notify(f"{shown}: {format_bytes(size)} saved", markup=False),
            self._tell,
        )

    def _tell(self, error: OverspanError) -> None:
        self.app.notify(tell_error(error), severity="error", markup=False)

    def action_pager(self) -> None:
        """Open the log in the pager."""
        open_log(self, self.session, ("PAGER",), ("less -R", "more"))

    def action_editor(self) -> None:
        """Open the log in the editor."""
        open_log(self, self.session, ("VISUAL", "EDITOR"), ("vim -R", "vi", "nano"))

    def action_close(self) -> None:
        """Close the prompt, the search, or the log."""
        if self._prompted:
            if self._prompted == "search" and self.session.search is None:
                self.view.set_pattern(None)
            self.close_prompt()
        elif self.session.search is not None:
            self._end_search()
        else:
            self.dismiss()
