"""A shell beside the work: what `span shell` runs, on the terminal that the screen lends until it ends."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.errors import OverspanError
from overspan.tui.actions.target import Target
from overspan.tui.daemon.error_words import word_error
from overspan.tui.daemon.source import Source
from overspan.tui.dialogs.order_dialog import GivenOrder, OrderDialog, OrderQuestion, list_lines
from overspan.tui.options import TopOptions
from overspan.tui.queue.tree import Kind
from overspan.tui.terminal.lent_terminal import lend_terminal

if TYPE_CHECKING:
    from overspan.tui.app import TopApp


class ShellMember(NamedTuple):
    """A node of a task that has started."""

    task: str
    node: int
    state: str = ""
    host: str = ""

    @property
    def name(self) -> str:
        """As `span logs` calls it."""
        return f"{self.task}-{self.node}"


def refuse_shells(options: TopOptions) -> str:
    """Why there is no shell here; empty where there is."""
    if options.web:
        return "there is no shell in a browser: `span shell` opens one on a terminal"
    return "read-only: no shell is opened" if options.read_only else ""


def list_shell_members(job: Mapping[str, Any], offset: int | None = None) -> list[ShellMember]:
    """The nodes that have started of a job that `show` tells of, or of its task at an offset."""
    return [
        ShellMember(task["name"], node["index"], task["state"], node["node"])
        for task in job.get("tasks") or ()
        if offset is None or task["offset"] == offset
        for attempt in task["attempts"][-1:]
        for node in attempt["nodes"]
    ]


def open_shell(app: TopApp, target: Target) -> None:
    """Open a shell at the target; where that has several nodes, at the one that the user chooses."""
    refusal = refuse_shells(app.options)
    if refusal:
        app.notify(refusal, severity="warning", markup=False)
        return
    offset = target.row.task_offset if target.kind is Kind.TASK else None
    screen, place = app.screen, app.place

    def choose(members: list[ShellMember]) -> None:
        if app.screen is not screen or app.place is not place:
            # The user has gone on.
            return
        if len(members) < 2:
            # The daemon says why there is none.
            _enter(app, target, members[0] if members else ShellMember("", 0))
            return
        named = {member.name: member for member in members}
        choices = [(name, f"{member.state} on {member.host}") for name, member in named.items()]

        def take(given: GivenOrder | None) -> None:
            if given is not None:
                _enter(app, target, named[given.value])

        app.push_screen(
            OrderDialog(OrderQuestion("Shell: where?", list_lines([target]), "Open shell", (), choices)), take
        )

    app.questions.ask(
        "shell",
        lambda source: list_shell_members(source.show(target.ref), offset),
        choose,
        lambda error: _tell(app, target, error),
    )


def _enter(app: TopApp, target: Target, member: ShellMember) -> None:
    screen = app.screen

    def ask(source: Source) -> dict[str, Any]:
        return source.shell(target.ref, member.task, member.node)

    def take(found: dict[str, Any]) -> None:
        if app.screen is screen:
            greeting = f"{found['place']}; `exit` comes back, and the job goes on"
            lend_terminal(screen, found["words"], {**os.environ, **found["environment"]}, greeting)

    app.questions.ask("shell", ask, take, lambda error: _tell(app, target, error))


def _tell(app: TopApp, target: Target, error: OverspanError) -> None:
    text = clean_text(f"{target.label}: {word_error(error.message, error.remedy)}")
    app.notify(text, title="no shell", severity="warning", markup=False)
