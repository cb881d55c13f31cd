"""The files of a launch, as the adapter and the supervisor share them.

    ROOT/runs/N/plan.R.json       the job and its daemon's environment
    ROOT/runs/N/grant.R.json      the resources that it was given
    ROOT/runs/N/orders.R.jsonl    orders for the supervisor, a line each; a last line without newline does not count
    ROOT/runs/N/journal.R.jsonl   what the supervisor records
    ROOT/runs/N/streams.jsonl     where each node's output goes
    ROOT/runs/N/times.jsonl       the size of the output at points in time
    ROOT/runs/N/pack.zip          most of these files, after the job has ended (run_packs.py)
    ROOT/tickets/N.R              marks a launch that was granted and has not ended; has what the queue needs to know
    ROOT/ended/N.R                the ticket of a launch that has ended, until it is packed
    ROOT/hosts/HID/               a supervisor's own folder

A launch that waits has no files; ticket, plan and grant are written together, in this order, when it leaves the queue.
Folders are 0700 and files 0600. Plans, grants and tickets are written without fsync: they have to survive a crash of
the daemon, and a power loss ends the processes too. Orders are written with fsync, since they are answered as done.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from overspan.adapters.contract import FORMAT
from overspan.adapters.local.files.run_packs import open_file
from overspan.adapters.local.queue.booking import BookedMember, Booking, Variant
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.ranks import Rank
from overspan.bridge.model.resources import Gres, NodeNeed

Document = dict[str, Any]


def find_last_job(root: str) -> int:
    """The highest job id with a run directory; 0 for none."""
    try:
        names = os.listdir(f"{root}/runs")
    except OSError:
        return 0
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=0)


class LaunchFiles(NamedTuple):
    """One launch and the paths of its files."""

    root: str
    job: int
    launch: int

    @property
    def handle(self) -> str:
        """The launch's name, `N.R`."""
        return f"{self.job}.{self.launch}"

    @property
    def folder(self) -> str:
        return f"{self.root}/runs/{self.job}"

    @property
    def plan(self) -> str:
        return f"{self.folder}/plan.{self.launch}.json"

    @property
    def grant(self) -> str:
        return f"{self.folder}/grant.{self.launch}.json"

    @property
    def queue(self) -> str:
        """What an earlier version wrote of a waiting launch."""
        return f"{self.folder}/queue.{self.launch}.jsonl"

    @property
    def journal(self) -> str:
        return f"{self.folder}/journal.{self.launch}.jsonl"

    @property
    def orders(self) -> str:
        return f"{self.folder}/orders.{self.launch}.jsonl"

    @property
    def streams(self) -> str:
        return f"{self.folder}/streams.jsonl"

    @property
    def times(self) -> str:
        return f"{self.folder}/times.jsonl"

    @property
    def ticket(self) -> str:
        return f"{self.root}/tickets/{self.handle}"

    @property
    def ended(self) -> str:
        return f"{self.root}/ended/{self.handle}"


def parse_handle(root: str, handle: str) -> LaunchFiles:
    """The launch that a handle names. Raises InvalidRequest for a handle of another cluster."""
    job, _, launch = handle.partition(".")
    if not (job.isdecimal() and launch.isdecimal()):
        raise InvalidRequest(f"{handle!r} names no launch of a local cluster; it is written JOB.LAUNCH")
    return LaunchFiles(root, int(job), int(launch))


class Ticket(NamedTuple):
    """The queue's data about a granted launch, so that a restart need not read every plan."""

    token: str
    rank: Rank
    group: bool
    variants: tuple[Variant, ...]
    nice: int = 0
    """The part of the rank that is nice; the rest is priority."""
    requeue: bool = True
    """Whether it may be started again after a preemption."""
    lasts: float | None = None
    """Seconds that it runs at most; None if unknown."""
    gated: bool = False
    """Whether the daemon decides about it, from its start gate on."""


def write_document(path: str, document: Document) -> None:
    """Write a JSON file atomically. Raises OSError, and then leaves nothing behind."""
    data = json.dumps(document, separators=(",", ":"))
    temporary = f"{path}.new"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        remove(temporary)
        raise


def read_document(path: str) -> Document | None:
    """Read a JSON file, or for an ended job its packed copy; None if it is missing, or damaged by a power loss."""
    try:
        with open_file(*os.path.split(path)) as file:
            document = json.load(file)
    except (FileNotFoundError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def remove(path: str) -> None:
    """Remove a file that may be missing."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def mark_ended(place: LaunchFiles) -> None:
    """Mark a launch as ended: its ticket moves to ROOT/ended, so that its files get packed. Raises OSError."""
    try:
        os.replace(place.ticket, place.ended)
    except FileNotFoundError:
        pass


def append_lines(path: str, documents: Iterable[Document]) -> None:
    """Append JSON lines with fsync; a last line that a crash has torn is cut off first. Raises OSError."""
    data = "".join(f"{json.dumps(document, separators=(',', ':'))}\n" for document in documents).encode()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = find_end(fd)
        try:
            write_at(fd, data, end)
            os.fdatasync(fd)
        except OSError:
            os.ftruncate(fd, end)
            raise
    finally:
        os.close(fd)


def write_at(fd: int, data: bytes, offset: int) -> None:
    """End a file with `data` at that offset. Raises OSError; the file then ends before the offset."""
    try:
        if os.pwrite(fd, data, offset) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(fd, offset + len(data))
    except OSError:
        os.ftruncate(fd, offset)
        raise


def find_end(fd: int) -> int:
    """The offset behind the last whole line of a file."""
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - 65536)
        place = os.pread(fd, end - start, start).rfind(b"\n")
        if place >= 0:
            return start + place + 1
        end = start
    return 0


def write_ticket(place: LaunchFiles, ticket: Ticket) -> None:
    """Mark a launch as granted and not over."""
    variants = [[_need_row(member) for member in members] for members in ticket.variants]
    document = {
        "format": FORMAT,
        "token": ticket.token,
        "rank": ticket.rank,
        "group": ticket.group,
        "needs": variants,
        "nice": ticket.nice,
        "requeue": ticket.requeue,
        "lasts": ticket.lasts,
        "gated": ticket.gated,
    }
    # Not renamed into place: a torn ticket is made again from the plan.
    with open(os.open(place.ticket, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(document, separators=(",", ":")))


def read_ticket(place: LaunchFiles) -> Ticket | None:
    """Read a launch's ticket; None if it is missing or torn."""
    document = read_document(place.ticket)
    if document is None:
        return None
    try:
        variants = tuple(tuple(_read_need(row) for row in rows) for rows in document["needs"])
        return Ticket(
            document["token"],
            Rank(*document["rank"]),
            document["group"],
            variants,
            document.get("nice", 0),
            document.get("requeue", True),
            document.get("lasts"),
            document.get("gated", False),
        )
    except (KeyError, TypeError, ValueError):
        return None


def render_grant(booking: Booking, addresses: Iterable[str], node: str) -> list[list[Any]]:
    """The `members` of a grant: [task, index, node, address, [gpu...]] each."""
    return [
        [member.task, member.node, node, address, list(gpus)]
        for member, gpus, address in zip(booking.members, booking.gpus, addresses, strict=True)
    ]


def read_booking(ticket: Ticket, grant: Document) -> Booking | None:
    """The booking of a grant; None if ticket and grant do not belong together."""
    variant = int(grant.get("variant", 0))
    rows = grant.get("members", ())
    if variant >= len(ticket.variants) or len(rows) != len(ticket.variants[variant]):
        return None
    return Booking(ticket.variants[variant], tuple(tuple(row[4]) for row in rows))


def _need_row(member: BookedMember) -> list[Any]:
    return [member.task, member.node, *member.need, member.phase]


def _read_need(row: list[Any]) -> BookedMember:
    task, index, cpus, memory, gpus, kind, gres, *phase = row
    need = NodeNeed(cpus, memory, gpus, kind, tuple(Gres(*entry) for entry in gres))
    return BookedMember(task, index, need, *phase)
