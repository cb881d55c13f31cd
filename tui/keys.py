"""The keys, as data: bindings, footer, help, palette and the page in the docs are made of this table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from textual.binding import Binding


class KeyAction(NamedTuple):
    """An action and its keys in a scope. `id` is what a configuration remaps it by; `hint`: the footer shows it."""

    id: str
    keys: str
    action: str
    title: str
    help: str = ""
    hint: bool = False

    @property
    def scope(self) -> str:
        """Where the keys count: `app`, `list`, a place, or a dialog."""
        return self.id.partition(".")[0]


APP: tuple[KeyAction, ...] = (
    KeyAction("app.help", "question_mark", "help", "help", "what the keys do here", hint=True),
    KeyAction(
        "app.palette", "colon", "command_palette", "go to", "a place, a filter, an action, by its name", hint=True
    ),
    KeyAction("app.quit", "q", "quit_top", "quit", "close what is open, then end"),
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

DETAIL: tuple[KeyAction, ...] = (
    KeyAction("detail.next_section", "right_square_bracket", "detail_section(1)", "next section", "of the details"),
    KeyAction("detail.previous_section", "left_square_bracket", "detail_section(-1)", "section before"),
    KeyAction("detail.scroll_down", "J", "detail_scroll(1)", "scroll details down"),
    KeyAction("detail.scroll_up", "K", "detail_scroll(-1)", "scroll details up"),
    KeyAction("detail.zoom", "z", "detail_zoom", "full screen", "the details alone, and back"),
    KeyAction("detail.close", "escape", "detail_close", "close details"),
)
"""Where the detail pane is open: from the list, too."""

LOGS: tuple[KeyAction, ...] = ()
NODES: tuple[KeyAction, ...] = ()
HISTORY: tuple[KeyAction, ...] = ()
CLUSTERS: tuple[KeyAction, ...] = ()
SCHEDULES: tuple[KeyAction, ...] = ()
DIALOG: tuple[KeyAction, ...] = ()

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
)
"""All of them."""


def find_keys(scope: str) -> Iterable[KeyAction]:
    """The actions of a scope."""
    return (key for key in KEYS if key.scope == scope)


def bind(scope: str) -> list[Binding]:
    """The bindings of a scope, as Textual has them."""
    return [
        Binding(key.keys, key.action, key.title, show=key.hint, tooltip=key.help, id=key.id) for key in find_keys(scope)
    ]
