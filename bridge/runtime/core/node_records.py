"""The durable record of one node's run: claimed once, written before the start, completed after the end.

Three files in one folder, named after the node's key:

- ``KEY.claim``: made with O_EXCL before anything else, so that a key starts once. The shim holds its flock for life.
- ``KEY.start``: one sector of JSON, on the disk before user code runs, overwritten in place when it has ended.
- ``KEY.end``: the same file, renamed when nothing of the node is left.

The end needs no new space: a full disk can refuse a start, and cannot lose an end.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from typing import Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core import kernel

# One disk sector: written whole or not at all.
RECORD_SIZE = 512
_FORMAT = 1
_CLAIM_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# The mode of a claim that was found without a lock.
_GIVEN_UP = 0o400
_HELD = (errno.EAGAIN, errno.EACCES)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class NodeRecord(NamedTuple):
    """What is known of one node's run.

    Times are Unix seconds, `start_time`s clock ticks since boot, `max_rss` KiB. With `ended_at` set, exactly one of
    `exit_code`, `signal` and `error` tells how it ended; `failed_at` names the step of a start that failed
    (`directory`, `input`, `output`, `isolation`, `storage`, `exec`, `start`), `gate` where the shim was gone before
    the program was started, or `lost` for an end that was not observed.
    """

    pid: int
    shim_pid: int
    shim_start_time: int
    boot_id: str
    start_time: int = 0
    started_at: float = 0.0
    ended_at: Optional[float] = None
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    core_dumped: bool = False
    error: str = ""
    failed_at: str = ""
    errno: int = 0
    strays_killed: int = 0
    strays_left: int = 0
    subreaper: bool = True
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss: int = 0

    @property
    def ended(self) -> bool:
        """Whether the main process has ended, or never began."""
        return self.ended_at is not None


def make_record(shim: int, pid: int, subreaper: bool) -> NodeRecord:
    """The record of a start now, below the shim of that pid; `pid` is 0 where there is no main process."""
    return NodeRecord(
        pid,
        shim,
        kernel.read_start_time(shim),
        kernel.read_boot_id(),
        start_time=kernel.read_start_time(pid) if pid else 0,
        started_at=round(time.time(), 6),
        subreaper=subreaper,
    )


def format_key(task: str, node: int, attempt: int, run: int) -> str:
    """Name one run of one node: ``TASK.NODE.ATTEMPT.RUN``."""
    return f"{task}.{node}.{attempt}.{run}"


def encode_record(record: NodeRecord) -> bytes:
    """Render a record as JSON padded to RECORD_SIZE bytes; an error too long for it is cut."""
    error = record.error
    while True:
        # What still has its default is left out.
        values = {"v": _FORMAT}
        values.update(
            (name, value)
            for name, value in record._replace(error=error)._asdict().items()
            if name not in NodeRecord._field_defaults or value != NodeRecord._field_defaults[name]
        )
        text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
        data = text.encode("utf-8", "backslashreplace")
        excess = len(data) + 1 - RECORD_SIZE
        if excess <= 0:
            return data.ljust(RECORD_SIZE - 1) + b"\n"
        if not error:
            raise ValueError(f"a record without an error exceeds {RECORD_SIZE} bytes")
        error = error[: -max(1, excess // 6)]


def decode_record(data: bytes) -> Optional[NodeRecord]:
    """Read what encode_record wrote; None for anything that is not one whole record of a known format."""
    if len(data) != RECORD_SIZE or not data.endswith(b"\n"):
        return None
    try:
        values = json.loads(data.decode("utf-8"))
        if not isinstance(values, dict) or values.pop("v", None) != _FORMAT:
            return None
        return NodeRecord(**{name: value for name, value in values.items() if name in NodeRecord._fields})
    except (ValueError, TypeError):
        return None


def read_record(directory: str, key: str) -> Optional[NodeRecord]:
    """Read a node's record; None while nothing of it is known to have started."""
    # The start file may be renamed between the first look and the second.
    for suffix in (".end", ".start", ".end"):
        try:
            fd = os.open(_path(directory, key, suffix), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            record = decode_record(os.read(fd, RECORD_SIZE + 1))
        finally:
            os.close(fd)
        if record is not None:
            return record
    return None


def list_records(directory: str) -> dict[tuple[str, int, int, int], NodeRecord]:
    """The records in a folder by task, node, attempt and run; those that cannot be read are left out."""
    found: dict[tuple[str, int, int, int], NodeRecord] = {}
    try:
        names = os.listdir(directory)
    except OSError:
        return found
    for name in names:
        key, _, suffix = name.rpartition(".")
        task, *numbers = key.rsplit(".", 3)
        if suffix not in ("start", "end") or len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
            continue
        try:
            record = read_record(directory, key)
        except OSError:
            continue
        if record is not None:
            node, attempt, run = (int(number) for number in numbers)
            found[task, node, attempt, run] = record
    return found


def is_claimed(directory: str, key: str) -> bool:
    """Tell whether a start of this key was ever begun."""
    return os.path.exists(_path(directory, key, ".claim"))


def is_closed(directory: str, key: str) -> bool:
    """Tell whether the record has its final name: nothing of the node is left."""
    return os.path.exists(_path(directory, key, ".end"))


def claim(directory: str, key: str) -> int:
    """Take a key for its only start; gives the descriptor that holds the lock.

    Raises FileExistsError when it was taken before, OSError when the folder is missing or the disk is full.
    """
    return take_claim(name_claim(directory, key))


def name_claim(directory: str, key: str) -> bytes:
    """The path of a key's claim."""
    return os.fsencode(_path(directory, key, ".claim"))


def split_claim(path: bytes) -> tuple[str, str]:
    """The directory and the key of a claim's path."""
    directory, name = os.path.split(os.fsdecode(path))
    return directory, name[: -len(".claim")]


def take_claim(path: bytes) -> int:
    """Make a claim's file and lock it, as `claim` does; few system calls, for the process that forks shims."""
    fd = os.open(path, _CLAIM_FLAGS, 0o600)
    if fd < 3:
        # A shim puts its own files there.
        low, fd = fd, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        os.close(low)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            os.close(fd)
            raise
    if os.fstat(fd).st_mode & 0o777 == _GIVEN_UP:
        os.close(fd)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    return fd


def give_up_claim(directory: str, key: str) -> bool:
    """See to it that a claim without a lock never gets one: its maker may be about to. False when it has it now."""
    try:
        fd = os.open(_path(directory, key, ".claim"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True  # given up before
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            os.close(fd)
            return False
    try:
        os.fchmod(fd, _GIVEN_UP)
    finally:
        os.close(fd)
    return True


def shim_alive(directory: str, key: str) -> bool:
    """Tell whether the key's shim lives: by its lock, and by pid and start time where the file system has no locks."""
    try:
        fd = os.open(_path(directory, key, ".claim"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return _shim_runs(read_record(directory, key))
        if error.errno in _HELD:
            return True
        raise
    finally:
        os.close(fd)
    return False


def _shim_runs(record: Optional[NodeRecord]) -> bool:
    if record is None or record.boot_id != kernel.read_boot_id():
        return False
    return kernel.read_start_time(record.shim_pid) == record.shim_start_time


def begin_record(directory: str, key: str, record: NodeRecord) -> int:
    """Write a node's record for the first time and make it durable; gives its descriptor.

    Raises OSError when the disk is full, and leaves no file then.
    """
    path = _path(directory, key, ".start")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        update_record(fd, record)
        _sync_folder(directory)
    except OSError:
        os.close(fd)
        os.unlink(path)
        raise
    return fd


def update_record(fd: int, record: NodeRecord) -> None:
    """Overwrite a record in place and make it durable; on most file systems this needs no space."""
    data = encode_record(record)
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], done)
    os.fsync(fd)


def close_record(directory: str, key: str) -> None:
    """Give a record its final name. A record that keeps its first name (a full folder) is read all the same."""
    try:
        os.rename(_path(directory, key, ".start"), _path(directory, key, ".end"))
    except OSError:
        pass


def withdraw(directory: str, key: str) -> None:
    """Remove all that is known of a start that failed before user code ran, so that the key starts once more.

    Raises OSError. The claim goes last: until then the key is one that has not started.
    """
    for suffix in (".end", ".start", ".claim"):
        try:
            os.unlink(_path(directory, key, suffix))
        except FileNotFoundError:
            continue


def open_record(directory: str, key: str) -> int:
    """Open a started record to complete it for a shim that died."""
    return os.open(_path(directory, key, ".start"), os.O_WRONLY | os.O_CLOEXEC)


def _path(directory: str, key: str, suffix: str) -> str:
    return os.path.join(directory, key + suffix)


def _sync_folder(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        # Some network file systems do not sync folders.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(fd)
