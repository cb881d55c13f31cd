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
    KeyAction("app.back", "escape", "close_open", "back", "close what is open, then notes"),
    KeyAction("app.quit", "q", "quit_top", "quit", "close what is open, then end"),
    KeyAction("app.interrupt", "ctrl+c", "interrupt", "copy or end", "copy what is selected; else end", always=True),
    KeyAction("app.suspend", "ctrl+z", "suspend_process", "to the shell", "`fg` comes back"),
    KeyAction("app.again", "r", "again", "ask anew", "ask the daemon now; start one that does not run"),
    KeyAction("app.pause", "p", "pause", "pause", "let the display stand still, or follow again"),
    KeyAction("app.place_1", "1", "place('queue')", "Queue"),
    KeyAction("app.place_2", "2", "place('evaluations')", "Evaluations"),
    KeyAction("app.place_3", "3", "place('pools')", "Pools"),
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
    KeyAction("list.mark_down", "shift+down", "extend(1)", "mark downwards", "this line and the next"),
    KeyAction("list.mark_up", "shift+up", "extend(-1)", "mark upwards", "this line and the one above"),
    KeyAction("list.mark_range", "V", "mark_range", "mark to here", "all from the last mark to the cursor"),
    KeyAction("list.mark_all", "ctrl+a", "mark_all", "mark all", "all lines that are shown"),
    KeyAction("list.unmark", "backslash", "unmark", "clear marks"),
)

QUEUE: tuple[KeyAction, ...] = (
    KeyAction(
        "queue.filter", "slash", "filter", "filter", "words, `state:r`, `user:ana`; `!` in front inverts", hint=True
    ),
    KeyAction("queue.fold", "left,minus", "fold", "fold", "of a member: go to its group or array"),
    KeyAction("queue.unfold", "right,plus", "unfold", "unfold"),
    KeyAction("queue.fold_all", "asterisk", "fold_all", "fold or unfold all"),
    KeyAction("queue.owner", "f", "owner", "mine / all", "whose jobs: mine, my groups', all", hint=True),
    KeyAction("queue.ended", "e", "ended", "ended too", "jobs that ended a while ago", hint=True),
    KeyAction("queue.sort", "s", "sort", "sort", "by any field", hint=True),
    KeyAction("queue.reverse", "S", "reverse", "reverse the order"),
    KeyAction("queue.sort_left", "shift+left", "sort_beside(-1)", "sort left", "by the column to the left"),
    KeyAction("queue.sort_right", "shift+right", "sort_beside(1)", "sort right", "by the column to the right"),
    KeyAction("queue.columns", "C", "columns", "columns", "choose them, and their order"),
)

FILTER: tuple[KeyAction, ...] = (
    KeyAction("filter.keep", "enter", "keep", "keep", "go back to the lines with the filter", hint=True),
    KeyAction("filter.close", "escape", "drop", "drop", "go back to the lines without it", hint=True),
    KeyAction("filter.older", "up", "older", "an earlier filter"),
    KeyAction("filter.newer", "down", "newer", "a later filter"),
    KeyAction("filter.complete", "tab", "complete", "complete", "take the field or value that is proposed", hint=True),
)
"""While a filter is typed."""

CHOICE: tuple[KeyAction, ...] = (
    KeyAction("choice.down", "down,j", "cursor_down", "down"),
    KeyAction("choice.up", "up,k", "cursor_up", "up"),
    KeyAction("choice.first", "home,g", "first", "first line"),
    KeyAction("choice.last", "end,G", "last", "last line"),
    KeyAction("choice.take", "enter", "select", "take it"),
    KeyAction("choice.close", "escape,q", "drop", "change nothing"),
)
"""In a dialog that offers fields."""

COLUMNS: tuple[KeyAction, ...] = (
    KeyAction("columns.choose", "space", "choose", "choose", "show the field as a column, or not"),
    KeyAction("columns.left", "shift+up,K", "shift(-1)", "to the left"),
    KeyAction("columns.right", "shift+down,J", "shift(1)", "to the right"),
    KeyAction("columns.default", "0", "default", "default", "the queue's own columns"),
)
"""In the dialog of the columns, besides."""

JOB: tuple[KeyAction, ...] = (
    KeyAction("job.logs", "o", "logs", "log", "what the job prints", hint=True),
    KeyAction("job.describe", "d", "describe", "details", "timeline, tasks, reason, script", hint=True),
    KeyAction("job.texts", "b", "texts", "as sent", "script or manifests as the cluster got them, environment"),
    KeyAction("job.shell", "exclamation_mark", "shell", "shell", "beside the work; the job goes on"),
    KeyAction("job.evaluations", "v", "evaluations", "its evaluations", "of the job's checkpoints, with their scores"),
    KeyAction("job.watch", "i", "watch", "watch", "tell me when it ends; again: do not"),
    KeyAction("job.copy", "y", "copy_id", "copy id", "to the terminal's clipboard"),
    KeyAction("job.order_log", "L", "order_log", "order log", "what was ordered, and the answers"),
    KeyAction("job.cancel", "c", "order('cancel')", "cancel", "asks first", hint=True),
    KeyAction("job.signal", "x", "order('signal')", "signal", "choose one to send"),
    KeyAction("job.hold", "H", "order('hold')", "hold", "a waiting job does not start"),
    KeyAction("job.release", "U", "order('release')", "release", "ends a hold"),
    KeyAction("job.suspend", "Z", "order('suspend')", "suspend", "what runs stands still"),
    KeyAction("job.resume", "W", "order('resume')", "resume", "what stands still goes on"),
    KeyAction("job.requeue", "R", "order('requeue')", "requeue", "ends what runs and waits again; asks first"),
    KeyAction("job.restart", "ctrl+r", "order('restart')", "restart", "starts again in place; asks first"),
    KeyAction("job.resubmit", "n", "order('resubmit')", "resubmit", "as a new job, with changes in a small file"),
    KeyAction("job.resubmit_failed", "N", "order('resubmit_failed')", "resubmit failed", "elements of an array"),
    KeyAction("job.edit", "E", "order('edit')", "edit", "limit, name, partition, begin time... in a small file"),
    KeyAction("job.time_limit", "t", "order('time_limit')", "time limit", "asks for the new one"),
    KeyAction("job.priority", "P", "order('priority')", "priority", "of a waiting job"),
    KeyAction("job.nice", "I", "order('nice')", "nice", "of a waiting job; more waits longer"),
    KeyAction("job.throttle", "percent_sign", "order('throttle')", "throttle", "elements of an array at once"),
    KeyAction("job.scale", "equals_sign", "order('scale')", "scale", "members of an elastic task of a group"),
    KeyAction("job.top", "circumflex_accent", "order('top')", "put first", "of your waiting jobs"),
)
"""On the lines of jobs: the queue's, the history's."""

DETAIL: tuple[KeyAction, ...] = (
    KeyAction("detail.next_section", "right_square_bracket", "detail_section(1)", "next section", hint=True),
    KeyAction("detail.previous_section", "left_square_bracket", "detail_section(-1)", "section before"),
    KeyAction("detail.scroll_down", "J", "detail_scroll(1)", "scroll details down"),
    KeyAction("detail.scroll_up", "K", "detail_scroll(-1)", "scroll details up"),
    KeyAction("detail.zoom", "z", "detail_zoom", "full screen", "the details alone, and back", hint=True),
    KeyAction("detail.close", "escape", "detail_close", "close details", hint=True),
)
"""Where the detail pane is open: from the list, too."""
TEXT: tuple[KeyAction, ...] = (
    KeyAction("text.up", "up,k", "move(-1)", "up"),
    KeyAction("text.down", "down,j", "move(1)", "down"),
    KeyAction("text.page_up", "pageup,ctrl+b", "page(-1)", "page up"),
    KeyAction("text.page_down", "pagedown,ctrl+f,space", "page(1)", "page down"),
    KeyAction("text.half_up", "ctrl+u", "page(-0.5)", "half a page up"),
    KeyAction("text.half_down", "ctrl+d", "page(0.5)", "half a page down"),
    KeyAction("text.left", "left,h", "sideways(-16)", "left"),
    KeyAction("text.right", "right,l", "sideways(16)", "right"),
    KeyAction("text.first", "home,g", "edge(False)", "first line"),
    KeyAction("text.last", "end,G", "edge(True)", "last line"),
    KeyAction(
        "text.part_next", "right_square_bracket", "part(1)", "next text", "sent, environment, submitted", hint=True
    ),
    KeyAction("text.part_before", "left_square_bracket", "part(-1)", "text before"),
    KeyAction("text.search", "slash", "search", "search", "a regular expression", hint=True),
    KeyAction("text.next", "n", "hit(1)", "next match"),
    KeyAction("text.previous", "N", "hit(-1)", "match before"),
    KeyAction("text.wrap", "w", "wrap", "wrap", "fold long lines", hint=True),
    KeyAction("text.numbers", "number_sign", "numbers", "line numbers"),
    KeyAction("text.copy", "y", "copy", "copy", "all of it, to the terminal's clipboard", hint=True),
    KeyAction("text.close", "q,escape,b", "close", "back", "close what is open, then the text", hint=True),
)
"""In the large texts of a job."""

LOGS: tuple[KeyAction, ...] = (
    KeyAction("logs.up", "up,k", "move(-1)", "up", "stops following, as all that goes up"),
    KeyAction("logs.down", "down,j", "move(1)", "down"),
    KeyAction("logs.page_up", "pageup,ctrl+b,b", "page(-1)", "page up"),
    KeyAction("logs.page_down", "pagedown,ctrl+f,space", "page(1)", "page down"),
    KeyAction("logs.half_up", "ctrl+u", "page(-0.5)", "half a page up"),
    KeyAction("logs.half_down", "ctrl+d", "page(0.5)", "half a page down"),
    KeyAction("logs.left", "left,h", "sideways(-16)", "left"),
    KeyAction("logs.right", "right,l", "sideways(16)", "right"),
    KeyAction("logs.first", "home,g", "first", "start", "the log's first line"),
    KeyAction("logs.follow", "F,end,G", "follow", "follow", "the log's end, and what is written", hint=True),
    KeyAction(
        "logs.place", "percent_sign", "prompt('place')", "go to", "per cent (`50`), time (`14:05`), or ago (`10m`)"
    ),
    KeyAction(
        "logs.search", "slash", "prompt('search')", "search", "a regular expression, the newest line first", hint=True
    ),
    KeyAction("logs.older", "n", "hit(True)", "next match", "the one before"),
    KeyAction("logs.newer", "N", "hit(False)", "previous match", "the one behind"),
    KeyAction(
        "logs.only",
        "ampersand",
        "prompt('only')",
        "only matches",
        "`!` in front: only lines without; empty: all",
        hint=True,
    ),
    KeyAction("logs.stream", "e", "stream", "stdout / stderr", "output, error, or both", hint=True),
    KeyAction("logs.member_before", "left_square_bracket", "member(-1)", "task before"),
    KeyAction(
        "logs.member_next", "right_square_bracket", "member(1)", "next task", "or node, or element; then all", hint=True
    ),
    KeyAction("logs.attempt_before", "left_curly_bracket", "attempt(-1)", "attempt before"),
    KeyAction("logs.attempt_next", "right_curly_bracket", "attempt(1)", "next attempt"),
    KeyAction("logs.wrap", "w", "wrap", "wrap", "fold long lines", hint=True),
    KeyAction("logs.times", "T", "times", "times", "when each line came, where that is known"),
    KeyAction("logs.numbers", "number_sign", "numbers", "line numbers", "where the log was read from its beginning"),
    KeyAction("logs.mark", "m", "mark", "mark", "draw a line below what there is now"),
    KeyAction("logs.save", "s", "prompt('save')", "save", "all of it, to a new file"),
    KeyAction("logs.pager", "v", "pager", "pager", "what $PAGER is"),
    KeyAction("logs.editor", "V", "editor", "editor", "what $VISUAL or $EDITOR is"),
    KeyAction("logs.close", "q,escape", "close", "back", "close what is open, then the log"),
)


def _of_list(scope: str, help: str) -> tuple[KeyAction, ...]:
    """What all lists of a place have."""
    return (
        KeyAction(f"{scope}.filter", "slash", "filter", "filter", help, hint=True),
        KeyAction(f"{scope}.sort", "s", "sort", "sort", "by the next column", hint=True),
        KeyAction(f"{scope}.reverse", "S", "reverse", "reverse the order"),
    )


def _of_tree(scope: str) -> tuple[KeyAction, ...]:
    """What lists have whose lines have others below them."""
    return (
        KeyAction(f"{scope}.fold", "left,minus", "fold", "fold", "of a member: what it belongs to"),
        KeyAction(f"{scope}.unfold", "right,plus", "unfold", "unfold"),
        KeyAction(f"{scope}.fold_all", "asterisk", "fold_all", "fold or unfold all"),
    )


EVALUATIONS: tuple[KeyAction, ...] = (
    KeyAction(
        "evaluations.run", "e", "evaluate", "evaluate again", "a checkpoint, by the same evaluation; asks", hint=True
    ),
    KeyAction("evaluations.plot", "m", "plot_zoom", "plot", "the plot on the full screen, and back", hint=True),
    *_of_list("evaluations", "words, `state:failed`, `evaluation:gsm8k`, `job:57`"),
    *_of_tree("evaluations"),
)
POOLS: tuple[KeyAction, ...] = (
    *_of_list("pools", "words, `pool:gpu`, `state:silent`"),
    KeyAction("pools.drain", "D", "drain", "drain", "no more jobs for a worker, or a pool's; asks first", hint=True),
)
NODES: tuple[KeyAction, ...] = (*_of_list("nodes", "words, `state:drain`, `partition:gpu`"), *_of_tree("nodes"))
HISTORY: tuple[KeyAction, ...] = (
    *_of_list("history", "words, `since:2d`, `user:ana`, `state:f`; Enter asks the daemon for all that match"),
    *_of_tree("history"),
)
CLUSTERS: tuple[KeyAction, ...] = (
    *_of_list("clusters", "words, `state:stale`, `kind:slurm`"),
    KeyAction("clusters.jobs", "J", "jobs", "jobs", "the cluster's jobs, in the queue", hint=True),
)
SCHEDULES: tuple[KeyAction, ...] = (
    *_of_list("schedules", "words, `name:nightly`, `state:paused`"),
    KeyAction("schedules.pause", "H", "pause", "pause", "make no more runs", hint=True),
    KeyAction("schedules.resume", "U", "resume", "resume", "end a pause", hint=True),
    KeyAction("schedules.run", "n", "run", "run now", "asks first", hint=True),
    KeyAction("schedules.delete", "delete,D", "delete", "delete", "its jobs go on; asks first"),
)
CHECK: tuple[KeyAction, ...] = (
    KeyAction("check.close", "escape,q", "close", "back", hint=True),
    KeyAction("check.again", "r", "check", "check again", hint=True),
)
DIALOG: tuple[KeyAction, ...] = (
    KeyAction("dialog.yes", "y", "answer(True)", "yes"),
    KeyAction("dialog.no", "n", "answer(False)", "no"),
    KeyAction("dialog.close", "escape", "answer(False)", "no"),
    KeyAction("dialog.up", "up,k", "scroll(-1)", "up"),
    KeyAction("dialog.down", "down,j", "scroll(1)", "down"),
    KeyAction("dialog.page_up", "pageup,ctrl+b", "page(-1)", "page up"),
    KeyAction("dialog.page_down", "pagedown,ctrl+f", "page(1)", "page down"),
)
"""In the dialog of an order."""
EDIT: tuple[KeyAction, ...] = (
    KeyAction("edit.send", "ctrl+s", "send", "send", "what was changed"),
    KeyAction("edit.close", "escape", "close", "close", "change nothing"),
)
"""Where a small file is edited."""

ORDER_LOG: tuple[KeyAction, ...] = (
    KeyAction("orders.close", "escape,q,L", "close", "back", hint=True),
    KeyAction("orders.up", "up,k", "scroll(-1)", "up"),
    KeyAction("orders.down", "down,j", "scroll(1)", "down"),
    KeyAction("orders.page_up", "pageup,ctrl+b", "page(-1)", "page up"),
    KeyAction("orders.page_down", "pagedown,ctrl+f", "page(1)", "page down"),
)

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
    *FILTER,
    *CHOICE,
    *COLUMNS,
    *EVALUATIONS,
    *JOB,
    *DETAIL,
    *TEXT,
    *LOGS,
    *POOLS,
    *NODES,
    *HISTORY,
    *CLUSTERS,
    *SCHEDULES,
    *CHECK,
    *DIALOG,
    *EDIT,
    *ORDER_LOG,
    *HELP,
    *PALETTE,
)
"""All of them."""

SCOPES = {
    "app": "Everywhere",
    "list": "In lists",
    "queue": "Queue",
    "filter": "The filter",
    "choice": "Choosing",
    "columns": "Choosing columns",
    "job": "Jobs",
    "detail": "Details",
    "text": "Texts of a job",
    "logs": "Logs",
    "evaluations": "Evaluations",
    "pools": "Pools",
    "nodes": "Nodes",
    "history": "History",
    "clusters": "Clusters",
    "schedules": "Schedules",
    "check": "Findings",
    "dialog": "Dialogs",
    "edit": "Editing values",
    "orders": "Order log",
    "help": "Help",
    "palette": "The line after `:`",
}
"""The scopes, with their titles in help and documentation."""

TOGETHER = (
    ("app", "list", "queue", "job"),
    ("app", "detail", "queue", "job"),
    ("app", "list", "history", "job"),
    ("app", "detail", "history", "job"),
    ("app", "list", "evaluations", "job"),
    ("app", "detail", "evaluations", "job"),
    ("app", "list", "pools"),
    ("app", "list", "nodes"),
    ("app", "list", "clusters"),
    ("app", "list", "schedules"),
    ("app", "text"),
    ("app", "logs"),
    ("filter",),
    ("choice", "columns"),
    ("list", "check"),
    ("dialog",),
    ("edit",),
    ("orders",),
    ("help",),
    ("palette",),
)
"""Scopes whose keys count at the same time: a key stands for one action in each of these."""


def find_keys(scope: str) -> Iterable[KeyAction]:
    return (key for key in KEYS if key.scope == scope)


def bind(scope: str) -> list[Binding]:
    """The bindings of a scope, as Textual has them."""
    return [
        Binding(key.keys, key.action, key.title, show=key.hint, tooltip=key.help, id=key.id, priority=key.always)
        for key in find_keys(scope)
    ]
