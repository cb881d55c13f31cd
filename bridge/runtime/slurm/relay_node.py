"""The relay's end on the compute node: `sender NATIVE LAUNCH [PART]`, a step of the native job beside the supervisor.

It links the supervisor's folder (`file_links`) over its standard input and output, and says besides:

down   {"taken": {}}                all was written there, to the disk
up     {"over": {}}                 the supervisor has written all it ever will, and all of it was sent
       {"closing": {"orders": n}}   no orders are wanted behind so many bytes
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, Optional

from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.slurm.channel import LineReader, encode_line
from overspan.bridge.runtime.slurm.file_links import FileLink
from overspan.bridge.runtime.slurm.node_folders import name_parent

PLACES = ("/tmp",)
"""Where the supervisor's folder may be, before the node's own TMPDIR."""
OVER, TAKEN, CLOSING = "over", "taken", "closing"
"""Files of the folder: the supervisor has written its last line; the relay has everything; no more orders are wanted
behind so many bytes."""
_READ_SIZE = 256 << 10
LOOK_SECONDS = 0.2
FIND_SECONDS = 60.0
_FAILURE = 70


def mark_name(native: str) -> str:
    """The name of the file by which a job's folder is known."""
    return f"job.{native}"


def find_folder(native: str, places: Sequence[str]) -> str:
    """The folder of the job's supervisor on this node; empty where there is none."""
    for place in filter(None, places):
        parent = name_parent(place)
        try:
            names = os.listdir(parent)
        except OSError:
            continue
        for name in names:
            if os.path.exists(os.path.join(parent, name, mark_name(native))):
                return os.path.join(parent, name)
    return ""


class FolderSender:
    """The node's end of the link between a supervisor's folder and the run directory on the login node."""

    def __init__(self, directory: RunDirectory) -> None:
        self._folder = directory.path
        self._link = FileLink(directory, True, _say)
        self._lines = LineReader()
        self._told: set[str] = set()

    def serve(self) -> int:
        """Send until the other side has all or goes away; gives the exit status."""
        self._link.greet()
        while True:
            seconds = LOOK_SECONDS
            while select.select([0], [], [], seconds)[0]:
                data = os.read(0, _READ_SIZE)
                if not data:
                    return _FAILURE
                for message in self._lines.feed(data):
                    self._link.take(message)
                    if "taken" in message:
                        open(os.path.join(self._folder, TAKEN), "ab").close()
                        return 0
                seconds = 0.0
            closing, over = (_read_text(os.path.join(self._folder, name)) for name in (CLOSING, OVER))
            self._link.send_news()
            if closing:
                self._tell_once({"closing": {"orders": int(closing)}})
            if over is not None:
                self._tell_once({"over": {}})

    def _tell_once(self, message: dict[str, Any]) -> None:
        if str(message) not in self._told:
            self._told.add(str(message))
            _say(message)


def _read_text(path: str) -> Optional[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _say(message: dict[str, Any]) -> None:
    data = encode_line(message)
    while data:
        data = data[os.write(1, data) :]


def _await_folder(native: str) -> str:
    deadline = time.monotonic() + FIND_SECONDS
    while True:
        folder = find_folder(native, (*PLACES, os.environ.get("TMPDIR", "")))
        if folder or time.monotonic() > deadline:
            return folder
        time.sleep(0.1)


def main(words: Sequence[str]) -> int:
    """Serve one relay; 70 when there is no supervisor here, or the relay went away."""
    native, launch, *part = words
    # Slurm tells every step that it ends the allocation; what is written until then is still news.
    for number in (signal.SIGTERM, signal.SIGCONT, signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    found: Optional[str] = _await_folder(native)
    if not found:
        print(f"span: error: job {native} has no supervisor on this node", file=sys.stderr)
        return _FAILURE
    try:
        return FolderSender(RunDirectory(found, int(launch), *part)).serve()
    except (OSError, ValueError) as error:
        print(f"span: error: the folder cannot be read: {error}", file=sys.stderr)
        return _FAILURE
