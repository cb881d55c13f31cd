"""The output files of batch scripts as this machine sees them: which they are, and the copying of logs into them.

A launch's files are noted here before its pods are made, so that a later daemon, and one that reads logs long after the
pods have gone, knows them too. Everything blocks on the disk.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import NamedTuple

from overspan.adapters.contract import Launch, LogPart, LogRequest
from overspan.adapters.kubernetes.logs.outputs import Outputs, choose_outputs
from overspan.adapters.kubernetes.manifests.scripts import LOG
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.job import Job

_FILE = "outputs.json"
CHUNK = 1 << 20
"""Bytes that are copied at once."""
KNOWN = 4096
"""Launches whose files are remembered."""


class ScriptFiles(NamedTuple):
    """The files of a launch's script: the task that runs it, on its first node, and the submitter's umask."""

    task: str
    outputs: Outputs
    umask: int = 0o022

    def has(self, task: str, node: int) -> bool:
        """Whether they are those of a member."""
        return (task, node) == (self.task, 0)

    def find(self, stream: str) -> str:
        """The file that the pod itself writes a stream to; empty where the container's log has it."""
        found = self.outputs.output
        if stream == "error" and self.outputs.error:
            found = self.outputs.error
        return "" if found == LOG else found


class OutputFiles:
    """The files of all launches of one cluster, by token, in `folder`/TOKEN/outputs.json."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, ScriptFiles | None] = {}

    def note(self, launch: Launch, settings: Settings) -> None:
        """Note the files of a launch that is submitted. Unreachable, to be tried again, where the disk has no room."""
        first = launch.job.spec.tasks[0]
        outputs = Outputs() if launch.job.spec.origin.job else choose_outputs(launch.job, first, settings)
        found = None if outputs == Outputs() else ScriptFiles(first.name, outputs, launch.job.spec.origin.umask)
        if found is not None:
            path = os.path.join(self._folder, launch.token, _FILE)
            try:
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                _write(path, {"task": found.task, "outputs": outputs._asdict(), "umask": found.umask})
            except OSError as error:
                raise Unreachable(f"{path} cannot be written: {error.strerror}", remedy="make room there") from None
        self._remember(launch.token, found)

    def find(self, token: str) -> ScriptFiles | None:
        """The files of a launch; None for one that has none."""
        if token not in self._known:
            self._remember(token, _read_files(os.path.join(self._folder, token, _FILE)))
        return self._known[token]

    def _remember(self, token: str, files: ScriptFiles | None) -> None:
        if len(self._known) >= KNOWN:
            self._known.clear()
        self._known[token] = files


def _read_files(path: str) -> ScriptFiles | None:
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        return ScriptFiles(document["task"], Outputs(**document["outputs"]), document["umask"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def read_output(path: str, request: LogRequest) -> LogPart | None:
    """Bytes of a file on a shared volume; None where this machine cannot read it (yet)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return None
        begin = request.offset if request.offset >= 0 else max(0, found.st_size + request.offset)
        return LogPart(os.pread(fd, request.limit, begin), begin, found.st_size, path)
    finally:
        os.close(fd)


# --- copying ---------------------------------------------------------------------------------------------------------


@dataclass
class Copied:
    """How far a log was copied: bytes of the log, and what was about to be added to a file of that size."""

    log: int = 0
    size: int = 0
    adding: int = 0


def copy_log(path: str, files: ScriptFiles, read: Callable[[int, int], LogPart]) -> None:
    """Add what is new of a log to the file that the submitter looks for. Raises OSError.

    `path` is the log's own, beside which it is noted how far it went; `read` gives its bytes from an offset. What a
    crash left between the two is found by the file's size.
    """
    note = f"{path}.copied"
    copied = _read_copied(note)
    fd = _open_output(files, first=copied is None)
    try:
        size = os.fstat(fd).st_size
        copied = copied or Copied()
        copied.log += min(copied.adding, max(0, size - copied.size))
        copied.adding = 0
        while True:
            part = read(copied.log, CHUNK)
            copied.log, copied.size, copied.adding = part.offset, size, len(part.data)
            _write(note, asdict(copied))
            if not part.data:
                return
            rest = memoryview(part.data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            copied.log, size, copied.adding = part.offset + len(part.data), size + len(part.data), 0
    finally:
        os.close(fd)


def _open_output(files: ScriptFiles, *, first: bool) -> int:
    """The file as Slurm opens it: it is added to always, and emptied first unless --open-mode is append."""
    path = files.outputs.kept
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    with suppress(FileExistsError):
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        os.fchmod(fd, 0o666 & ~files.umask)
        return fd
    return os.open(path, flags | (os.O_TRUNC if first and not files.outputs.append else 0))


def _read_copied(path: str) -> Copied | None:
    try:
        with open(path, encoding="utf-8") as file:
            return Copied(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None


def _write(path: str, document: object) -> None:
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.replace(f"{path}.new", path)


def note_unwritable(job: Job, settings: Settings) -> tuple[str, ...]:
    """A sentence where the output of a script would be written on this machine, and surely cannot be."""
    task = job.spec.tasks[0]
    outputs = choose_outputs(job, task, settings)
    folder = os.path.dirname(outputs.kept)
    if not outputs.kept or outputs.awaits_folder or os.access(folder, os.W_OK | os.X_OK):
        return ()
    why = "may not be written by you" if os.path.isdir(folder) else "does not exist"
    return (f"{task.name}: {folder}, the folder of its output, {why} on this machine: `span logs` has the output",)
