"""The screen of a check: what works on a cluster, and what to do about the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.errors import OverspanError
from overspan.tui.clusters.findings import FindingLine, count_faults, report_error, report_findings
from overspan.tui.daemon.source import Source
from overspan.tui.keyboard.keys import bind
from overspan.tui.widgets.line_table import Cell, LineTable, TableColumn

if TYPE_CHECKING:
    from overspan.tui.app import TopApp

_Report = Callable[[int], list[FindingLine]]
"""Makes the report for a width."""


class CheckScreen(ModalScreen[None]):
    """Checks a cluster in the background and lists what was found."""

    DEFAULT_CSS = """
    CheckScreen { align: center middle; }
    CheckScreen > Vertical {
        width: 90%; max-width: 120; height: auto; max-height: 80%; border: round $primary; padding: 0 1;
    }
    CheckScreen Static { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bind("check")]

    def __init__(self, cluster: str) -> None:
        super().__init__()
        self.cluster = cluster
        self._began: float | None = None
        self._outcome = ""
        self._report: _Report = lambda width: []

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(markup=False)
            column: TableColumn[FindingLine] = TableColumn(
                "text", "", 10, lambda line, now: Cell(line.text, line.style), wide=True
            )
            yield LineTable[FindingLine]([column], time.time)

    @property
    def _top(self) -> TopApp:
        from overspan.tui.app import TopApp

        assert isinstance(self.app, TopApp)
        return self.app

    def on_mount(self) -> None:
        """Begin."""
        self.query_one(LineTable).focus()
        self.set_interval(1.0, self._tell)
        self.action_check()

    def on_resize(self) -> None:
        """Wrap the report anew."""
        self.call_after_refresh(self._draw)

    def action_check(self) -> None:
        """Check, or check again; one check at a time."""
        if self._began is not None:
            return
        self._began, self._outcome = time.monotonic(), ""
        self._top.questions.ask("check", self._ask, self._take, self._fail)
        self._tell()

    def action_close(self) -> None:
        """Go back; the check ends by itself."""
        self.dismiss()

    def _ask(self, source: Source) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The findings, and how to log in: a cluster without logins has nothing to say."""
        findings = source.check(self.cluster)
        try:
            return findings, {**source.login(self.cluster), "cluster": self.cluster}
        except OverspanError:
            return findings, {}

    def _take(self, answer: tuple[list[dict[str, Any]], dict[str, Any]]) -> None:
        findings, login = answer
        self._end(count_faults(findings), lambda width: report_findings(findings, login, width))

    def _fail(self, error: OverspanError) -> None:
        self._end("it could not be checked", lambda width: report_error(error.message, error.remedy, width))

    def _end(self, outcome: str, report: _Report) -> None:
        if not self.is_attached:
            return
        self._began, self._outcome, self._report = None, outcome, report
        self._tell()
        self._draw()

    def _tell(self) -> None:
        """Say how it stands."""
        seconds = 0.0 if self._began is None else time.monotonic() - self._began
        text = self._outcome if self._began is None else f"checking... {seconds:.0f} s"
        self.query_one(Static).update(Content(clean_text(f"Check of {self.cluster}: {text}")))

    def _draw(self) -> None:
        table = self.query_one(LineTable)
        lines = self._report(max(1, table.size.width - 2))
        # As high as what it holds, with the line above it.
        table.styles.height = min(len(lines) + 1, max(3, self.size.height * 7 // 10))
        table.set_lines(lines)
