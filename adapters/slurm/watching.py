"""Looking at all launches with one question a tick, and telling each story from where it was left.

squeue is asked for all of them; the accounting only for what squeue does not know, and for the earlier run of what
was requeued.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from overspan.adapters.contract import Report
from overspan.adapters.slurm.handles import ENDED, Cursor, Handle, parse_cursor, parse_handle
from overspan.adapters.slurm.outcomes import Phase, queue_event
from overspan.adapters.slurm.questions import Questions
from overspan.adapters.slurm.sacct import AccountingRecord
from overspan.adapters.slurm.stories import Ordered, View, tell, tell_gone, view_accounts, view_queue
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.events import Event

_log = logging.getLogger(__name__)

MISSES = 2
"""How often in a row nobody must know a job before it counts as gone."""
ESTIMATE_SECONDS = 60.0
"""A change of the expected start that is worth telling."""
KILL_AGAIN = 30.0
SLOW = 4
"""A question that takes long is asked more seldom: at most one part in so many of the time."""


@dataclass
class Seen:
    """What is known of one native job and run."""

    view: View | None = None
    misses: int = 0
    accounting: bool = True
    told: tuple[str, float] | None = None
    """The reason and the expected start that were told last."""
    killed_at: float = -KILL_AGAIN


@dataclass
class Orders:
    """The orders that were carried out, by handle; their numbers grow from one process to the next."""

    by_handle: dict[str, list[Ordered]] = field(default_factory=dict)
    tokens: dict[str, None] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    """Launches whose orders are under way, and how many: their story goes on when it is known what came of those."""
    last: int = 0

    def begin(self, handle: str) -> None:
        """An order is being carried out."""
        self.busy[handle] = self.busy.get(handle, 0) + 1

    def end(self, handle: str) -> None:
        """It is known what came of an order."""
        self.busy[handle] -= 1
        if not self.busy[handle]:
            del self.busy[handle]

    def add(self, handle: str, token: str, event: Event) -> None:
        """Note an order that has been carried out."""
        self.tokens[token] = None
        self.last = max(self.last + 1, time.time_ns() // 1000)
        self.by_handle.setdefault(handle, []).append(Ordered(self.last, event, time.time()))
        while len(self.by_handle) > 20_000:
            del self.by_handle[next(iter(self.by_handle))]
        while len(self.tokens) > 50_000:
            del self.tokens[next(iter(self.tokens))]


class Watch:
    """Knows what was seen last, and asks again when a tick has passed."""

    def __init__(self, questions: Questions, orders: Orders, tick: float) -> None:
        self._questions = questions
        self._orders = orders
        self._tick = tick
        self._seen: dict[str, Seen] = {}
        self._asking: asyncio.Task[None] | None = None
        self._next = 0.0
        self._addresses: Mapping[str, str] = {}
        self.fresh = asyncio.Event()

    @property
    def next_look(self) -> float:
        """When the cluster may be asked again (monotonic time)."""
        return self._next

    def view_of(self, handle: str) -> View | None:
        """What was seen of a launch last."""
        seen = self._seen.get(handle)
        return seen.view if seen else None

    async def look(self, handles: Sequence[str]) -> None:
        """Ask if a tick has passed; whoever stops waiting does not stop the question. Raises Unreachable."""
        if self._asking is None:
            if time.monotonic() < self._next or not handles:
                return
            self._asking = asyncio.create_task(self._ask(list(handles)))
            self._asking.add_done_callback(self._end)
        await asyncio.shield(self._asking)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        if not task.cancelled():
            # Seen here: whoever waited may have gone.
            task.exception()

    async def close(self) -> None:
        """Stop asking."""
        task = self._asking
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _ask(self, texts: list[str]) -> None:
        began, asked = time.monotonic(), time.time()
        self._next = began + self._tick
        handles = {text: parse_handle(text) for text in texts}
        records = await self._questions.queue(sorted({handle.native for handle in handles.values()}))
        unclear = [
            handle.native
            for handle in handles.values()
            if handle.native not in records or records[handle.native].restarts > handle.run
        ]
        runs, accounting, answered = await self._ask_accounts(sorted(set(unclear)))
        self._seen = {text: seen for text, seen in self._seen.items() if text in handles or len(self._seen) < 50_000}
        names: set[str] = set()
        for text, handle in handles.items():
            seen = self._seen.setdefault(text, Seen())
            record = records.get(handle.native)
            view: View | None
            if record is not None:
                view = view_queue(record, handle.run, runs.get(handle.native, []), asked)
            else:
                view = view_accounts(runs.get(handle.native, []), handle.run, asked)
            if view is not None:
                seen.view, seen.misses = view, 0
                names.update(view.nodes)
            elif answered:
                seen.misses, seen.accounting = seen.misses + 1, accounting
        if names:
            self._addresses = await self._questions.addresses(names)
        self._next = max(self._next, time.monotonic() + SLOW * (time.monotonic() - began) - self._tick)
        self.fresh.set()

    async def _ask_accounts(self, ids: list[int]) -> tuple[dict[int, list[AccountingRecord]], bool, bool]:
        """The runs of what squeue does not tell, whether there is an accounting, and whether it has answered."""
        if not ids:
            return {}, True, True
        site = await self._questions.site()
        if not site.accounting:
            return {}, False, True
        try:
            return await self._questions.runs(ids), True, True
        except OverspanError as error:
            # What has vanished waits for an answer; all others are told.
            _log.info("the accounting does not answer: %s", error.message)
            return {}, True, False

    # --- telling -----------------------------------------------------------------------------------------------------

    def collect(self, since: Mapping[str, str]) -> list[Report]:
        """The reports that are there now."""
        reports = []
        for text, place in since.items():
            report = self._report(text, place)
            if report is not None:
                reports.append(report)
        return reports

    def _report(self, text: str, place: str) -> Report | None:
        handle, cursor, seen = parse_handle(text), parse_cursor(place), self._seen.get(text)
        if seen is None or cursor.phase == ENDED or text in self._orders.busy:
            return None
        if seen.misses >= MISSES:
            lost = tell_gone(handle, time.time(), seen.accounting)
            return Report(text, (lost,), place, gone=True)
        if seen.view is None:
            return None
        told = tell(handle, seen.view, cursor, self._orders.by_handle.get(text, []), self._addresses)
        events = (*told.events, *self._waiting(seen, seen.view, told.cursor))
        if not events and str(told.cursor) == place:
            return None
        return Report(text, events, str(told.cursor))

    def _waiting(self, seen: Seen, view: View, cursor: Cursor) -> tuple[Event, ...]:
        """Why a job waits, when that has changed."""
        if view.outcome.phase is not Phase.QUEUED or cursor.phase or cursor.held:
            seen.told = None
            return ()
        until = view.start or 0.0
        if seen.told is not None and seen.told[0] == view.reason and abs(seen.told[1] - until) < ESTIMATE_SECONDS:
            return ()
        seen.told = (view.reason, until)
        event = queue_event(view.outcome, view.reason, view.asked, view.start)
        return () if event is None else (event,)

    def overdue(self, since: Mapping[str, str], now: float) -> list[Handle]:
        """Launches that were asked to end and have not, after their grace."""
        found = []
        for text, place in since.items():
            cursor, seen = parse_cursor(place), self._seen.get(text)
            if not cursor.kill_at or cursor.kill_at > now or cursor.phase == ENDED or seen is None or seen.view is None:
                continue
            alive = seen.view.outcome.phase not in (Phase.ENDED, Phase.REQUEUED, Phase.ENDING)
            if alive and time.monotonic() - seen.killed_at >= KILL_AGAIN:
                seen.killed_at = time.monotonic()
                found.append(parse_handle(text))
        return found


def next_kill(since: Mapping[str, str], now: float) -> float | None:
    """Seconds until the next launch's grace is over; None where nothing ends."""
    times = [cursor.kill_at for cursor in map(parse_cursor, since.values()) if cursor.kill_at > now]
    return min(times) - now if times else None
