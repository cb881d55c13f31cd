"""The launches of a local cluster: those that wait, in memory alone, and those that were granted, with files of them.

| launch | in memory | on disk |
|---|---|---|
| waits | its `Launch`, rank and needs; what is ordered of it | nothing; the daemon's store has the job |
| granted | booking and rank | plan, grant, ticket, orders, and what its supervisor writes |
| over | nothing | the same without the ticket, packed soon |

A grant is the step from the first row to the second. It is complete with the grant's file, which is renamed into place
last: a launch without one has not begun, and the daemon hands it over again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from overspan.adapters.contract import FORMAT, Launch
from overspan.adapters.local.files import journals
from overspan.adapters.local.files.launch_files import (
    Document,
    LaunchFiles,
    Ticket,
    append_lines,
    mark_ended,
    parse_handle,
    read_booking,
    read_document,
    read_ticket,
    remove,
    render_grant,
    write_document,
    write_ticket,
)
from overspan.adapters.local.files.run_packs import unpack_run
from overspan.adapters.local.queue.booking import Booking, fit_gpu_defaults, list_variants
from overspan.adapters.local.queue.capacity import Capacity
from overspan.adapters.local.queue.start_estimates import limit_run
from overspan.adapters.waiting_orders import interpret_order
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.deciders import Decider
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.events import (
    Cancel,
    Event,
    Expire,
    Hold,
    LaunchLost,
    Preempt,
    Refused,
    Release,
    Requeue,
    SetNice,
    SetPriority,
    SetTime,
    Suspend,
    event_to_document,
)
from overspan.bridge.model.job import Job
from overspan.bridge.model.ranks import Rank, change_rank, rank_job
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.core import loss_records
from overspan.bridge.runtime.data.cache import write_cache_settings
from overspan.bridge.runtime.data.stores import write_stores

_log = logging.getLogger(__name__)

_FOLDERS = ("runs", "tickets", "hosts", "cache", "ended", loss_records.FOLDER)


@dataclass
class LocalLaunch:
    """A live launch. It waits until it has a booking; a held one waits outside of the queue."""

    place: LaunchFiles
    ticket: Ticket
    rank: Rank
    nice: int = 0
    """The part of the rank that is nice."""
    lasts: float | None = None
    """Seconds that it runs at most, from its grant; None if unknown."""
    launch: Launch | None = None
    """What its plan will be made of; None once it was granted."""
    held: bool = False
    booking: Booking | None = None
    addresses: tuple[str, ...] = ()
    host: str = ""
    granted_at: float = 0.0
    leaving: bool = False
    """Whether its end was ordered after its grant."""
    reason: str = ""
    starts_by: float | None = None
    """When it starts at the latest, estimated from the bookings; None if unknown."""
    size: int = 0
    """Bytes of its journal when it was checked last."""
    tokens: set[str] | None = None
    """Tokens of its orders; None until they are needed."""
    orders: int = 0
    kept: list[tuple[str, Event]] = field(default_factory=list)
    """Orders that its supervisor gets with the grant."""

    @property
    def handle(self) -> str:
        """The launch's name."""
        return self.place.handle

    @property
    def array(self) -> int | None:
        """The array that it is an element of."""
        return self.rank.job if self.rank.element >= 0 else None

    @property
    def tasks(self) -> int:
        """The number of its tasks."""
        return len({member.task for member in self.ticket.variants[0]})

    @property
    def ends_by(self) -> float | None:
        """When it frees its resources at the latest; None if unknown."""
        return None if self.lasts is None else self.granted_at + self.lasts


class GrantFacts(NamedTuple):
    """Values that all grants of one round have in common."""

    cluster: str
    at: float
    node: str
    isolation: str
    boot_id: str
    stores: Mapping[str, StoreAccess] = MappingProxyType({})
    cache_limit: int | None = None


def make_root(root: str) -> None:
    """Make the cluster's folders. Raises OSError, also if other users can write to them."""
    for path in (root, *(f"{root}/{name}" for name in _FOLDERS)):
        os.makedirs(path, 0o700, exist_ok=True)
        status = os.stat(path)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            # A user who can rename files here could run programs as this user.
            raise PermissionError(errno.EPERM, f"{path} is another user's or can be written by others; chmod 700", path)


def make_run(place: LaunchFiles, launch: Launch, capacity: Capacity) -> LocalLaunch:
    """A waiting launch; what its GPUs bring with them is fitted to the machine."""
    launch = _fit(launch, capacity)
    ticket = _make_ticket(launch.token, launch.job, capacity)
    run = _make_run(place, ticket)
    run.launch, run.held, run.reason, run.tokens = launch, launch.job.held, launch.job.reason, set()
    return run


def refit(run: LocalLaunch, capacity: Capacity) -> None:
    """Fit a waiting launch to the machine, of which its GPUs are known by now."""
    if run.launch is not None:
        run.launch = _fit(run.launch, capacity)
        run.ticket = _make_ticket(run.launch.token, run.launch.job, capacity)


def _fit(launch: Launch, capacity: Capacity) -> Launch:
    job = fit_gpu_defaults(launch.job, capacity) if capacity.gpus_known else launch.job
    return launch if job is launch.job else replace(launch, job=job)


def _make_ticket(token: str, job: Job, capacity: Capacity) -> Ticket:
    group = job.spec.group or len(job.spec.tasks) > 1
    requeue, gated = job.spec.requeue is not False, job.spec.across
    lasts = None if gated else limit_run(job)
    return Ticket(token, rank_job(job), group, list_variants(job, capacity), job.nice, requeue, lasts, gated)


def _make_run(place: LaunchFiles, ticket: Ticket) -> LocalLaunch:
    return LocalLaunch(place, ticket, ticket.rank, ticket.nice, ticket.lasts)


def find_launch(place: LaunchFiles) -> str | None:
    """The token of a launch that was granted before; None if there is none."""
    document = read_document(place.plan)
    return None if document is None else str(document.get("token", ""))


def has_files(place: LaunchFiles) -> bool:
    """Whether a launch has any file here that is not packed; a job with a watched launch is never packed."""
    folder = (place.plan, place.grant, place.journal) if os.path.lexists(place.folder) else ()
    return any(map(os.path.lexists, (place.ticket, *folder)))


def write_grant(run: LocalLaunch, facts: GrantFacts) -> None:
    """Write the files of a launch that is granted; from then on its supervisor decides about it.

    Raises OSError, and then leaves none of them.
    """
    try:
        _write_files(run, facts)
    except OSError:
        with contextlib.suppress(OSError):
            _remove_waiting(run.place)
        raise
    run.granted_at = facts.at
    run.launch, run.kept = None, []


def write_grants(chosen: Sequence[LocalLaunch], facts: GrantFacts) -> list[tuple[LocalLaunch, OSError]]:
    """Record grants; returns the launches for which that failed, with the errors."""
    failed = []
    for run in chosen:
        try:
            write_grant(run, facts)
        except OSError as error:
            failed.append((run, error))
    return failed


def _write_files(run: LocalLaunch, facts: GrantFacts) -> None:
    assert run.booking is not None and run.launch is not None
    place = run.place
    # First, because what a crash leaves is found by it.
    write_ticket(place, run.ticket._replace(rank=run.rank, nice=run.nice, lasts=run.lasts))
    os.makedirs(place.folder, 0o700, exist_ok=True)
    # An earlier launch of the job may have been packed, and a supervisor reads only unpacked files.
    unpack_run(place.folder)
    plan = {
        "format": FORMAT,
        "token": run.launch.token,
        "cluster": facts.cluster,
        "job": encode(run.launch.job),
        "environment": dict(run.launch.environment),
        **({"decider": Decider.DAEMON.value} if run.ticket.gated else {}),
    }
    write_document(place.plan, plan)
    used = {mount.store for task in run.launch.job.spec.tasks for mount in task.storage}
    if used:
        write_stores(place.root, [access for name, access in facts.stores.items() if name in used])
        write_cache_settings(place.root, "", facts.cache_limit)
    if run.kept:
        run.orders = 0
        write_orders(run, run.kept)
    grant = {
        "format": FORMAT,
        "at": facts.at,
        "members": render_grant(run.booking, run.addresses, facts.node),
        "isolation": facts.isolation,
        "boot_id": facts.boot_id,
        "host": run.host,
        "variant": run.ticket.variants.index(run.booking.members),
    }
    write_document(place.grant, grant)


def write_orders(run: LocalLaunch, orders: Sequence[tuple[str, Event]]) -> None:
    """Append orders for the supervisor, with the next numbers. Raises OSError, and then appends none."""
    lines = [
        {"seq": run.orders + count, "token": token, "event": event_to_document(event)}
        for count, (token, event) in enumerate(orders, 1)
    ]
    append_lines(run.place.orders, lines)
    run.orders += len(lines)


def read_tokens(run: LocalLaunch) -> None:
    """Load the tokens and the last number of the launch's orders, unless they are known."""
    if run.tokens is None:
        given = journals.read_lines(run.place.orders)
        run.orders = max((int(line.get("seq", 0)) for line in given), default=0)
        run.tokens = {str(line["token"]) for line in given if "token" in line}


def end_launch(place: LaunchFiles, event: Event) -> None:
    """Write the end of a launch that will never have a supervisor. Raises OSError."""
    append_lines(place.journal, [event_to_document(event), journals.END])


def load_launches(root: str, capacity: Capacity, boot_id: str) -> list[LocalLaunch]:
    """Every granted launch that is live. After a reboot, launches that had begun are ended as lost.

    A launch that cannot be read is left out; its next observation finds the damage. Raises OSError if the disk fails.
    """
    runs = []
    for name in sorted(os.listdir(f"{root}/tickets")):
        try:
            place = parse_handle(root, name)
            run = _load_launch(place, capacity, boot_id)
        except (InvalidRequest, ValueError, LookupError, TypeError, AttributeError, OSError) as error:
            if not loss_records.is_damage(error):
                raise
            # One damaged launch must not hide the others.
            _log.warning("the launch %s/tickets/%s cannot be read: %r", root, name, error)
            continue
        if run is not None:
            runs.append(run)
    return runs


def _load_launch(place: LaunchFiles, capacity: Capacity, boot_id: str) -> LocalLaunch | None:
    """Load a granted launch from its files; None if it has ended or has not begun. Raises ValueError for damage."""
    if journals.is_over(place):
        if os.path.isdir(place.folder):
            # It may have ended long ago, while no daemon ran: `forget` counts from now, so that its end gets reported.
            os.utime(place.folder)
        mark_ended(place)
        return None
    grant = read_document(place.grant)
    if grant is None or grant.get("boot_id") != boot_id:
        if os.path.exists(place.journal):
            if grant is None:
                raise ValueError(f"{place.grant} is gone or damaged, and the launch has begun")
            event = LaunchLost(time.time(), place.launch, Cause.NODE.value, "the machine was started anew")
            end_launch(place, event)
            mark_ended(place)
        else:
            _remove_waiting(place)
        return None
    return _load_grant(place, grant, capacity)


def _load_grant(place: LaunchFiles, grant: Document, capacity: Capacity) -> LocalLaunch:
    """A launch from its grant, and from the orders since then."""
    ticket = read_ticket(place) or _ticket_from_plan(place, capacity)
    if not os.path.exists(place.plan):
        raise ValueError(f"{place.plan} is gone")
    run = _make_run(place, ticket)
    run.booking = read_booking(ticket, grant)
    if run.booking is None:
        raise ValueError(f"{place.grant} does not fit its plan")
    run.addresses = tuple(row[3] for row in grant["members"])
    run.host = str(grant.get("host", place.handle))
    run.granted_at = float(grant.get("at", 0.0))
    orders = [line.get("event") for line in journals.read_lines(place.orders) if isinstance(line, dict)]
    for event in journals.read_events(orders):
        note_event(run, event)
    return run


def _remove_waiting(place: LaunchFiles) -> None:
    """Remove what a launch without a grant has on disk: a crash cut its grant short, or an earlier version wrote it.

    The daemon hands it over again. The ticket goes last, so that a crash in the midst leaves nothing.
    """
    for path in (place.grant, place.orders, place.queue, place.plan, place.ticket):
        # What is no folder has no files.
        with contextlib.suppress(NotADirectoryError):
            remove(path)
    with contextlib.suppress(OSError):
        # It may have an earlier launch of the job.
        os.rmdir(place.folder)


def note_event(run: LocalLaunch, event: Event) -> None:
    """Apply an event to the launch's data for queue and bookings."""
    if isinstance(event, Hold):
        run.held = True
    elif isinstance(event, Release):
        run.held = False
    elif isinstance(event, (SetPriority, SetNice)):
        run.rank, run.nice = change_rank(run.rank, run.nice, event)
    elif isinstance(event, SetTime):
        run.lasts = float(event.time) if event.time and run.tasks == 1 else None
    elif isinstance(event, Suspend):
        run.lasts = None
    elif isinstance(event, (Preempt, Requeue)) or (isinstance(event, Cancel) and is_end(run, event)):
        run.leaving = True


def limit(run: LocalLaunch, limits: Sequence[tuple[str, SetTime]]) -> None:
    """Give a waiting launch these time limits when it is granted, before what was ordered for it."""
    known = {token for token, _ in run.kept}
    run.kept[:0] = [pair for pair in limits if pair[0] not in known]
    if limits and run.tasks == 1:
        for event in [event for _, event in run.kept if isinstance(event, SetTime)]:
            note_event(run, event)


def is_end(run: LocalLaunch, event: Event) -> bool:
    """Whether an event is the end of a waiting launch."""
    if isinstance(event, Cancel):
        return not event.task or run.tasks == 1
    return isinstance(event, (Expire, LaunchLost, Refused))


def find_changed(sizes: Sequence[tuple[LaunchFiles, int]]) -> dict[str, int]:
    """The launches whose journals have changed in size since the last check, with the new sizes."""
    changed = {}
    for place, size in sizes:
        try:
            now = os.stat(place.journal).st_size
        except OSError:
            # The next read reports the error.
            now = 0
        if now != size:
            changed[place.handle] = now
    return changed


def _ticket_from_plan(place: LaunchFiles, capacity: Capacity) -> Ticket:
    plan: Any = read_document(place.plan)
    if plan is None:
        raise ValueError(f"{place.plan} is gone or damaged")
    if plan.get("format") != FORMAT:
        raise ValueError(f"{place.plan} has format {plan.get('format')}; this version reads {FORMAT}")
    ticket = _make_ticket(str(plan["token"]), decode(Job, plan["job"]), capacity)
    write_ticket(place, ticket)
    return ticket


# --- orders on waiting launches, which have no supervisor yet ---------------------------------------------------------


def select_notes(run: LocalLaunch, orders: Sequence[tuple[str, Event]]) -> list[Event]:
    """The events that the orders mean for a waiting launch; the others have no effect on it."""
    meant = [interpret_order(event, run.place.launch) for _, event in orders if not is_part(run, event)]
    return [event for event in meant if event is not None]


def is_part(run: LocalLaunch, event: Event) -> bool:
    """Whether an order cancels one of several tasks, which is left to the supervisor once it starts."""
    return isinstance(event, Cancel) and bool(event.task) and run.tasks > 1
