"""What is shown of the queue, from what is known and what the user has chosen; `--once` shows what the screen does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.listings.rows import join_extents
from overspan.bridge.model.state_words import CODES, LIVE_WORDS
from overspan.tui.options import TopOptions
from overspan.tui.queue.columns import DEFAULT, TICKING, columns_extent
from overspan.tui.queue.filters import QueueFilter, filter_extent, limit_users, read_filter
from overspan.tui.queue.headline import QueueSummary
from overspan.tui.queue.order import SortOrder, make_order, order_extent, read_order
from overspan.tui.queue.scope import Owners, Scope
from overspan.tui.queue.tree import Line, LineKey, QueueTree, View

ENDED_SECONDS = 60.0
"""How long a job that has ended stays in the queue."""
ORDER_SECONDS = 10.0
"""How long an order by times that grow counts."""


class Folding(Container[LineKey]):
    """Which heads are unfolded: these, or all but these; heads that come later are as most are."""

    def __init__(self, unfolded: bool = False) -> None:
        self._most = unfolded
        self._others: set[LineKey] = set()

    def __contains__(self, key: object) -> bool:
        return (key in self._others) != self._most

    def set(self, key: LineKey, unfolded: bool) -> None:
        """Fold a head, or unfold it."""
        if unfolded == self._most:
            self._others.discard(key)
        else:
            self._others.add(key)

    def turn(self) -> None:
        """Fold all; where all are folded, unfold all."""
        self._most = not self._most and not self._others
        self._others.clear()


class QueueChoice(NamedTuple):
    """What the user has chosen of the queue."""

    scope: Scope
    columns: tuple[str, ...]
    filter: QueueFilter = QueueFilter()
    order: SortOrder = ()

    @property
    def extent(self) -> str:
        """How much of each row it needs."""
        return join_extents((columns_extent(self.columns), order_extent(self.order), filter_extent(self.filter)))

    def make_view(self, folding: Folding, clock: Callable[[], float]) -> View:
        """The view that has it."""
        limited = self.scope.owners in (Owners.MINE, Owners.GROUP)
        users = frozenset(self.scope.users) if limited else None
        ticking = any(key.field in TICKING for key in self.order)
        now = clock()
        return View(
            self.filter if users is None else limit_users(self.filter, users),
            make_order(self.order, clock),
            unfolded=folding,
            ended_since=0.0 if self.scope.ended else now - ENDED_SECONDS,
            # Times that grow change their order too, though seldom.
            choice=(self.filter.source, users, self.order, now // ORDER_SECONDS if ticking else 0),
        )


def make_choice(options: TopOptions) -> QueueChoice:
    """What the command line and the configuration choose."""
    return QueueChoice(
        Scope(options.wanted, ended=shows_ended(options.wanted.states)),
        options.columns or DEFAULT,
        read_filter(clean_text(options.filter)),
        read_order(options.sort),
    )


def ask_enough(options: TopOptions) -> TopOptions:
    """The options with as much of each row asked for as their columns and their order need."""
    extent = join_extents((options.wanted.extent, make_choice(options).extent))
    return options._replace(wanted=options.wanted._replace(extent=extent))


class ShownQueue(NamedTuple):
    """The lines in their order, and what is said of them."""

    lines: list[Line]
    summary: QueueSummary


def show_queue(tree: QueueTree, choice: QueueChoice, folding: Folding, clock: Callable[[], float]) -> ShownQueue:
    """The lines that are chosen."""
    view = choice.make_view(folding, clock)
    lines = tree.lines(view)
    matches = sum(line.depth == 0 for line in lines)
    total = matches
    if choice.filter.tests:
        total = tree.count(choice._replace(filter=QueueFilter()).make_view(folding, clock))
    text = clean_text(" ".join(choice.filter.source.split()))
    return ShownQueue(lines, QueueSummary(matches, total, text, choice.scope.describe(), choice.order))


def count_shown(tree: QueueTree, ended: bool, now: float) -> Counter[str]:
    """How many jobs, tasks and elements are in each state, without jobs that ended too long ago to be shown."""
    counts = tree.count_states()
    oldest = 0.0 if ended else now - ENDED_SECONDS
    for node in tree:
        end = node.row.ended_at
        if end is not None and end < oldest and node.over:
            counts.subtract(node.tally or {node.row.state: 1})
    return counts


def shows_ended(states: tuple[str, ...]) -> bool:
    """Whether states that were asked for are some in which jobs end."""
    return "all" in states or any(state in CODES and state not in LIVE_WORDS for state in states)


def find_next_end(lines: list[Line]) -> float:
    """When the next of the ended jobs leaves the queue; infinity where none does."""
    return min((end + ENDED_SECONDS for end in _list_ends(lines)), default=float("inf"))


def _list_ends(lines: list[Line]) -> Iterator[float]:
    return (line.node.row.ended_at for line in lines if line.node.row.ended_at and not line.depth and line.node.over)
