"""Lost launches: given up because no supervisor can run them. Ends their processes and reports their ends.

Their shims' records are independent of the damaged files: a program with a recorded end has ended like that. All other
programs are lost. The job is not restarted automatically, since it is unknown what has run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from overspan.adapters.contract import FORMAT
from overspan.adapters.local.files import journals
from overspan.adapters.local.files.launch_files import LaunchFiles, read_document
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Cancel, Event, Granted, Launch, LaunchLost, NodeEnded, NodeStarted
from overspan.bridge.runtime.core.live_processes import end_live_processes
from overspan.bridge.runtime.core.loss_records import Loss, is_damage, name_loss, read_loss, word_damage, write_loss
from overspan.bridge.runtime.core.node_records import list_records
from overspan.bridge.runtime.core.shim import UNKILLABLE_TIMEOUT

GRACE = 30.0
"""Seconds between TERM and KILL: the default of a task, whose own may not be readable."""
SHOWN_SECONDS = 3600.0
"""How long an ended lost launch stays among the daemon's problems."""


@dataclass
class LostLaunch:
    """A launch that is being ended because it cannot be supervised."""

    place: LaunchFiles
    loss: Loss
    begun: bool
    """Whether any of it may have run."""
    cancelled: bool = False
    kill_at: float = 0.0
    """When KILL follows, by the monotonic clock, which is never set."""
    signalled: set[tuple[int, int]] = field(default_factory=set)
    """Processes that have had their TERM, by pid and start."""
    ended_at: float | None = None

    def describe(self) -> str:
        """A sentence about its state, for users."""
        job = self.place.job
        what, remedy = "it is being ended", ""
        if self.ended_at is not None:
            what, remedy = "it was ended", f"; `span requeue {job}` starts it anew"
        return f"job {job} cannot be looked after, so {what}: {self.loss.why}{remedy}"

    def obey(self, event: Event) -> None:
        """Apply an order: a cancel changes the cause of the end, and may shorten the grace."""
        if isinstance(event, Cancel) and not event.task:
            self.cancelled = True
            if event.grace is not None:
                self.kill_at = min(self.kill_at, time.monotonic() + event.grace)


def open_lost_launch(place: LaunchFiles, why: str, begun: bool, now: float) -> LostLaunch:
    """Record the loss, also on the disk if possible."""
    path = name_loss(place.root, place.folder, place.launch)
    loss = read_loss(path)
    if loss is None:
        loss = Loss(now, why)
        try:
            write_loss(path, loss)
        except OSError:
            pass  # A full disk: it is known until this process ends, and found again by the next.
    return LostLaunch(place, loss, begun, kill_at=time.monotonic() + GRACE)


def end_processes(lost: LostLaunch) -> bool:
    """End its processes: TERM, then KILL after the grace. True when none is left, or the rest cannot be killed."""
    now = time.monotonic()
    number = signal.SIGTERM if now < lost.kill_at else signal.SIGKILL
    alive = end_live_processes(lost.place.folder, number, lost.signalled)
    return not alive or now > lost.kill_at + UNKILLABLE_TIMEOUT


def list_end_events(lost: LostLaunch, now: float) -> tuple[Event, ...]:
    """The events of its end: what its shims recorded before it was given up, then its loss."""
    cause = Cause.CANCEL if lost.cancelled else Cause.SYSTEM if lost.begun else Cause.NODE
    report = LaunchLost(now, lost.place.launch, cause.value, lost.loss.why)
    return (*_list_recorded_events(lost), report)


def _list_recorded_events(lost: LostLaunch) -> list[Event]:
    found = list_records(f"{lost.place.folder}/nodes")
    events: list[Event] = []
    for (task, node, attempt, run), record in sorted(found.items(), key=lambda item: (item[0][2], item[0][3])):
        if record.pid <= 0 or record.failed_at not in ("", "lost"):
            continue
        if not events:
            events.append(Granted(record.started_at, ()))
        events.append(Launch(record.started_at, task, attempt))
        events.append(NodeStarted(record.started_at, task, attempt, node, run))
        if record.ended_at is not None and record.ended_at < lost.loss.at and not record.failed_at:
            code, number = record.exit_code or 0, record.signal or 0
            events.append(NodeEnded(record.ended_at, task, attempt, node, run, code, number))
    return events


def find_damage(place: LaunchFiles) -> str:
    """Why a watched launch is unknown; empty if the next look, or another version, may find it."""
    try:
        if not os.path.isdir(place.folder):
            return f"{place.folder} is gone"
        plan = read_document(place.plan)
        if plan is None:
            return f"{place.plan} is {'damaged' if os.path.exists(place.plan) else 'gone'}"
        if plan.get("format") != FORMAT:
            return ""
        if journals.is_over(place):
            # A complete journal contains the end, which has been reported, or will be with the next read.
            return "" if journals.is_whole(place) else f"{place.journal} does not show how it ended"
        if read_document(place.grant) is None:
            return f"{place.grant} is {'damaged' if os.path.exists(place.grant) else 'gone'}"
    except OSError as error:
        return word_damage(error) if is_damage(error) else ""
    return f"{place.ticket} is gone"


class LostLaunches:
    """Those that are being ended, and those whose end is recent."""

    def __init__(self) -> None:
        self._known: dict[str, LostLaunch] = {}

    def __contains__(self, handle: str) -> bool:
        return handle in self._known

    def get(self, handle: str) -> LostLaunch | None:
        return self._known.get(handle)

    def list_ending(self) -> list[LostLaunch]:
        """Those that may have live processes."""
        return [lost for lost in self._known.values() if lost.ended_at is None]

    def list_recent(self) -> list[LostLaunch]:
        """Those that are being ended, or have ended within SHOWN_SECONDS."""
        now = time.time()
        return [lost for lost in self._known.values() if lost.ended_at is None or now - lost.ended_at < SHOWN_SECONDS]

    async def open(self, place: LaunchFiles, why: str, begun: bool) -> LostLaunch:
        """Record the loss of a launch that is not lost yet; `begun` says whether any of it may have run."""
        lost = await asyncio.to_thread(open_lost_launch, place, why, begun, time.time())
        self._known = {known.place.handle: known for known in self.list_recent()}
        self._known[place.handle] = lost
        return lost

    async def end(self) -> AsyncIterator[tuple[LostLaunch, tuple[Event, ...]]]:
        """End the processes of lost launches; each that has ended now, with the events of its end."""
        for lost in self.list_ending():
            if await asyncio.to_thread(end_processes, lost):
                now = time.time()
                lost.ended_at = now
                yield lost, await asyncio.to_thread(list_end_events, lost, now)
