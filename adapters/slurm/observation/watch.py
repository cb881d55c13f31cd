"""Polls Slurm for all launches with one query a tick, and projects each launch's events from its cursor on.

squeue is asked for all launches; the accounting only for those that squeue lacks, and for earlier runs of requeued
jobs. Journals of groups are read independently of that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from overspan.adapters.contract import Report
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.groups.projection import GroupProjection, GroupView, project_group
from overspan.adapters.slurm.handles import (
    GROUP,
    Cursor,
    GroupCursor,
    GroupHandle,
    Handle,
    parse_any,
    parse_any_cursor,
    parse_group,
    parse_group_cursor,
)
from overspan.adapters.slurm.observation.journal_watch import JournalReading, JournalWatch
from overspan.adapters.slurm.observation.outcomes import Phase, queue_event
from overspan.adapters.slurm.observation.poll_times import LaunchAge, QueryBudget
from overspan.adapters.slurm.observation.projection import (
    NativeView,
    Projection,
    move_view,
    project,
    project_gone,
    view_cancelled_element,
)
from overspan.adapters.slurm.observation.requeues import is_unstarted
from overspan.adapters.slurm.observation.single_flight import SingleFlight
from overspan.adapters.slurm.observation.snapshot import OVER, AccountingSnapshot, QueueSnapshot, take_view
from overspan.adapters.slurm.orders.delivered import DeliveredOrders
from overspan.adapters.slurm.sets.handles import is_set_handle, join_natives
from overspan.adapters.slurm.sets.watch import Sets
from overspan.adapters.slurm.submission.throttles import Throttles
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.events import Event

_log = logging.getLogger(__name__)

MISSES = 2
"""A job counts as gone after this many queries in a row in which neither squeue nor the accounting knew it."""
ESTIMATE_SECONDS = 60.0
"""The expected start is reported again when it has moved by this much."""
KILL_AGAIN = 30.0
"""Seconds between two cancels of a job that does not end: about Slurm's KillWait, in which a cancel may still work."""
YOUNG = 20.0
"""Seconds for which a new launch's journal is read as often as a running one's, since it may start at once."""
SLOW = 4
"""Back-off for slow queries: after one that took t seconds, the next one waits SLOW * t."""
LAG = 60.0
"""Seconds after an outage in which the accounting may still lack records: slurmctld delivers them by and by."""


@dataclass
class WatchedLaunch:
    """What is known of one launch."""

    handle: Handle | GroupHandle
    view: NativeView | None = None
    misses: int = 0
    accounting: bool = True
    taken: bool = False
    """Whether its native id belongs to another job now."""
    reported: tuple[tuple[str, str], float] | None = None
    """The reason and the expected start that were reported last."""
    killed_at: float = -KILL_AGAIN
    since: float = field(default_factory=lambda: time.monotonic())
    running_since: float | None = None
    """Since when it is known to run (monotonic time)."""
    ordered_at: float | None = None
    """When the last order was carried out (monotonic time)."""
    gone_at: float = 0.0
    """When the misses became MISSES, so that it counts as gone (this machine's time)."""
    kill_at: int = 0
    """The end of its grace period that its cursor has, and `moved_by` of the watch when it was seen first."""
    kill_seen: float = 0.0
    quiet: tuple[NativeView, str, int] | None = None
    """View, cursor and number of orders of the last projection that gave no event: equal inputs need no projection."""


class Watch:
    """Keeps the latest view of each launch, and polls Slurm again after each tick (seconds)."""

    def __init__(
        self, queries: Queries, orders: DeliveredOrders, tick: float, throttles: Throttles | None = None
    ) -> None:
        self._throttles = throttles or Throttles(queries)
        self._queries = queries
        self._orders = orders
        self._tick = tick
        self._launches: dict[str, WatchedLaunch] = {}
        self.next_ask = self.next_accounts = 0.0
        """When Slurm, and its accounting, may be asked again (monotonic time)."""
        self._looked = self._rested = 0.0
        """When Slurm was queried last, and until when the back-off of a slow query lasts (monotonic time)."""
        self._budget = QueryBudget()
        self._accounting_failed_at = -LAG
        """When the accounting last failed to answer (monotonic time)."""
        self._addresses: Mapping[str, str] = {}
        self.moved_by = 0.0
        """Seconds by which this machine's clock was set in the life of this process."""
        self._suspected: dict[str, float] = {}
        """Runs that may never have started their program, and since when they look like that (monotonic time)."""
        self.transport = queries.transport
        self.journals = JournalWatch(queries.transport, queries.timeout)
        self.sets = Sets()
        self.unshared = False
        """Whether nodes and login node share no folder, so that a journal may be lost."""
        self.fresh = asyncio.Event()
        """Set when a query has ended or an order was carried out."""
        self.gap = ""
        """Why the ends of jobs that have left the queue cannot be known at the moment; empty where they can."""
        self._looking, self._reading = SingleFlight(self.fresh), SingleFlight(self.fresh)

    @property
    def next_look(self) -> float:
        """When the next query or read of journals is due (monotonic time)."""
        return min(self.next_ask, self.journals.next_read) if self._has_groups else self.next_ask

    @property
    def busy(self) -> bool:
        """Whether a query is under way."""
        return self._looking.task is not None or self._reading.task is not None

    @property
    def _has_groups(self) -> bool:
        return any(isinstance(watched.handle, GroupHandle) for watched in self._launches.values())

    def knows(self, handle: str) -> bool:
        """Whether a handle was read before, so that it can be read."""
        return handle in self._launches

    def _read(self, text: str) -> Handle | GroupHandle:
        """Parse a handle, unless it was parsed before."""
        watched = self._launches.get(text)
        return parse_any(text) if watched is None else watched.handle

    def view_of(self, handle: str) -> NativeView | None:
        """The latest view of a launch; None where there is none."""
        watched = self._launches.get(handle)
        return watched.view if watched else None

    def is_taken(self, handle: str) -> bool:
        """Whether a launch's native id belongs to another job by now, which must not get its orders."""
        watched = self._launches.get(handle)
        return watched is not None and watched.taken

    def note_order(self, handle: str) -> None:
        """Note that an order was carried out: its effect is queried sooner than with the next tick."""
        self.sets.note_order(handle)
        watched = self._launches.get(handle)
        if watched is not None:
            watched.ordered_at = time.monotonic()

    def nodes_of(self, handle: str) -> tuple[str, ...]:
        """The names of a launch's nodes, in the order of its members; empty while they are not known."""
        view = self.view_of(handle)
        return () if view is None else view.nodes

    def list_running(self, since: Mapping[str, str]) -> list[GroupHandle]:
        """The groups that have their nodes and whose journal is not closed."""
        found = []
        for text, cursor_text in since.items():
            watched = self._launches.get(text)
            if watched is None or not isinstance(watched.handle, GroupHandle) or watched.view is None:
                continue
            cursor = parse_group_cursor(cursor_text)
            page = self.journals.page(watched.handle, cursor.offset)
            closed = page is not None and page.closed
            if watched.view.outcome.phase in (Phase.RUNNING, Phase.SUSPENDED) and not (cursor.over or closed):
                found.append(watched.handle)
        return found

    async def look(self, since: Mapping[str, str]) -> None:
        """Start the queries that are due and wait for the first answer. A caller that stops waiting cancels none."""
        since = self.sets.expand(since)
        if not any(text.startswith(GROUP) for text in since):
            self._reading.forget()
        self._advance_next_ask(since)
        if since and time.monotonic() >= self.next_ask:
            self._looking.begin(lambda: self._ask(list(since)))
        readings = self._choose(since)
        if readings:
            self._reading.begin(lambda: self.journals.read(readings))
        tasks = [flight.task for flight in (self._looking, self._reading) if flight.task is not None]
        if tasks:
            fresh = asyncio.ensure_future(self.fresh.wait())
            try:
                await asyncio.wait([*tasks, fresh], return_when=asyncio.FIRST_COMPLETED)
            finally:
                fresh.cancel()

    def move_clock(self, seconds: float) -> None:
        """This machine's clock was set by so many seconds: what was noted keeps its age."""
        now = time.time()
        self.moved_by += seconds
        for watched in self._launches.values():
            watched.quiet = None
            watched.gone_at = min(now, watched.gone_at + seconds)
            if watched.view is not None:
                watched.view = move_view(watched.view, seconds, now)
        self.journals.move_clock(seconds)
        self.sets.move_clock(seconds)

    def take_trouble(self) -> Exception | None:
        """Why a query failed; each error is returned once."""
        troubles = [flight.take_trouble() for flight in (self._looking, self._reading)]
        return next((trouble for trouble in troubles if trouble is not None), None)

    @property
    def trouble(self) -> Exception | None:
        """Why the last query, or the last read of journals, failed; None where both succeeded."""
        return self._looking.trouble or self._reading.trouble

    async def close(self) -> None:
        """Stop asking."""
        await self._looking.close()
        await self._reading.close()

    # --- Slurm -------------------------------------------------------------------------------------------------------

    async def _ask(self, texts: list[str]) -> None:
        began, asked = time.monotonic(), time.time()
        self._looked, self.next_ask = began, began + self._tick
        self._budget.take(began)
        handles = {text: self._read(text) for text in texts}
        answer = QueueSnapshot(await self._queries.look(sorted({handle.native for handle in handles.values()})), asked)
        self._rested = time.monotonic() + SLOW * (time.monotonic() - began)
        self.next_ask = max(self.next_ask, self._rested - self._tick)
        self._launches = {
            text: watched for text, watched in self._launches.items() if text in handles or len(self._launches) < 50_000
        }
        self.journals.forget({**self._launches, **handles})
        unclear = {text: handle for text, handle in handles.items() if answer.is_unclear(handle)}
        await self._take(answer, {text: handle for text, handle in handles.items() if text not in unclear})
        for text, handle in unclear.items():
            watched = self._launches.setdefault(text, WatchedLaunch(handle))
            watched.taken = answer.is_taken(handle)
            if isinstance(handle, Handle) and answer.record(handle) is None and not watched.taken:
                orders = self._orders.by_handle.get(text, [])
                watched.view = view_cancelled_element(handle, watched.view, orders, asked) or watched.view
            # The view was of a job whose id is another's now: acting on it would end that other job.
            watched.view = None if watched.taken else watched.view
        # Waiters get what squeue knew at once; a slow accounting delays only the launches that need it.
        self.fresh.set()
        accounts = await self._ask_accounts({name for handle in unclear.values() for name in answer.names(handle)})
        if accounts is not None:
            accounts, unclear = await self._ask_steps(answer, accounts, unclear)
            await self._take(replace(answer, accounts=accounts), unclear)
        self._throttles.note_watched(handles.values())
        await self._throttles.balance(answer.queue.records)

    def _advance_next_ask(self, texts: Collection[str]) -> None:
        """Query sooner than with the next tick while a single job is young; groups have their journals for that."""
        singles = [text for text in texts if not text.startswith(GROUP)]
        for text in singles:
            if text not in self._launches:
                self._launches[text] = WatchedLaunch(parse_any(text))
        ages = (
            LaunchAge(watched.since, watched.running_since, watched.ordered_at)
            for watched in map(self._launches.__getitem__, singles)
        )
        looks = [look for age in ages if (look := age.find_next_look(self._looked)) is not None]
        if looks and self._looking.task is None:
            self.next_ask = min(self.next_ask, max(min(looks), self._rested, self._budget.find_time(time.monotonic())))

    async def _take(self, answer: QueueSnapshot, handles: Mapping[str, Handle | GroupHandle]) -> None:
        """Store the views of these launches."""
        views = {text: answer.view(handle, self.view_of(text)) for text, handle in handles.items()}
        single = [view for text, view in views.items() if view is not None and not text.startswith(GROUP)]
        names = {name for view in single for name in view.nodes}
        try:
            self._addresses = await self._queries.addresses(names)
        except OverspanError as error:
            # News without addresses is better than no news.
            _log.debug("the nodes' addresses are not known: %s", error.message)
        answered_at, accounts = time.time(), answer.accounts
        settled = not accounts.kept or time.monotonic() - self._accounting_failed_at >= LAG
        for text, handle in handles.items():
            watched, view = self._launches.setdefault(text, WatchedLaunch(handle)), views[text]
            if view is not None:
                watched.view, watched.misses = take_view(watched.view, view, answered_at), 0
                runs = watched.view.outcome.phase is Phase.RUNNING
                watched.running_since = (watched.running_since or time.monotonic()) if runs else None
                watched.taken = answer.is_taken(handle)
            elif accounts.answered and settled:
                watched.misses, watched.accounting = watched.misses + 1, accounts.kept
                watched.gone_at = answered_at if watched.misses == MISSES else watched.gone_at

    async def _ask_accounts(self, names: Collection[str]) -> AccountingSnapshot | None:
        """The accounting's answer about jobs that squeue lacks; None while the back-off of a slow answer lasts."""
        if not names:
            self.gap = ""
            return AccountingSnapshot()
        if not (await self._queries.site()).accounting:
            self.gap = ""
            return AccountingSnapshot(kept=False)
        began = time.monotonic()
        if began < self.next_accounts:
            return None
        try:
            runs = await self._queries.runs(sorted(names))
        except OverspanError as error:
            # Only launches that squeue lacks have to wait for the accounting; all others are reported.
            _log.debug("the accounting does not answer: %s", error.message)
            self.gap, self._accounting_failed_at = describe_gap(error.message), time.monotonic()
            return AccountingSnapshot(answered=False)
        finally:
            self.next_accounts = time.monotonic() + SLOW * (time.monotonic() - began) - self._tick
        self.gap = ""
        return AccountingSnapshot(runs)

    async def _ask_steps(
        self, answer: QueueSnapshot, accounts: AccountingSnapshot, handles: dict[str, Handle | GroupHandle]
    ) -> tuple[AccountingSnapshot, dict[str, Handle | GroupHandle]]:
        """Find out which runs never started their program. Those whose steps are not known yet wait for up to LAG."""
        suspects = {text: handle for text, handle in handles.items() if answer.is_suspect(handle)}
        if not suspects or not accounts.kept:
            return accounts, handles
        try:
            steps = await self._queries.batch_steps([handle.name for handle in suspects.values()])
        except OverspanError as error:
            _log.debug("the accounting does not list steps: %s", error.message)
            steps = {}
        unstarted, waiting = set(), set()
        for text, handle in suspects.items():
            record = answer.record(handle)
            found = None if record is None else is_unstarted(record, steps.get(handle.name))
            since = self._suspected.setdefault(text, time.monotonic())
            if found:
                unstarted.add(handle.name)
            elif found is None and time.monotonic() - since < LAG:
                waiting.add(text)
        left = {text: handle for text, handle in handles.items() if text not in waiting}
        self._suspected = {text: since for text, since in self._suspected.items() if text in waiting}
        return replace(accounts, unstarted=unstarted), left

    # --- journals ----------------------------------------------------------------------------------------------------

    def _choose(self, since: Mapping[str, str]) -> list[JournalReading]:
        """The journals to read now."""
        if self._reading.task is not None:
            return []
        readings = []
        for text, cursor_text in since.items():
            if not text.startswith(GROUP):
                continue
            handle, cursor = parse_group(text), parse_group_cursor(cursor_text)
            watched = self._launches.setdefault(text, WatchedLaunch(handle))
            view = watched.view
            phase = Phase.QUEUED if view is None else view.outcome.phase
            young = time.monotonic() - watched.since < YOUNG
            ended_at = view.known_at if view is not None and phase in OVER else None
            if watched.misses >= MISSES and ended_at is None:
                ended_at = watched.gone_at
            if not cursor.over:
                readings.append(JournalReading(handle, cursor.offset, young or phase is not Phase.QUEUED, ended_at))
        return self.journals.choose(readings, self._tick)

    # --- reports -----------------------------------------------------------------------------------------------------

    def collect(self, since: Mapping[str, str]) -> list[Report]:
        """The reports of all launches that have news behind their cursors."""
        reports = []
        for text, cursor_text in since.items():
            report = self._report_set(text, cursor_text) if is_set_handle(text) else self._report(text, cursor_text)
            if report is not None:
                reports.append(report)
        return reports

    def _report(self, text: str, cursor_text: str) -> Report | None:
        watched = self._launches.get(text)
        if watched is None or self._orders.is_open(text):
            return None
        orders = self._orders.by_handle.get(text, [])
        gone = watched.misses >= MISSES
        if watched.quiet is not None and not gone and _is_same(watched.quiet, (watched.view, cursor_text, len(orders))):
            return None
        cursor = parse_any_cursor(watched.handle, cursor_text)
        if cursor.over:
            return None
        projected: Projection | GroupProjection
        if isinstance(watched.handle, GroupHandle) and isinstance(cursor, GroupCursor):
            observed = self._view_group(watched.handle, watched, cursor)
            projected, gone = project_group(watched.handle, observed, cursor, orders), bool(observed.gone)
        elif isinstance(watched.handle, Handle) and isinstance(cursor, Cursor):
            if gone:
                return Report(
                    text, (project_gone(watched.handle, time.time(), watched.accounting),), cursor_text, gone=True
                )
            if watched.view is None:
                return None
            projected = project(watched.handle, watched.view, cursor, orders, self._addresses)
        else:
            return None
        events = (*projected.events, *self._waiting(watched, projected.cursor))
        if not events and str(projected.cursor) == cursor_text:
            if isinstance(watched.handle, Handle) and watched.view is not None:
                watched.quiet = (watched.view, cursor_text, len(orders))
            return None
        native = "" if watched.view is None or watched.view.native is None else str(watched.view.native)
        return Report(text, events, str(projected.cursor), gone=gone and projected.cursor.over, native_id=native)

    def _report_set(self, text: str, cursor_text: str) -> Report | None:
        if self._orders.is_open(text):
            return None
        projected = self.sets.project(text, self._view_member, self._orders.by_handle.get(text, []))
        if projected is None:
            return None
        events = projected.events
        if not projected.cursor.granted and not projected.cursor.over:
            waiting = [
                watched for watched in map(self._launches.get, map(str, self.sets.members(text))) if watched is not None
            ]
            queued = [watched for watched in waiting if watched.view and watched.view.outcome.phase is Phase.QUEUED]
            events = (*events, *(event for watched in queued[:1] for event in self._waiting(watched, GroupCursor())))
        if not events and str(projected.cursor) == cursor_text:
            return None
        natives = join_natives(handle.native for handle in self.sets.members(text))
        return Report(text, events, str(projected.cursor), native_id=natives)

    def _view_member(self, handle: GroupHandle, offset: int) -> GroupView:
        """The view of one native job of a set."""
        watched = self._launches.get(str(handle)) or WatchedLaunch(handle)
        return self._view_group(handle, watched, GroupCursor(offset))

    def _view_group(self, handle: GroupHandle, watched: WatchedLaunch, cursor: GroupCursor) -> GroupView:
        page, file_orders = self.journals.page(handle, cursor.offset), self.journals.file_orders(handle)
        ended = watched.view is not None and watched.view.outcome.phase in OVER
        # An end that Slurm reported stays true. Otherwise the job is gone only if its journal was read after the
        # misses, since it may have ended properly in the meantime.
        gone = watched.misses >= MISSES and not ended and page is not None and page.asked > watched.gone_at
        detail = project_gone(handle, 0.0, watched.accounting).detail if gone else ""
        return GroupView(watched.view, page, file_orders, detail, self.unshared)

    def _waiting(self, watched: WatchedLaunch, cursor: Cursor | GroupCursor) -> tuple[Event, ...]:
        """The event that tells why a job waits, if that has changed."""
        view = watched.view
        if view is None or view.outcome.phase is not Phase.QUEUED or not cursor.waiting:
            watched.reported = None
            return ()
        until = view.start or 0.0
        words, last = (view.reason, view.partition), watched.reported
        if last is not None and last[0] == words and abs(last[1] - until) < ESTIMATE_SECONDS:
            return ()
        watched.reported = (words, until)
        event = queue_event(view.outcome, view.reason, view.asked, view.start, view.partition)
        return () if event is None else (event,)

    def overdue(self, since: Mapping[str, str], now: float) -> list[str]:
        """The native names of cancelled launches that outlived their grace period or were requeued by Slurm."""
        found = []
        for text, cursor_text in since.items():
            watched = self._launches.get(text)
            if watched is None or watched.view is None or not cursor_text:
                continue
            cursor = parse_any_cursor(watched.handle, cursor_text)
            waits = watched.view.waits
            if not cursor.kill_at or (self._find_kill(watched, cursor) > now and not waits) or cursor.over:
                continue
            alive = waits or watched.view.outcome.phase not in (*OVER, Phase.ENDING)
            if alive and time.monotonic() - watched.killed_at >= KILL_AGAIN:
                watched.killed_at = time.monotonic()
                found.append(watched.handle.name)
        return found

    def next_kill(self, since: Mapping[str, str], now: float) -> float | None:
        """Seconds until the next grace period is over; None where there is none."""
        known = [(self._launches.get(text), text, cursor) for text, cursor in since.items() if cursor]
        times = [
            self._find_kill(watched, parse_any_cursor(watched.handle, cursor))
            for watched, text, cursor in known
            if watched is not None and not is_set_handle(text)
        ]
        later = [at for at in times if at > now]
        return min(later) - now if later else None

    def _find_kill(self, watched: WatchedLaunch, cursor: Cursor | GroupCursor) -> float:
        """When a launch's grace period is over, by the clock as it is now; it was stored by the clock as it was."""
        if watched.kill_at != cursor.kill_at:
            watched.kill_at, watched.kill_seen = cursor.kill_at, self.moved_by
        return cursor.kill_at + self.moved_by - watched.kill_seen if cursor.kill_at else 0.0


def _is_same(quiet: tuple[NativeView, str, int], now: tuple[NativeView | None, str, int]) -> bool:
    """Whether a projection would have the same inputs as the last one. Views are immutable, so identity is enough."""
    return quiet[0] is now[0] and quiet[1:] == now[1:]


def describe_gap(trouble: str) -> str:
    """A sentence that the accounting does not answer, with the last line of its error."""
    said = trouble.strip().splitlines()[-1:]
    return f"the accounting does not answer ({''.join(said)}); jobs that have left the queue are shown as they were"
