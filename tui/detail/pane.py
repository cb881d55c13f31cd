"""The detail pane: everything about the job under the cursor, asked for when the cursor rests."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, TypeVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.state_words import ENDED_WORDS, LIVE_WORDS
from overspan.tui.actions.target import Target
from overspan.tui.daemon.error_words import word_error
from overspan.tui.daemon.source import Source
from overspan.tui.detail.answers import JobAnswers, ask_job
from overspan.tui.detail.dependencies import draw_graph, index_rows
from overspan.tui.detail.layout import DetailLine, DetailText, VerbatimText, lay_out
from overspan.tui.detail.log_tail import TailFollower, tell_output
from overspan.tui.detail.sections import DetailSection, make_sections
from overspan.tui.keyboard.keys import bind
from overspan.tui.queue.tree import Kind

if TYPE_CHECKING:
    from overspan.tui.app import TopApp

T = TypeVar("T")
REST_SECONDS = 0.15
"""How long the cursor has to rest on a job before it is asked for."""
NEWS_SECONDS = 0.5
"""How long after a change of its line the job is asked for again: more changes may come."""
BESIDE_FROM = 120
"""Columns from which the pane is beside the list."""
_ASCII = str.maketrans("░▒▓█─…│├┌└", ".-=#-~||,`")
_SCROLLING = ("move(-1)", "move(1)", "page(-1)", "page(1)", "page(-0.5)", "page(0.5)", "first", "last")


class DetailPane(ScrollView, can_focus=True, inherit_bindings=False):
    """What is known of the job under the cursor. A sticky title, then the sections, painted line by line."""

    ALLOW_SELECT = True
    DEFAULT_CSS = """
    DetailPane {
        height: 50%; display: none; background: $background; scrollbar-size: 1 1; scrollbar-gutter: stable;
        overflow-x: hidden;
    }
    DetailPane.-beside { dock: right; width: 50%; height: 100%; border-left: vkey $panel; }
    DetailPane.-maximized { width: 100%; height: 1fr; dock: none; border: none; }
    DetailPane .detail--head { background: $panel; color: $foreground; text-style: bold; }
    DetailPane .detail--title { color: $text-accent; text-style: bold; }
    DetailPane .detail--dim { color: $text-muted; }
    DetailPane .detail--good { color: $text-success; }
    DetailPane .detail--busy { color: $text-primary; }
    DetailPane .detail--waiting { color: $text-warning; }
    DetailPane .detail--bad { color: $text-error; text-style: bold; }
    DetailPane .detail--ended { color: $text-disabled; }
    DetailPane .detail--accent { color: $text-accent; }
    DetailPane .detail--text { color: $foreground; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "detail--" + name
        for name in ("head", "title", "dim", "good", "busy", "waiting", "bad", "ended", "accent", "text")
    }
    BINDINGS: ClassVar[list[BindingType]] = [each for each in bind("list") if each.action in _SCROLLING]

    def __init__(self) -> None:
        super().__init__()
        self._target: Target | None = None
        self._answers: JobAnswers | None = None
        self._answered = ("", "")
        self._graph: tuple[str, ...] = ()
        self._trouble = ""
        self._waiting = False
        self._rest: Timer | None = None
        self._asks_soon = False
        self._numbers = itertools.count(1)
        self._wanted = 0
        self._lines: list[DetailLine] = []
        self._starts: dict[str, int] = {}
        """The line that each section begins with, by its title."""
        self._tail = TailFollower(self._ask_daemon, self._draw)

    @property
    def _top(self) -> TopApp:
        from overspan.tui.app import TopApp

        assert isinstance(self.app, TopApp)
        return self.app

    def on_mount(self) -> None:
        """Times go on."""
        self.set_interval(1.0, self._tick)

    # --- what is shown ------------------------------------------------------------------------------------------------

    def describe(self, target: Target | None) -> None:
        """Show another job, the same one anew where its line has changed, or none."""
        if target == self._target and not self._trouble:
            return
        same = target is not None and self._identify(target) == self._identify(self._target)
        self._target = target
        if same and self._asks_soon:
            # A line that changes all the time is asked about all the same.
            return
        self._wanted = next(self._numbers)
        if self._rest is not None:
            self._rest.stop()
        self._asks_soon = target is not None
        self._waiting = target is not None and (not same or self._answers is None)
        if not same:
            self._tail.forget()
        if target is None:
            self._answers, self._trouble = None, ""
        else:
            self._rest = self.set_timer(NEWS_SECONDS if same else REST_SECONDS, self._ask)
        if not same:
            self.scroll_to(y=0, animate=False, force=True)
            self._draw()

    @staticmethod
    def _identify(target: Target | None) -> tuple[str, str]:
        return ("", "") if target is None else (target.cluster, target.ref)

    def _ask(self) -> None:
        self._asks_soon = False
        target, wanted = self._target, self._wanted
        if target is None:
            return

        def take(answers: JobAnswers) -> None:
            if wanted == self._wanted:
                self._answers, self._trouble, self._waiting = answers, "", False
                self._graph = self._draw_dependencies(answers)
                self._answered = self._identify(target)
                self._draw()
                # An array has logs in its elements; what waits has none.
                if target.kind is not Kind.ARRAY and "[" not in target.ref and answers.job.get("state") != "PENDING":
                    self._tail.look(target.ref)

        def fail(error: OverspanError) -> None:
            if wanted == self._wanted:
                # What was known of this job stays; what is known of another one must not stand below its name.
                if self._answered != self._identify(target):
                    self._answers = None
                self._trouble, self._waiting = word_error(error.message, error.remedy), False
                self._draw()

        line = target.row.submit_line
        self._ask_daemon("detail", lambda source: ask_job(source, target.ref, line), take, fail)

    def _ask_daemon(
        self, kind: str, ask: Callable[[Source], T], take: Callable[[T], None], fail: Callable[[OverspanError], None]
    ) -> None:
        self._top.questions.ask(kind, ask, take, fail)

    @property
    def _runs(self) -> bool:
        """Whether the job that is shown may print something."""
        state = "" if self._answers is None else str(self._answers.job.get("state"))
        return state in LIVE_WORDS and state != "PENDING"

    def _draw_dependencies(self, answers: JobAnswers) -> tuple[str, ...]:
        """The graph, from the rows of the queue."""
        rows = [each.row for node in self._top.queue.jobs for each in (node.children or (node,))]
        job = answers.job
        number = int(str(job.get("element") or job.get("id") or 0).partition("_")[0])
        return tuple(draw_graph(number, str(job.get("dependency") or ""), index_rows(rows)))

    def _tick(self) -> None:
        job = {} if self._answers is None else self._answers.job
        if self.display and job and job.get("state") not in ENDED_WORDS:
            self._draw()
            if self._runs and self._in_view:
                self._tail.look_again()

    @property
    def _in_view(self) -> bool:
        """Whether the pane is on the screen, and its updates are not paused."""
        top = self._top
        return self.screen.is_active and self in top.place.query(DetailPane) and top.paused_since is None

    def _draw(self) -> None:
        """Lay the sections out; only what became another line is painted."""
        width = max(1, self.scrollable_content_region.width - 1)
        before, self._lines = self._lines, []
        starts, self._starts = self._starts, {}
        for section in self._make_sections():
            self._lines += [(DetailText(section.title, "title"),)] if self._starts else []
            self._starts[section.title] = len(self._lines) - bool(self._starts)
            self._lines += [line for block in section.blocks for line in lay_out(block, width)]
            self._lines.append(())
        if before != self._lines or self._waiting:
            self.virtual_size = Size(self.size.width, len(self._lines) + 1)
            self._stay(starts)
            self.refresh()

    def _stay(self, before: Mapping[str, int]) -> None:
        """Stay where the user reads when something above that comes or grows."""
        here = self.scroll_offset.y
        title = max((name for name, start in before.items() if start <= here), key=before.__getitem__, default=None)
        if here and title in self._starts and self._starts[title] != before[title]:
            self._go(here + self._starts[title] - before[title])

    def _make_sections(self) -> list[DetailSection]:
        if self._answers is None:
            text = self._trouble or ("asking the daemon..." if self._waiting else "no job")
            return [DetailSection("", (VerbatimText((text,)),))]
        sections = make_sections(self._answers, time.time() + self._top.clock_offset)
        output = None if self._tail.found is None else tell_output(self._tail.found, self._runs)
        if output is not None:
            sections.insert(1, output)
        if self._graph:
            sections.insert(1, DetailSection("Dependencies", (VerbatimText(self._graph),)))
        return [DetailSection("", (VerbatimText((self._trouble,)),)), *sections] if self._trouble else sections

    def on_resize(self) -> None:
        """Wrap anew."""
        self._draw()

    # --- painting -----------------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """The title, then lines from the scrolled place on."""
        width = self.size.width
        if y == 0:
            label = "" if self._target is None else self._target.label
            return Strip([Segment(set_cell_size(f" {label}", width), self._style("head"))], width)
        place = self.scroll_offset.y + y - 1
        base = self._style("text")
        if place >= len(self._lines):
            return Strip([Segment(" " * width, base)], width)
        parts = [Segment(" ", base)]
        for text, name in self._lines[place]:
            text = text.translate(_ASCII) if self._top.options.ascii else text
            parts.append(Segment(text, self._style("dim" if self._waiting else name or "text")))
        return Strip(parts).adjust_cell_length(width, base).apply_offsets(0, place)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style("detail--" + name)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text that the mouse has selected."""
        rows = (" " + "".join(piece.text for piece in line) for line in self._lines)
        return selection.extract("\n".join(rows)), "\n"

    def text(self) -> str:
        """Everything that the pane tells, as plain text."""
        return "\n".join("".join(clean_text(piece.text) for piece in line).rstrip() for line in self._lines)

    # --- scrolling ----------------------------------------------------------------------------------------------------

    def _go(self, line: float) -> None:
        self.scroll_to(y=max(0, line), animate=False, force=True)

    def action_move(self, by: int) -> None:
        """Scroll by lines."""
        self._go(self.scroll_offset.y + by)

    def action_page(self, pages: float) -> None:
        """Scroll by parts of the pane."""
        self._go(self.scroll_offset.y + int((self.size.height - 2) * pages))

    def action_first(self) -> None:
        """Go to the beginning."""
        self._go(0)

    def action_last(self) -> None:
        """Go to the end."""
        self._go(len(self._lines))

    def go_to_section(self, by: int) -> None:
        """Bring the next section, or the one before, to the top."""
        here = self.scroll_offset.y
        later = [start for start in self._starts.values() if start > here]
        earlier = [start for start in self._starts.values() if start < here]
        self._go((later[0] if later else here) if by > 0 else (earlier[-1] if earlier else 0))
