"""Polls Slurm for all launches with one query a tick, and projects each launch's events from its cursor on.

squeue is asked for all of them; the accounting only for what squeue does not know, and for the earlier run of what
was requeued. Journals of groups are read beside that.
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
    parse_cursor,
    parse_group,
    parse_group_cursor,
    parse_place,
)
from overspan.adapters.slurm.observation.journal_watch import JournalReading, JournalWatch
from overspan.adapters.slurm.observation.outcomes import Phase, queue_event
from overspan.adapters.slurm.observation.poll_times import LaunchAge, QueryBudget
from overspan.adapters.slurm.observation.projection import NativeView, Projection, project, project_gone, view_taken_out
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
"""A job counts as gone after so many looks in a row at which neither squeue nor the accounting knew it."""
ESTIMATE_SECONDS = 60.0
"""A change of the expected start that is worth telling."""
KILL_AGAIN = 30.0
YOUNG = 20.0
"""Seconds for which the journal of a new launch is read as often as that of one that runs: it may start at once."""
SLOW = 4
"""Back-off for slow queries: they take at most one part in so many of the time."""
LAG = 60.0
"""Seconds for which an accounting that answers again may lack what slurmctld has kept for it meanwhile."""


@dataclass
class WatchedLaunch:
    """What is known of one native job and run."""

    handle: Handle | GroupHandle
    view: NativeView | None = None
    misses: int = 0
    accounting: bool = True
    taken: bool = False
    """Whether its number is another job's now."""
    last_estimate: tuple[str, float] | None = None
    """The reason and the expected start that were reported last."""
    killed_at: float = -KILL_AGAIN
    since: float = field(default_factory=lambda: time.monotonic())
    running_since: float | None = None
    """Since when it is known to run (monotonic time)."""
    ordered_at: float | None = None
    """When the last order was carried out (monotonic time)."""
    missed_at: float = 0.0
    """When neither squeue nor the accounting knew it any more (this machine's time)."""
    quiet: tuple[NativeView, str, int] | None = None
    """View, cursor and number of orders of the last projection that gave no event: the same again gives none."""


class Watch:
    """Keeps what was seen last of each launch, and asks Slurm again when a tick has passed."""

    def __init__(
        self, queries: Queries, orders: DeliveredOrders, tick: float, throttles: Throttles | None = None
    ) -> None:
        self._throttles = throttles or Throttles(queries)
        self._queries = queries
        self._orders = orders
        self._tick = tick
        self._seen: dict[str, WatchedLaunch] = {}
        self.next_ask = self.next_accounts = 0.0
        """When Slurm, and its accounting, may be asked again (monotonic time)."""
        self._looked = self._rested = 0.0
        """When Slurm was asked last, and until when it is left alone because that took long."""
        self._budget = QueryBudget()
        self._silent_at = -LAG
        """When the accounting has not answered last (monotonic time)."""
        self._addresses: Mapping[str, str] = {}
        self._suspected: dict[str, float] = {}
        """Since when runs look as if Slurm had given them back unstarted (monotonic time)."""
        self.transport = queries.transport
        self.journals = JournalWatch(queries.transport, queries.timeout)
        self.sets = Sets()
        self.apart = False
        """Whether nodes and login node share no folder, so that a journal may be lost."""
        self.fresh = asyncio.Event()
        self.gap = ""
        """What cannot be known at the moment of jobs that have left the queue."""
        self._looking, self._reading = SingleFlight(self.fresh), SingleFlight(self.fresh)

    @property
    def next_look(self) -> float:
        """When there may be something to ask again (monotonic time)."""
        return min(self.next_ask, self.journals.next_read) if self._has_groups else self.next_ask

    @property
    def busy(self) -> bool:
        """Whether a question is under way."""
        return self._looking.task is not None or self._reading.task is not None

    @property
    def _has_groups(self) -> bool:
        return any(isinstance(seen.handle, GroupHandle) for seen in self._seen.values())

    def knows(self, handle: str) -> bool:
        """Whether a handle can be read: it was before."""
        return handle in self._seen

    def _read(self, text: str) -> Handle | GroupHandle:
        """What a handle says; one that was read before is not read again."""
        seen = self._seen.get(text)
        return parse_any(text) if seen is None else seen.handle

    def view_of(self, handle: str) -> NativeView | None:
        """What was seen of a launch last."""
        seen = self._seen.get(handle)
        return seen.view if seen else None

    def is_taken(self, handle: str) -> bool:
        """Whether a launch's number is another job's by now, which no order is for."""
        seen = self._seen.get(handle)
        return seen is not None and seen.taken

    def note_order(self, handle: str) -> None:
        """An order was carried out: what was seen before does not have it, and what came of it is looked at soon."""
        self.sets.note_order(handle)
        seen = self._seen.get(handle)
        if seen is not None:
            seen.ordered_at = time.monotonic()

    def nodes_of(self, handle: str) -> tuple[str, ...]:
        """The names of a launch's nodes, in the order of its members; none where they are not known."""
        view = self.view_of(handle)
        return () if view is None else view.nodes

    def list_running(self, since: Mapping[str, str]) -> list[GroupHandle]:
        """The groups that have their nodes, and whose journal has no end yet."""
        found = []
        for text, place in since.items():
            seen = self._seen.get(text)
            if seen is None or not isinstance(seen.handle, GroupHandle) or seen.view is None:
                continue
            cursor = parse_group_cursor(place)
            page = self.journals.page(seen.handle, cursor.offset)
            closed = page is not None and page.closed
            if seen.view.outcome.phase in (Phase.RUNNING, Phase.SUSPENDED) and not (cursor.over or closed):
                found.append(seen.handle)
        return found

    async def look(self, since: Mapping[str, str]) -> None:
        """Start the queries that are due and wait for the first answer. A caller that stops waiting cancels none."""
        since = self.sets.spread(since)
        if not any(text.startswith(GROUP) for text in since):
            self._reading.forget()
        self._hurry(since)
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

    def take_trouble(self) -> Exception | None:
        """Why a query failed; given once."""
        troubles = [flight.take_trouble() for flight in (self._looking, self._reading)]
        return next((trouble for trouble in troubles if trouble is not None), None)

    @property
    def trouble(self) -> Exception | None:
        """Why a question that is to be asked had no answer the last time; None where all had."""
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
        self._seen = {text: seen for text, seen in self._seen.items() if text in handles or len(self._seen) < 50_000}
        self.journals.forget({**self._seen, **handles})
        unclear = {text: handle for text, handle in handles.items() if answer.is_unclear(handle)}
        await self._take(answer, {text: handle for text, handle in handles.items() if text not in unclear})
        for text, handle in unclear.items():
            seen = self._seen.setdefault(text, WatchedLaunch(handle))
            seen.taken = answer.is_taken(handle)
            if isinstance(handle, Handle) and answer.record(handle) is None and not seen.taken:
                orders = self._orders.by_handle.get(text, [])
                seen.view = view_taken_out(handle, seen.view, orders, asked) or seen.view
            # What was seen before is out of date: no job may be ended because of it.
            seen.view = None if seen.taken else seen.view
        # A slow accounting does not delay the news of other launches.
        self.fresh.set()
        accounts = await self._ask_accounts({name for handle in unclear.values() for name in answer.names(handle)})
        if accounts is not None:
            accounts, unclear = await self._ask_steps(answer, accounts, unclear)
            await self._take(replace(answer, accounts=accounts), unclear)
        self._throttles.see(handles.values())
        await self._throttles.balance(answer.queue.records)

    def _hurry(self, texts: Collection[str]) -> None:
        """Look sooner than with the next tick where a single job is young; journals tell of groups."""
        singles = [text for text in texts if not text.startswith(GROUP)]
        for text in singles:
            if text not in self._seen:
                self._seen[text] = WatchedLaunch(parse_any(text))
        ages = (
            LaunchAge(seen.since, seen.running_since, seen.ordered_at) for seen in map(self._seen.__getitem__, singles)
        )
        looks = [look for age in ages if (look := age.find_next_look(self._looked)) is not None]
        if looks and self._looking.task is None:
            self.next_ask = min(self.next_ask, max(min(looks), self._rested, self._budget.find_time(time.monotonic())))

    async def _take(self, answer: QueueSnapshot, handles: Mapping[str, Handle | GroupHandle]) -> None:
        """Note what was answered of these."""
        views = {text: answer.view(handle, self.view_of(text)) for text, handle in handles.items()}
        single = [view for text, view in views.items() if view is not None and not text.startswith(GROUP)]
        names = {name for view in single for name in view.nodes}
        try:
            self._addresses = await self._queries.addresses(names)
        except OverspanError as error:
            # News without addresses are better than none.
            _log.debug("the nodes' addresses are not told: %s", error.message)
        heard, accounts = time.time(), answer.accounts
        settled = not accounts.kept or time.monotonic() - self._silent_at >= LAG
        for text, handle in handles.items():
            seen, view = self._seen.setdefault(text, WatchedLaunch(handle)), views[text]
            if view is not None:
                seen.view, seen.misses = take_view(seen.view, view, heard), 0
                runs = seen.view.outcome.phase is Phase.RUNNING
                seen.running_since = (seen.running_since or time.monotonic()) if runs else None
                seen.taken = answer.is_taken(handle)
            elif accounts.answered and settled:
                seen.misses, seen.accounting = seen.misses + 1, accounts.kept
                seen.missed_at = heard if seen.misses == MISSES else seen.missed_at

    async def _ask_accounts(self, names: Collection[str]) -> AccountingSnapshot | None:
        """What the accounting has of jobs that squeue lacks; None where it took so long that it is asked later."""
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
            # What has vanished waits for an answer; all others are reported.
            _log.debug("the accounting does not answer: %s", error.message)
            self.gap, self._silent_at = word_gap(error.message), time.monotonic()
            return AccountingSnapshot(answered=False)
        finally:
            self.next_accounts = time.monotonic() + SLOW * (time.monotonic() - began) - self._tick
        self.gap = ""
        return AccountingSnapshot(runs)

    async def _ask_steps(
        self, answer: QueueSnapshot, accounts: AccountingSnapshot, handles: dict[str, Handle | GroupHandle]
    ) -> tuple[AccountingSnapshot, dict[str, Handle | GroupHandle]]:
        """Find out which of them had no program in their run; those whose steps are not known yet wait a while."""
        suspects = {text: handle for text, handle in handles.items() if answer.is_suspect(handle)}
        if not suspects or not accounts.kept:
            return accounts, handles
        try:
            steps = await self._queries.batch_steps([handle.name for handle in suspects.values()])
        except OverspanError as error:
            _log.debug("the accounting does not tell of steps: %s", error.message)
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
        """The journals that are to be read now."""
        if self._reading.task is not None:
            return []
        readings = []
        for text, place in since.items():
            if not text.startswith(GROUP):
                continue
            handle, cursor = parse_group(text), parse_group_cursor(place)
            seen = self._seen.setdefault(text, WatchedLaunch(handle))
            view = seen.view
            phase = Phase.QUEUED if view is None else view.outcome.phase
            young = time.monotonic() - seen.since < YOUNG
            ended_at = view.known_at if view is not None and phase in OVER else None
            if seen.misses >= MISSES and ended_at is None:
                ended_at = seen.missed_at
            if not cursor.over:
                readings.append(JournalReading(handle, cursor.offset, young or phase is not Phase.QUEUED, ended_at))
        return self.journals.choose(readings, self._tick)

    # --- telling -----------------------------------------------------------------------------------------------------

    def collect(self, since: Mapping[str, str]) -> list[Report]:
        """The reports that are there now."""
        reports = []
        for text, place in since.items():
            report = self._report_set(text, place) if is_set_handle(text) else self._report(text, place)
            if report is not None:
                reports.append(report)
        return reports

    def _report(self, text: str, place: str) -> Report | None:
        seen = self._seen.get(text)
        if seen is None or self._orders.is_open(text):
            return None
        orders = self._orders.by_handle.get(text, [])
        gone = seen.misses >= MISSES
        if seen.quiet is not None and not gone and _is_same(seen.quiet, (seen.view, place, len(orders))):
            return None
        cursor = parse_place(seen.handle, place)
        if cursor.over:
            return None
        projected: Projection | GroupProjection
        if isinstance(seen.handle, GroupHandle) and isinstance(cursor, GroupCursor):
            observed = self._see(seen.handle, seen, cursor)
            projected, gone = project_group(seen.handle, observed, cursor, orders), bool(observed.gone)
        elif isinstance(seen.handle, Handle) and isinstance(cursor, Cursor):
            if gone:
                return Report(text, (project_gone(seen.handle, time.time(), seen.accounting),), place, gone=True)
            if seen.view is None:
                return None
            projected = project(seen.handle, seen.view, cursor, orders, self._addresses)
        else:
            return None
        events = (*projected.events, *self._waiting(seen, projected.cursor))
        if not events and str(projected.cursor) == place:
            if isinstance(seen.handle, Handle) and seen.view is not None:
                seen.quiet = (seen.view, place, len(orders))
            return None
        native = "" if seen.view is None or seen.view.native is None else str(seen.view.native)
        return Report(text, events, str(projected.cursor), gone=gone and projected.cursor.over, native_id=native)

    def _report_set(self, text: str, place: str) -> Report | None:
        if self._orders.is_open(text):
            return None
        projected = self.sets.project(text, self._see_member, self._orders.by_handle.get(text, []))
        if projected is None:
            return None
        events = projected.events
        if not projected.cursor.granted and not projected.cursor.over:
            waiting = [seen for seen in map(self._seen.get, map(str, self.sets.members(text))) if seen is not None]
            queued = [seen for seen in waiting if seen.view and seen.view.outcome.phase is Phase.QUEUED]
            events = (*events, *(event for seen in queued[:1] for event in self._waiting(seen, GroupCursor())))
        if not events and str(projected.cursor) == place:
            return None
        natives = join_natives(handle.native for handle in self.sets.members(text))
        return Report(text, events, str(projected.cursor), native_id=natives)

    def _see_member(self, handle: GroupHandle, offset: int) -> GroupView:
        """What was seen of one native job of a set."""
        seen = self._seen.get(str(handle)) or WatchedLaunch(handle)
        return self._see(handle, seen, GroupCursor(offset))

    def _see(self, handle: GroupHandle, seen: WatchedLaunch, cursor: GroupCursor) -> GroupView:
        page, given = self.journals.page(handle, cursor.offset), self.journals.given(handle)
        ended = seen.view is not None and seen.view.outcome.phase in OVER
        # What Slurm has told of an end stays true, and the journal may have more than was read before.
        gone = seen.misses >= MISSES and not ended and page is not None and page.asked > seen.missed_at
        detail = project_gone(handle, 0.0, seen.accounting).detail if gone else ""
        return GroupView(seen.view, page, given, detail, self.apart)

    def _waiting(self, seen: WatchedLaunch, cursor: Cursor | GroupCursor) -> tuple[Event, ...]:
        """Why a job waits, when that has changed."""
        view = seen.view
        if view is None or view.outcome.phase is not Phase.QUEUED or not cursor.waiting:
            seen.last_estimate = None
            return ()
        until = view.start or 0.0
        if (
            seen.last_estimate is not None
            and seen.last_estimate[0] == view.reason
            and abs(seen.last_estimate[1] - until) < ESTIMATE_SECONDS
        ):
            return ()
        seen.last_estimate = (view.reason, until)
        event = queue_event(view.outcome, view.reason, view.asked, view.start)
        return () if event is None else (event,)

    def overdue(self, since: Mapping[str, str], now: float) -> list[str]:
        """The native names of launches that were asked to end and have not, after their grace or in a queue again."""
        found = []
        for text, place in since.items():
            seen = self._seen.get(text)
            if seen is None or seen.view is None or not place:
                continue
            cursor = parse_place(seen.handle, place)
            waits = seen.view.waits
            if not cursor.kill_at or (cursor.kill_at > now and not waits) or cursor.over:
                continue
            alive = waits or seen.view.outcome.phase not in (*OVER, Phase.ENDING)
            if alive and time.monotonic() - seen.killed_at >= KILL_AGAIN:
                seen.killed_at = time.monotonic()
                found.append(seen.handle.name)
        return found


def _is_same(quiet: tuple[NativeView, str, int], now: tuple[NativeView | None, str, int]) -> bool:
    """Whether nothing has changed since a projection that gave no event. Views are immutable, so identity is enough."""
    return quiet[0] is now[0] and quiet[1:] == now[1:]


def word_gap(trouble: str) -> str:
    """That the accounting does not answer, with the last line of what was said."""
    said = trouble.strip().splitlines()[-1:]
    return f"the accounting does not answer ({''.join(said)}); jobs that have left the queue are shown as they were"


def next_kill(since: Mapping[str, str], now: float) -> float | None:
    """Seconds until the next launch's grace is over; None where nothing ends."""
    cursors = [
        parse_group_cursor(place) if text.startswith(GROUP) else parse_cursor(place)
        for text, place in since.items()
        if place and not is_set_handle(text)
    ]
    times = [cursor.kill_at for cursor in cursors if cursor.kill_at > now]
    return min(times) - now if times else None
