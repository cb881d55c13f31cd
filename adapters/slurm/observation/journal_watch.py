"""Reads the journals of all live groups with one call, about once a second. Slurm's controller is not asked."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from overspan.adapters.slurm.groups.handles import NativeJob
from overspan.adapters.slurm.observation.journals import (
    JournalChunk,
    JournalPage,
    JournalRequest,
    read_orders,
    read_page,
    read_parts,
    render_reads,
)
from overspan.adapters.slurm.transports.transport import Transport
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.events import Event

READ_SECONDS = 1.0
LONGEST = 64 << 20
"""Bytes of the longest line that is read in one piece."""
FILES = 400
"""Journals read by one call, at most."""
SLOW = 4
"""Back-off for slow reads: after a read that took t seconds, the next one waits SLOW * t."""


@dataclass(frozen=True)
class JournalReading:
    """A group's journal that is wanted from `offset` on. An `active` one is read each second, others each tick.

    `ended_at` is when Slurm reported the group's end (this machine's time; None: no end): pages from before may lack
    the last lines, so the journal is read once more. `asked` is when this reading was chosen, and not when it came
    back: one that was chosen before the end was known does not count as that last read.
    """

    handle: NativeJob
    offset: int
    active: bool
    ended_at: float | None = None
    asked: float = field(default_factory=lambda: time.time())


class JournalWatch:
    """Keeps the newest page of each journal. `timeout` is in seconds."""

    def __init__(self, transport: Transport, timeout: float) -> None:
        self._transport = transport
        self._timeout = timeout
        self._pages: dict[str, JournalPage] = {}
        self._file_orders: dict[str, tuple[tuple[int, Event], ...]] = {}
        self.next_read = 0.0
        """When journals may be read again (monotonic time)."""
        self._all_due_at = 0.0

    def page(self, handle: NativeJob, offset: int) -> JournalPage | None:
        """The page that was read last; None if it begins behind the offset."""
        page = self._pages.get(str(handle))
        return page if page is not None and page.begin <= offset else None

    def has_begun(self, handle: NativeJob) -> bool:
        """Whether the supervisor is known to have written something: its signal handlers are installed by then."""
        page = self._pages.get(str(handle))
        return page is not None and page.stop > 0

    def file_orders(self, handle: NativeJob) -> tuple[tuple[int, Event], ...]:
        """The orders in the group's orders file, which is read when the group has ended."""
        return self._file_orders.get(str(handle), ())

    def choose(self, readings: Sequence[JournalReading], tick: float) -> list[JournalReading]:
        """The journals that are to be read now; those of waiting groups once a tick."""
        now = time.monotonic()
        all_due = now >= self._all_due_at
        due = now >= self.next_read
        chosen = []
        for reading in readings:
            page = self.page(reading.handle, reading.offset)
            if page is not None and page.closed:
                continue
            old = reading.ended_at is not None and page is not None and page.asked <= reading.ended_at
            behind = page is not None and page.more and reading.offset >= (page.lines[-1].end if page.lines else 0)
            if page is None or old or behind or (due and (reading.active or all_due)):
                chosen.append(reading)
        if due:
            self.next_read = now + READ_SECONDS
            if all_due:
                self._all_due_at = now + tick
        return chosen

    async def read(self, readings: Sequence[JournalReading]) -> None:
        """Read their journals. Raises Unreachable."""
        began = time.monotonic()
        for start in range(0, len(readings), FILES):
            await self._read(readings[start : start + FILES])
        self.next_read = max(self.next_read, time.monotonic() + SLOW * (time.monotonic() - began) - READ_SECONDS)

    async def _read(self, readings: Sequence[JournalReading]) -> None:
        wanted = [JournalRequest(reading.handle.journal, reading.offset) for reading in readings]
        ended = [reading.handle for reading in readings if reading.ended_at is not None]
        wanted += [JournalRequest(handle.orders) for handle in ended]
        done = await self._transport.run(["/bin/sh"], render_reads(wanted).encode(), timeout=self._timeout)
        if done.rc != 0:
            raise Unreachable(f"the journals cannot be read: {done.words.strip() or f'exit code {done.rc}'}")
        parts = read_parts(done.out, len(wanted))
        for place, reading in enumerate(readings):
            part = parts.get(place)
            if part is not None and part.cut(reading.offset):
                piece = await self._transport.read(reading.handle.journal, reading.offset, LONGEST)
                part = JournalChunk(piece.size, piece.data)
            self._pages[str(reading.handle)] = read_page(part, reading.offset, reading.asked)
        for place, handle in enumerate(ended, len(readings)):
            self._file_orders[str(handle)] = read_file_orders(parts.get(place))

    def move_clock(self, seconds: float) -> None:
        """This machine's clock was set by so many seconds: pages keep their age."""
        now = time.time()
        for name, page in self._pages.items():
            self._pages[name] = replace(page, asked=min(now, page.asked + seconds))

    def forget(self, known: Mapping[str, object]) -> None:
        """Drop the pages of journals that are not in `known`."""
        for kept in (self._pages, self._file_orders):
            for text in [text for text in kept if text not in known]:
                del kept[text]


def read_file_orders(part: JournalChunk | None) -> tuple[tuple[int, Event], ...]:
    """The orders in the file of a group."""
    return tuple(read_orders(part))
