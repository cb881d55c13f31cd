"""The lease of a state directory, which one daemon holds with a heartbeat; works on NFS with several hosts too.

The lease is a JSON file `PATH.N`; the highest N is in force, and N only grows. A takeover is a compare-and-set: it
creates the next number by link(2), which succeeds for one caller only, on NFS too and without locks. The taker then
lists the files again and yields to a higher number, so one that counted from an old listing never gets the lease. The
highest file is never removed, only marked as released. Standard library only.

A holder on this host is alive while its process is (pid and start time), one on another host while its heartbeat is
younger than `STALE` seconds by this host's clock. A holder that loses the lease notices with `renew_lease`; the store's
epoch rejects writes that it makes before that.
"""

from __future__ import annotations

import json
import os
import secrets
import socket as sockets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from overspan.bridge.model.errors import Conflict, OverspanError, StoreFailed

FORMAT = 1
STALE = 60.0
"""Age in seconds at which another host's heartbeat no longer counts."""
BEAT = 10.0
"""Seconds between two renewals by a holder."""

_TRIES = 20
"""Attempts to read or take a lease whose files change meanwhile."""


class LeaseHolder(NamedTuple):
    """A process that may hold the lease. `start_time` is field 22 of /proc/PID/stat, in clock ticks (proc(5))."""

    host: str
    pid: int
    start_time: int
    boot_id: str
    pid_space: str
    """The pid namespace of the pid: containers may share host name and boot id."""
    socket: str


class Lease(NamedTuple):
    """The content of a lease file; times are by the holder's clock."""

    holder: LeaseHolder
    number: int
    since: float
    heartbeat: float
    released: bool = False


Alive = Callable[[LeaseHolder], bool]


def identify(socket: str, pid: int | None = None) -> LeaseHolder:
    """This process, or another one of this host, as a holder that listens on a socket."""
    pid = os.getpid() if pid is None else pid
    return LeaseHolder(sockets.gethostname(), pid, _start_time(pid) or 0, _boot_id(), _pid_space(), socket)


def read_lease(path: str | os.PathLike[str]) -> Lease | None:
    """The newest lease, held or released; None if there never was one. Raises StoreFailed if it cannot be read."""
    for _ in range(_TRIES):
        number = _highest(path)
        if number == 0:
            return None
        lease = _read(path, number)
        if lease is not None:
            return lease
    raise StoreFailed(
        f"the lease {_file(path, number)} cannot be read",
        remedy="make sure that no daemon of yours runs on any host, then remove the file",
    )


def holds(lease: Lease | None, me: LeaseHolder, now: float, alive: Alive | None = None) -> bool:
    """Whether the lease is held now, judged from the process `me`."""
    if lease is None or lease.released:
        return False
    other = lease.holder
    if other.host == me.host and other.boot_id != me.boot_id:
        return False  # This host was rebooted since then.
    if other.host == me.host and other.pid_space == me.pid_space:
        return (alive or is_alive)(other)
    return now - lease.heartbeat < STALE


def take_lease(path: str | os.PathLike[str], me: LeaseHolder, now: float, *, alive: Alive | None = None) -> Lease:
    """Take the lease if it is free.

    Raises Conflict with the holder's name, StoreFailed if the folder cannot be written.
    """
    for _ in range(_TRIES):
        present = read_lease(path)
        if present is not None and holds(present, me, now, alive):
            raise _held(present, now)
        lease = Lease(me, present.number + 1 if present else 1, now, now)
        if not _claim(path, lease):
            continue
        if _highest(path) == lease.number:
            _clear(path, lease.number)
            return lease
        _remove(_file(path, lease.number))
    raise Conflict(f"the lease {path} is being taken by others", remedy="try again")


def renew_lease(path: str | os.PathLike[str], lease: Lease, now: float) -> Lease:
    """Write a new heartbeat. Raises Conflict if another daemon has taken over; then this one must stop writing."""
    renewed = lease._replace(heartbeat=now)
    _check_own(path, lease, now)
    _replace(path, renewed)
    _check_own(path, lease, now)
    return renewed


def release_lease(path: str | os.PathLike[str], lease: Lease, now: float) -> None:
    """Mark the lease as released; does nothing if it was lost.

    The holder is compared too: if the folder was removed under its daemon, another daemon's lease may have that number.
    """
    present = _read(path, _highest(path))
    if present is not None and (present.number, present.holder) == (lease.number, lease.holder):
        _replace(path, lease._replace(heartbeat=now, released=True))


def is_alive(holder: LeaseHolder) -> bool:
    """Whether exactly this process runs in this pid namespace; a zombie does not count."""
    started = _start_time(holder.pid)
    return started is not None and started == holder.start_time


def _held(lease: Lease, now: float) -> Conflict:
    holder = lease.holder
    return Conflict(
        f"another daemon holds this state folder: pid {holder.pid} on {holder.host}, "
        f"last heard of {max(0, round(now - lease.heartbeat))} s ago",
        remedy=f"use that one (ssh {holder.host}), or end it there: span shutdown",
    )


def _check_own(path: str | os.PathLike[str], lease: Lease, now: float) -> None:
    present = read_lease(path)
    if present is None or present.number != lease.number or present.holder != lease.holder:
        if present is not None and present.number > lease.number:
            _remove(_file(path, lease.number))
            raise _held(present, now)
        raise Conflict(f"the lease {_file(path, lease.number)} is gone", remedy="this daemon must end")


def _file(path: str | os.PathLike[str], number: int) -> Path:
    return Path(f"{os.fspath(path)}.{number}")


def _numbers(path: str | os.PathLike[str]) -> list[int]:
    folder, name = os.path.split(os.fspath(path))
    try:
        entries = os.listdir(folder or ".")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _failed(path, error) from error
    heads = (entry.rpartition(".") for entry in entries)
    return [int(tail) for head, _, tail in heads if head == name and tail.isascii() and tail.isdigit()]


def _highest(path: str | os.PathLike[str]) -> int:
    return max(_numbers(path), default=0)


def _read(path: str | os.PathLike[str], number: int) -> Lease | None:
    """The lease of that number; None if it was removed meanwhile, or is damaged."""
    try:
        document = json.loads(_file(path, number).read_bytes())
        holder = LeaseHolder(**{name: document[name] for name in LeaseHolder._fields})
        return Lease(holder, number, document["since"], document["heartbeat"], document.get("released", False))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _failed(path, error) from error
    except (ValueError, KeyError, TypeError):
        return None


def _document(lease: Lease) -> bytes:
    document: dict[str, Any] = {"format": FORMAT, **lease.holder._asdict()}
    document.update(since=lease.since, heartbeat=lease.heartbeat, released=lease.released)
    return json.dumps(document).encode()


def _claim(path: str | os.PathLike[str], lease: Lease) -> bool:
    """Compare-and-set: create the file of that number by link(2); False if another process was first."""
    draft = _draft(path, lease)
    try:
        os.link(draft, _file(path, lease.number))
    except OSError as error:
        # A reply lost on NFS may report failure for a link that was made (open(2), O_EXCL).
        if os.stat(draft).st_nlink != 2:
            if isinstance(error, FileExistsError):
                return False
            raise _failed(path, error) from error
    finally:
        _remove(draft)
    return True


def _replace(path: str | os.PathLike[str], lease: Lease) -> None:
    draft = _draft(path, lease)
    try:
        os.replace(draft, _file(path, lease.number))
    except OSError as error:
        _remove(draft)
        raise _failed(path, error) from error


def _draft(path: str | os.PathLike[str], lease: Lease) -> Path:
    draft = Path(f"{os.fspath(path)}.{lease.holder.host}-{lease.holder.pid}-{secrets.token_hex(4)}.new")
    try:
        draft.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(_document(lease))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        _remove(draft)
        raise _failed(path, error) from error
    return draft


def _clear(path: str | os.PathLike[str], number: int) -> None:
    for lower in _numbers(path):
        if lower < number:
            _remove(_file(path, lower))


def _remove(file: Path) -> None:
    try:
        file.unlink()
    except OSError:
        pass


def _failed(path: str | os.PathLike[str], error: OSError) -> OverspanError:
    return StoreFailed(
        f"the lease {os.fspath(path)} cannot be written: {error.strerror or error}",
        remedy="mend the folder's permissions or space, or use another state folder (SPAN_STATE_DIR)",
    )


def _start_time(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name, in parentheses, may contain blanks and parentheses.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
