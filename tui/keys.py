"""The keys, as data: bindings, footer, help, palette and the page in the docs are made of this table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from textual.binding import Binding


class KeyAction(NamedTuple):
    """An action and its keys in a scope. `id` is what a configuration remaps it by; `hint`: the footer shows it.

    `always`: it counts before everything else, above an open dialog and in an input too.
    """

    id: str
    keys: str
    action: str
    title: str
    help: str = ""
    hint: bool = False
    always: bool = False

    @property
    def scope(self) -> str:
        """Where the keys count: `app`, `list`, a place, or a dialog."""
        return self.id.partition(".")[0]

    @property
    def closes(self) -> bool:
        """Whether it closes something: the innermost that is open takes such a key."""
        return self.id.rpartition(".")[2] in ("back", "close", "quit")


APP: tuple[KeyAction, ...] = (
    KeyAction("app.help", "question_mark", "help", "help", "what the keys do here", hint=True),
    KeyAction("app.palette", "colon", "palette", "go to", "a place, a filter, an action, by its name", hint=True),
    KeyAction("app.back", "escape", "close_open", "back", "close what is open"),
    KeyAction("app.quit", "q", "quit_top", "quit", "close what is open, then end"),
    KeyAction("app.interrupt", "ctrl+c", "interrupt", "copy or end", "copy what is selected; else end", always=True),
    KeyAction("app.suspend", "ctrl+z", "suspend_process", "to the shell", "`fg` comes back"),
    KeyAction("app.again", "r", "again", "ask anew", "ask the daemon now; start one that does not run"),
    KeyAction("app.place_1", "1", "place('queue')", "Queue"),
    KeyAction("app.place_4", "4", "place('nodes')", "Nodes"),
    KeyAction("app.place_5", "5", "place('history')", "History"),
    KeyAction("app.place_6", "6", "place('clusters')", "Clusters"),
    KeyAction("app.place_7", "7", "place('schedules')", "Schedules"),
)

LIST: tuple[KeyAction, ...] = (
    KeyAction("list.up", "up,k", "move(-1)", "up"),
    KeyAction("list.down", "down,j", "move(1)", "down"),
    KeyAction("list.page_up", "pageup,ctrl+b", "page(-1)", "page up"),
    KeyAction("list.page_down", "pagedown,ctrl+f", "page(1)", "page down"),
    KeyAction("list.half_up", "ctrl+u", "page(-0.5)", "half a page up"),
    KeyAction("list.half_down", "ctrl+d", "page(0.5)", "half a page down"),
    KeyAction("list.first", "home,g", "first", "first line"),
    KeyAction("list.last", "end,G", "last", "last line"),
    KeyAction("list.open", "enter", "open", "open"),
    KeyAction("list.mark", "space", "mark", "mark", "mark the line, or take its mark away"),
    KeyAction("list.mark_range", "shift+down,V", "mark_range", "mark to here", "all from the last mark to the cursor"),
    KeyAction("list.mark_all", "ctrl+a", "mark_all", "mark all", "all lines that are shown"),
    KeyAction("list.unmark", "backslash", "unmark", "clear marks"),
)

QUEUE: tuple[KeyAction, ...] = (
    KeyAction(
        "queue.filter", "slash", "filter", "filter", "words, `state:r`, `user:ana`; `!` in front inverts", hint=True
    ),
    KeyAction("queue.fold", "left,minus", "fold", "fold", "of a member: its group or array"),
    KeyAction("queue.unfold", "right,plus", "unfold", "unfold"),
    KeyAction("queue.fold_all", "asterisk", "fold_all", "fold or unfold all"),
    KeyAction("queue.owner", "f", "owner", "mine / all", "whose jobs are shown", hint=True),
    KeyAction("queue.ended", "e", "ended", "ended too", "jobs that ended a short while ago", hint=True),
    KeyAction("queue.sort", "s", "sort", "sort", "by the next column", hint=True),
    KeyAction("queue.reverse", "S", "reverse", "reverse the order"),
)

JOB: tuple[KeyAction, ...] = (
    KeyAction("job.logs", "o", "logs", "log", "what the job prints", hint=True),
    KeyAction("job.describe", "d", "describe", "details", "timeline, tasks, reason, script", hint=True),
    KeyAction("job.cancel", "c", "order('cancel')", "cancel", "asks first", hint=True),
)
"""On the lines of jobs: the queue's, the history's."""

DETAIL: tuple[KeyAction, ...] = ()
LOGS: tuple[KeyAction, ...] = ()
NODES: tuple[KeyAction, ...] = ()
HISTORY: tuple[KeyAction, ...] = ()
CLUSTERS: tuple[KeyAction, ...] = ()
SCHEDULES: tuple[KeyAction, ...] = ()
DIALOG: tuple[KeyAction, ...] = ()

HELP: tuple[KeyAction, ...] = (
    KeyAction("help.close", "escape,q,question_mark", "close", "close", hint=True),
    KeyAction("help.up", "up,k", "scroll(-1)", "up"),
    KeyAction("help.down", "down,j", "scroll(1)", "down"),
    KeyAction("help.page_up", "pageup,ctrl+b", "page(-1)", "page up"),
    KeyAction("help.page_down", "pagedown,ctrl+f,space", "page(1)", "page down"),
    KeyAction("help.first", "home,g", "edge(False)", "first line"),
    KeyAction("help.last", "end,G", "edge(True)", "last line"),
)

PALETTE: tuple[KeyAction, ...] = (
    KeyAction("palette.close", "escape", "close", "close"),
    KeyAction("palette.up", "up,ctrl+p", "choose(-1)", "the one above"),
    KeyAction("palette.down", "down,ctrl+n", "choose(1)", "the one below"),
    KeyAction("palette.complete", "tab", "complete", "complete", "write the chosen one into the line"),
)

KEYS = (
    *APP,
    *LIST,
    *QUEUE,
    *JOB,
    *DETAIL,
    *LOGS,
    *NODES,
    *HISTORY,
    *CLUSTERS,
    *SCHEDULES,
    *DIALOG,
    *HELP,
    *PALETTE,
)
"""All of them."""

SCOPES = {
    "app": "Everywhere",
    "list": "In lists",
    "queue": "Queue",
    "job": "Jobs",
    "detail": "Details",
    "logs": "Logs",
    "nodes": "Nodes",
    "history": "History",
    "clusters": "Clusters",
    "schedules": "Schedules",
    "dialog": "Dialogs",
    "help": "Help",
    "palette": "The line after `:`",
}
"""The scopes, with their titles in help and documentation."""

TOGETHER = (
    ("app", "list", "queue", "job"),
    ("app", "detail", "queue", "job"),
    ("app", "list", "history", "job"),
    ("app", "detail", "history", "job"),
    ("app", "list", "nodes"),
    ("app", "list", "clusters"),
    ("app", "list", "schedules"),
    ("app", "logs"),
    ("dialog",),
    ("help",),
    ("palette",),
)
"""Scopes whose keys count at the same time: a key stands for one action in each of these."""


def find_keys(scope: str) -> Iterable[KeyAction]:
    """The actions of a scope."""
    return (key for key in KEYS if key.scope == scope)


def bind(scope: str) -> list[Binding]:
    """The bindings of a scope, as Textual has them."""
    return [
        Binding(key.keys, key.action, key.title, show=key.hint, tooltip=key.help, id=key.id, priority=key.always)
        for key in find_keys(scope)
    ]
