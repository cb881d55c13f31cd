"""Watched jobs: the user is told when one has ended, with a note, the terminal's bell and a line in the order log."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from textual.notifications import SeverityLevel

from overspan.bridge.client.records import JobFilter, Listing
from overspan.bridge.model.durations import format_elapsed
from overspan.tui.actions.order_log import OrderEntry
from overspan.tui.actions.orders import FAILED, LIVE, word_states
from overspan.tui.actions.target import Target
from overspan.tui.queue.tree import Kind, LineKey, QueueTree, TreeNode

if TYPE_CHECKING:
    from overspan.tui.app import TopApp

ASK_SECONDS = 15.0
"""How often the daemon is asked for watched jobs that the queue does not tell of."""
TOLD_SECONDS = 600.0
"""How long a note stands: long, because a user who watches a job is doing something else."""
MOST_NOTES = 3
"""Of more ends at once one note tells all."""
_VERB = "Watch"


class WatchedEnd(NamedTuple):
    """A watched job has ended; without a node nothing is known of it any more."""

    target: Target
    node: TreeNode | None = None

    @property
    def failed(self) -> bool:
        """Whether it, or a member of it, ended otherwise than wanted."""
        return self.node is None or any(state in FAILED for state in self.node.states)

    @property
    def text(self) -> str:
        """How it ended: `FAILED (NonZeroExitCode) after 1:02`, or `3 COMPLETED, 1 FAILED`."""
        if self.node is None:
            return "nothing is known of it any more"
        row = self.node.row
        states = word_states(self.node.states)
        if self.node.tally:
            return states
        reason = f" ({row.reason})" if row.reason not in ("", "None") else ""
        ran = f" after {format_elapsed(row.ended_at - row.started_at)}" if row.ended_at and row.started_at else ""
        return f"{states}{reason}{ran}"


class WatchList(Collection[LineKey]):
    """What is watched, by line; each is forgotten at its end."""

    def __init__(self) -> None:
        self._targets: dict[LineKey, Target] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._targets

    def __iter__(self) -> Iterator[LineKey]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)

    def turn(self, targets: Sequence[Target]) -> bool:
        """Watch all of these, or none where all are watched already; whether they are now."""
        watched = not all(target.key in self._targets for target in targets)
        for target in targets:
            if watched:
                self._targets[target.key] = target
            else:
                self._targets.pop(target.key, None)
        return watched

    def list_missing(self, jobs: QueueTree) -> list[Target]:
        """Those that this queue does not tell of: it tells of some jobs alone, or has forgotten them."""
        return [target for key, target in self._targets.items() if jobs.find(key) is None]

    def take_ended(self, jobs: QueueTree) -> list[WatchedEnd]:
        """Those that have ended, by this queue; they are watched no more."""
        nodes = {key: node for key in self._targets if (node := jobs.find(key)) is not None and node.over}
        return [WatchedEnd(self._targets.pop(key), node) for key, node in nodes.items()]

    def drop(self, target: Target) -> WatchedEnd:
        """Stop watching a job that the daemon no longer knows."""
        return WatchedEnd(self._targets.pop(target.key))


class Watching:
    """Looks at the watched jobs each time that the queue tells something, and asks for those that it does not tell."""

    def __init__(self, app: TopApp) -> None:
        self._app = app
        self.watched = WatchList()
        self._asking = False

    def turn(self, targets: Sequence[Target]) -> None:
        """Watch these jobs, or no more."""
        app = self._app
        fit = [target for target in targets if target.kind is not Kind.WAITING and not LIVE.isdisjoint(target.states)]
        unfit = [target for target in targets if target not in fit]
        if unfit:
            lines = [_explain_unfit(target) for target in unfit]
            app.notify("\n".join([*lines[:3], *([f"and {len(lines) - 3} more"] if lines[3:] else [])]), markup=False)
        if fit:
            now = self.watched.turn(fit)
            jobs = fit[0].label if len(fit) == 1 else f"{len(fit)} jobs"
            app.notify(f"{jobs}: {'you are told when it ends' if now else 'watched no more'}", markup=False)
            app.queue.show_watched()

    def look(self) -> None:
        """Tell of what has ended, by the queue."""
        if self.watched:
            self._tell(self.watched.take_ended(self._app.queue.jobs))

    def ask(self) -> None:
        """Ask for what the queue does not tell: that of other jobs, and all while the display stands still."""
        app = self._app
        wanted = self.watched.list_missing(QueueTree() if app.paused_since is not None else app.queue.jobs)
        if not wanted or self._asking or app.lost is not None:
            return
        self._asking = True
        # Of a group or an array all members count.
        refs = {target.ref if target.kind in (Kind.ELEMENT, Kind.MEMBER) else str(target.key.job) for target in wanted}
        asked = JobFilter(ids=tuple(sorted(refs)), tasks=True)
        app.questions.ask(
            "watch", lambda source: source.history(asked), lambda found: self._take(wanted, found), self._pass
        )

    def _pass(self, error: Exception) -> None:
        """The next time asks again."""
        self._asking = False

    def _take(self, wanted: Sequence[Target], found: Listing) -> None:
        self._asking = False
        jobs = QueueTree()
        jobs.apply(found.rows, whole=True)
        ended = self.watched.take_ended(jobs)
        gone = [target for target in wanted if target.key in self.watched and jobs.find(target.key) is None]
        self._tell([*ended, *map(self.watched.drop, gone)])

    def _tell(self, ends: Sequence[WatchedEnd]) -> None:
        if not ends:
            return
        app = self._app
        for end in ends:
            app.order_log.add(OrderEntry(app.now(), _VERB, end.target.label, end.text, end.failed))
        if len(ends) <= MOST_NOTES:
            for end in ends:
                self._note(f"{end.target.label}: {end.text}", end.failed)
        else:
            failed = sum(end.failed for end in ends)
            self._note(f"{len(ends)} watched jobs, {failed} failed; the order log names them", bool(failed))
        app.bell()
        app.queue.show_watched()

    def _note(self, text: str, failed: bool) -> None:
        severity: SeverityLevel = "error" if failed else "information"
        self._app.notify(text, title="ended", severity=severity, timeout=TOLD_SECONDS, markup=False)


def _explain_unfit(target: Target) -> str:
    if target.kind is Kind.WAITING:
        return f"{target.label}: watch the array, or an element that has started"
    return f"{target.label} has ended: {word_states(target.states)}"
