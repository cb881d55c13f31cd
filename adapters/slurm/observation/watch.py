"""Polls Slurm for all launches with one query a tick, and projects each launch's events from its cursor on.

squeue is asked for all launches; the accounting only for those that squeue lacks, and for earlier runs of requeued
jobs. Journals of groups are read independently of that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from overspan.adapters.contract import Report
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.groups.handles import GroupCursor, NativeJob, PartCursor, join_natives
from overspan.adapters.slurm.groups.projection import PartView
from overspan.adapters.slurm.groups.watch import Groups, KnownGroup
from overspan.adapters.slurm.handles import Cursor, Handle, check_texts, parse_cursor, parse_handle
from overspan.adapters.slurm.observation.journal_watch import JournalReading, JournalWatch
from overspan.adapters.slurm.observation.outcomes import Phase, queue_event
from overspan.adapters.slurm.observation.poll_times import LaunchAge, QueryBudget
from overspan.adapters.slurm.observation.projection import (
    NativeView,
    move_view,
    project,
    project_gone,
    view_cancelled_element,
)
from overspan.adapters.slurm.observation.requeues import is_unstarted
from overspan.adapters.slurm.observation.single_flight import SingleFlight
from overspan.adapters.slurm.observation.snapshot import OVER, AccountingSnapshot, QueueSnapshot, take_view
from overspan.adapters.slurm.orders.delivered import DeliveredOrders
from overspan.adapters.slurm.submission.throttles import Throttles
from overspan.bridge.model.errors import NotFound, OverspanError
from overspan.bridge.model.events import Event, Queued

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
class WatchedJob:
    """What is known of one run of a native job: of a single job, or of a part of a group."""

    handle: Handle | NativeJob
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
        self._launches: dict[str, WatchedJob] = {}
        self._unreadable: set[str] = set()
        """Handles of launches that a later version wrote."""
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
        self.groups = Groups()
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
        return any(isinstance(watched.handle, NativeJob) for watched in self._launches.values())

    def list_readable(self, since: Mapping[str, str]) -> dict[str, str]:
        """The launches that this version can read. Each other one is left alone, which is said once."""
        found, unreadable = {}, set()
        for handle, cursor in since.items():
            try:
                # What was read before has been written by this version since.
                if handle not in self._launches and self.groups.find(handle) is None:
                    check_texts(handle, cursor)
                found[handle] = cursor
            except NotFound as error:
                unreadable.add(handle)
                if handle not in self._unreadable:
                    _log.warning("a launch is left alone until the version that wrote it runs again: %s", error)
        self._unreadable = unreadable
        return found

    def _list_jobs(self, since: Mapping[str, str]) -> dict[str, Handle | NativeJob]:
        """The native jobs of these launches: the single ones by their handles, and the open parts of groups."""
        jobs: dict[str, Handle | NativeJob] = {}
        for text in since:
            known = self.groups.find(text)
            if known is not None:
                jobs.update((str(job), job) for job, _ in known.list_open())
            else:
                watched = self._launches.get(text)
                jobs[text] = parse_handle(text) if watched is None else watched.handle
        return jobs

    def view_of(self, handle: str) -> NativeView | None:
        """The latest view of a native job; None where there is none."""
        watched = self._launches.get(handle)
        return watched.view if watched else None

    def is_taken(self, handle: str) -> bool:
        """Whether a native job's id belongs to another job by now, which must not get its orders."""
        watched = self._launches.get(handle)
        return watched is not None and watched.taken

    def note_order(self, handle: str) -> None:
        """Note that an order was carried out: its effect is queried sooner than with the next tick."""
        self.groups.note_order(handle)
        watched = self._launches.get(handle)
        if watched is not None:
            watched.ordered_at = time.monotonic()

    def nodes_of(self, handle: str) -> tuple[str, ...]:
        """The names of a launch's nodes, in the order of its members; empty while they are not known."""
        view = self.view_of(handle)
        return () if view is None else view.nodes

    def list_running(self) -> list[NativeJob]:
        """The native jobs of groups that have their nodes and whose journal is not closed."""
        found = []
        for job, offset in [part for known in self.groups for part in known.list_open()]:
            view, page = self.view_of(str(job)), self.journals.page(job, offset)
            runs = view is not None and view.outcome.phase in (Phase.RUNNING, Phase.SUSPENDED)
            if runs and not (page is not None and page.closed):
                found.append(job)
        return found

    async def look(self, since: Mapping[str, str]) -> None:
        """Start the queries that are due and wait for the first answer. A caller that stops waiting cancels none."""
        self.groups.note_cursors(since)
        jobs = self._list_jobs(since)
        if not any(isinstance(job, NativeJob) for job in jobs.values()):
            self._reading.forget()
        self._advance_next_ask(jobs)
        if jobs and time.monotonic() >= self.next_ask:
            self._looking.begin(lambda: self._ask(jobs))
        readings = self._choose()
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
        self.groups.move_clock(seconds)

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

    async def _ask(self, handles: Mapping[str, Handle | NativeJob]) -> None:
        began, asked = time.monotonic(), time.time()
        self._looked, self.next_ask = began, began + self._tick
        self._budget.take(began)
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
            watched = self._launches.setdefault(text, WatchedJob(handle))
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

    def _advance_next_ask(self, handles: Mapping[str, Handle | NativeJob]) -> None:
        """Query sooner than with the next tick while a single job is young; groups have their journals for that."""
        singles = [text for text, handle in handles.items() if isinstance(handle, Handle)]
        for text in singles:
            if text not in self._launches:
                self._launches[text] = WatchedJob(handles[text])
        ages = (
            LaunchAge(watched.since, watched.running_since, watched.ordered_at)
            for watched in map(self._launches.__getitem__, singles)
        )
        looks = [look for age in ages if (look := age.find_next_look(self._looked)) is not None]
        if looks and self._looking.task is None:
            self.next_ask = min(self.next_ask, max(min(looks), self._rested, self._budget.find_time(time.monotonic())))

    async def _take(self, answer: QueueSnapshot, handles: Mapping[str, Handle | NativeJob]) -> None:
        """Store the views of these launches."""
        views = {text: answer.view(handle, self.view_of(text)) for text, handle in handles.items()}
        single = [view for text, view in views.items() if view is not None and isinstance(handles[text], Handle)]
        names = {name for view in single for name in view.nodes}
        try:
            self._addresses = await self._queries.addresses(names)
        except OverspanError as error:
            # News without addresses is better than no news.
            _log.debug("the nodes' addresses are not known: %s", error.message)
        answered_at, accounts = time.time(), answer.accounts
        settled = not accounts.kept or time.monotonic() - self._accounting_failed_at >= LAG
        for text, handle in handles.items():
            watched, view = self._launches.setdefault(text, WatchedJob(handle)), views[text]
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
        self, answer: QueueSnapshot, accounts: AccountingSnapshot, handles: dict[str, Handle | NativeJob]
    ) -> tuple[AccountingSnapshot, dict[str, Handle | NativeJob]]:
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

    def _choose(self) -> list[JournalReading]:
        """The journals to read now."""
        if self._reading.task is not None:
            return []
        readings = []
        for job, offset in [part for known in self.groups for part in known.list_open()]:
            watched = self._launches.setdefault(str(job), WatchedJob(job))
            view = watched.view
            phase = Phase.QUEUED if view is None else view.outcome.phase
            young = time.monotonic() - watched.since < YOUNG
            ended_at = view.known_at if view is not None and phase in OVER else None
            if watched.misses >= MISSES and ended_at is None:
                ended_at = watched.gone_at
            readings.append(JournalReading(job, offset, young or phase is not Phase.QUEUED, ended_at))
        return self.journals.choose(readings, self._tick)

    # --- reports -----------------------------------------------------------------------------------------------------

    def collect(self, since: Mapping[str, str]) -> list[Report]:
        """The reports of all launches that have news behind their cursors."""
        reports = []
        for text, cursor_text in since.items():
            if self._orders.is_open(text):
                continue
            known = self.groups.find(text)
            report = self._report_job(text, cursor_text) if known is None else self._report_group(text, known)
            if report is not None:
                reports.append(report)
        return reports

    def _report_job(self, text: str, cursor_text: str) -> Report | None:
        watched = self._launches.get(text)
        if watched is None or not isinstance(watched.handle, Handle):
            return None
        orders = self._orders.by_handle.get(text, [])
        gone = watched.misses >= MISSES
        if watched.quiet is not None and not gone and _is_same(watched.quiet, (watched.view, cursor_text, len(orders))):
            return None
        cursor = parse_cursor(cursor_text)
        if cursor.over:
            return None
        if gone:
            lost = project_gone(watched.handle, time.time(), watched.accounting)
            return Report(text, (lost,), cursor_text, gone=True)
        if watched.view is None:
            return None
        projected = project(watched.handle, watched.view, cursor, orders, self._addresses)
        events = (*projected.events, *self._waiting(watched, projected.cursor))
        if not events and str(projected.cursor) == cursor_text:
            watched.quiet = (watched.view, cursor_text, len(orders))
            return None
        native = "" if watched.view.native is None else str(watched.view.native)
        return Report(text, events, str(projected.cursor), native_id=native)

    def _report_group(self, text: str, known: KnownGroup) -> Report | None:
        if known.cursor.over:
            return None
        projected = self.groups.project(known, self._view_part, self._orders.by_handle.get(text, []))
        cursor, jobs = projected.cursor, known.list_jobs()
        queued = [job for job in jobs if (view := self.view_of(str(job))) and view.outcome.phase is Phase.QUEUED]
        waiting = self._launches.get(str((queued or jobs)[0]))
        parts = [part for part in cursor.parts if part.submitted]
        if cursor.granted and not cursor.over:
            waits = tuple(self._list_waits(zip(jobs, parts, strict=True)))
        else:
            waits = self._waiting(waiting, cursor) if waiting is not None else ()
        events = (*projected.events, *waits)
        if not events and cursor == known.cursor:
            return None
        places = zip(jobs, parts, strict=True)
        gone = cursor.over and any(self._is_gone(job, place.offset) for job, place in places)
        natives = join_natives(job.native for job in jobs)
        return Report(text, events, str(cursor), gone=gone, native_id=natives)

    def _list_waits(self, places: Iterable[tuple[NativeJob, PartCursor]]) -> Iterator[Event]:
        """Why native jobs wait that were submitted after the set's start, where that has changed."""
        for job, part in places:
            watched = self._launches.get(str(job))
            if watched is None or watched.view is None or not part.since or part.over:
                continue
            words, view = (watched.view.reason, watched.view.partition), watched.view
            if view.outcome.phase is Phase.QUEUED and (watched.reported is None or watched.reported[0] != words):
                watched.reported = (words, 0.0)
                yield Queued(view.asked, view.reason, task=part.task)

    def _view_part(self, job: NativeJob, offset: int) -> PartView:
        """The view of one native job of a group."""
        watched = self._launches.get(str(job)) or WatchedJob(job)
        gone = project_gone(job, 0.0, watched.accounting).detail if self._is_gone(job, offset) else ""
        return PartView(
            watched.view, self.journals.page(job, offset), self.journals.file_orders(job), gone, self.unshared
        )

    def _is_gone(self, job: NativeJob, offset: int) -> bool:
        """Whether Slurm has forgotten a native job. An end that Slurm reported stays true.

        Its journal has to be read after the misses, since it may have ended properly in the meantime.
        """
        watched, page = self._launches.get(str(job)), self.journals.page(job, offset)
        if watched is None or watched.misses < MISSES or page is None:
            return False
        ended = watched.view is not None and watched.view.outcome.phase in OVER
        return not ended and page.asked > watched.gone_at

    def _waiting(self, watched: WatchedJob, cursor: Cursor | GroupCursor) -> tuple[Event, ...]:
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
        for text, cursor in self._list_cursors(since):
            watched = self._launches.get(text)
            if watched is None or watched.view is None:
                continue
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
        cursors = [(self._launches.get(text), cursor) for text, cursor in self._list_cursors(since)]
        times = [self._find_kill(watched, cursor) for watched, cursor in cursors if watched is not None]
        later = [at for at in times if at > now]
        return min(later) - now if later else None

    def _find_kill(self, watched: WatchedJob, cursor: Cursor | GroupCursor) -> float:
        """When a launch's grace period is over, by the clock as it is now; it was stored by the clock as it was."""
        if watched.kill_at != cursor.kill_at:
            watched.kill_at, watched.kill_seen = cursor.kill_at, self.moved_by
        return cursor.kill_at + self.moved_by - watched.kill_seen if cursor.kill_at else 0.0

    def _list_cursors(self, since: Mapping[str, str]) -> Iterator[tuple[str, Cursor | GroupCursor]]:
        """The native jobs of these launches, each with its launch's cursor."""
        for text, cursor_text in since.items():
            known = self.groups.find(text)
            if known is not None:
                yield from ((str(job), known.cursor) for job in known.list_jobs())
            elif cursor_text:
                yield text, parse_cursor(cursor_text)


def _is_same(quiet: tuple[NativeView, str, int], now: tuple[NativeView | None, str, int]) -> bool:
    """Whether a projection would have the same inputs as the last one. Views are immutable, so identity is enough."""
    return quiet[0] is now[0] and quiet[1:] == now[1:]


def describe_gap(trouble: str) -> str:
    """A sentence that the accounting does not answer, with the last line of its error."""
    said = trouble.strip().splitlines()[-1:]
    return f"the accounting does not answer ({''.join(said)}); jobs that have left the queue are shown as they were"
