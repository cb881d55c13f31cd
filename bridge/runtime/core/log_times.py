"""Log growth over time: sizes of log files, recorded once a second in times.jsonl.

A line of times.jsonl is {"at": TIME, "sizes": {PATH: BYTES}}: what had so many bytes then, of the files that have grown
since the line before. Paths below the run directory are relative to it.
"""

from __future__ import annotations

import json
import os

from overspan.bridge.model.job import Job
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core.run_directory import RunDirectory

LOOK_SECONDS = 1.0
KEEP_BYTES = 1 << 20
"""Maximum size of times.jsonl; beyond it, every second one of its older lines is dropped."""
_MOST_PARTS = 1000
"""Of a path with its links, after which a ring of them is left."""
_NETWORK = (
    "nfs",
    "autofs",
    "cifs",
    "smb",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "gluster",
    "fuse",
    "9p",
    "afs",
    "weka",
    "panfs",
)


class LogFile(NamedTuple):
    """A file that a node run writes: of which run it is."""

    path: str
    task: str
    node: int
    attempt: int


class LogTimes:
    """Notes how long the logs of one launch's live node runs are.

    A file on a network file system is passed over unless the run directory is there too: one that hangs must not hang
    its supervisor.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._read = 0
        self._files: list[LogFile] = []
        self._sizes: dict[str, int] = {}
        self._looked_at = 0.0

    def look(self, job: Job, now: float) -> None:
        """Note what has grown, at most once a second; never fails."""
        if 0 <= now - self._looked_at < LOOK_SECONDS:
            return
        first, self._looked_at = not self._looked_at, now
        if first:
            # What is written in the first second is dated by the second, or by the end.
            return
        try:
            self._read_list()
            grown = self._measure(job)
            if grown:
                self._note(now, grown)
        except OSError:
            # A full disk: times are a comfort.
            return

    def _read_list(self) -> None:
        """Take in the files of node runs that have been started since."""
        try:
            if os.stat(self._directory.streams).st_size == self._read:
                return
        except FileNotFoundError:
            return
        with open(self._directory.streams, "rb") as file:
            file.seek(self._read)
            data = file.read()
        size = data.rfind(b"\n") + 1
        self._read += size
        self._files += [found for found in read_streams(data[:size]) if is_near(found.path, self._directory.outputs)]

    def _measure(self, job: Job) -> dict[str, int]:
        """The sizes of the files that have grown, or begun anew; those of ended runs are forgotten."""
        live = {
            (task.name, attempt.number, node.index)
            for task in job.tasks
            for attempt in task.attempts
            if attempt.live
            for node in attempt.nodes
            if node.live
        }
        self._files = [file for file in self._files if (file.task, file.attempt, file.node) in live]
        grown: dict[str, int] = {}
        for file in self._files:
            try:
                size = os.stat(file.path).st_size
            except OSError:
                continue
            if size != self._sizes.get(file.path, 0):
                self._sizes[file.path] = grown[self._shorten(file.path)] = size
        return grown

    def _shorten(self, path: str) -> str:
        folder = self._directory.outputs + os.sep
        return path[len(folder) :] if path.startswith(folder) else path

    def _note(self, now: float, sizes: dict[str, int]) -> None:
        line = json.dumps({"at": round(now, 3), "sizes": sizes}) + "\n"
        add_line(self._directory.times, line.encode())


def add_line(path: str, line: bytes) -> None:
    """Add to a file of times, which is thinned where it is too long. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line)
        size = os.fstat(fd).st_size
        if size > KEEP_BYTES:
            thinned = thin(os.pread(fd, size, 0))
            os.ftruncate(fd, 0)
            os.write(fd, thinned)
    finally:
        os.close(fd)


def thin(data: bytes) -> bytes:
    """Lines of which the newest quarter is whole, and of the older ones every second has gone."""
    lines = data.splitlines(keepends=True)
    older = len(lines) * 3 // 4
    return b"".join(lines[:older:2] + lines[older:])


def is_near(path: str, folder: str, table: str = "/proc/self/mountinfo") -> bool:
    """Whether a file is on a disk of this machine, or in the same mount as a folder. Asks no network file system."""
    with open(table, encoding="utf-8", errors="surrogateescape") as file:
        mounts = [_parse_mount(line) for line in file]
    point, kind = _follow(path, mounts)
    return not kind.startswith(_NETWORK) or point == _follow(folder, mounts)[0]


def _follow(path: str, mounts: list[tuple[str, str]]) -> tuple[str, str]:
    """The mount that a path leads to, links followed; the first one on the network ends it, since that may hang."""
    here, ahead = "", path.split("/")
    for _ in range(_MOST_PARTS):
        if not ahead:
            break
        part = ahead.pop(0)
        if part in ("", ".", ".."):
            here = os.path.dirname(here) if part == ".." else here
            continue
        here = f"{here.rstrip('/')}/{part}"
        if _find_mount(here, mounts)[1].startswith(_NETWORK):
            return _find_mount("/".join([here, *ahead]), mounts)
        try:
            target = os.readlink(here)
        except OSError:
            continue
        here = "" if target.startswith("/") else os.path.dirname(here)
        ahead = [*target.split("/"), *ahead]
    return _find_mount(here or "/", mounts)


def _find_mount(path: str, mounts: list[tuple[str, str]]) -> tuple[str, str]:
    """Where the mount that has a path is, and its kind; of two at one place, the later."""
    best = ("", "")
    for point, kind in mounts:
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, kind)
    return best


def _parse_mount(line: str) -> tuple[str, str]:
    """A line of mountinfo, proc(5): the fifth field is the place; the kind is behind the lone dash."""
    head, _, tail = line.partition(" - ")
    fields = head.split(" ")
    point = fields[4] if len(fields) > 4 else ""
    return point.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\"), tail


def read_streams(data: bytes) -> list[LogFile]:
    """The files in a list of streams, in its order; damaged lines are passed over."""
    found = []
    for line in data.splitlines():
        try:
            row = json.loads(line)
            found.append(LogFile(str(row["path"]), str(row["task"]), int(row["node"]), int(row["attempt"])))
        except (ValueError, LookupError, TypeError):
            continue
    return found
