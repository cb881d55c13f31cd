"""The relay's end on the compute node: `sender NATIVE LAUNCH`, a step of the group's job beside the supervisor.

It reads messages from standard input, and writes what is new in the supervisor's folder to standard output:

down   {"have": {name: size}}                  how much of each file is there already; first, once
       {"orders": {"offset", "data"}}          bytes for the file of orders, in base64
       {"taken": {}}                           all was written there, to the disk
up     {"ready": {"orders": size}}             the supervisor's folder was found; how much of the orders it has
       {"part": {"file", "offset", "data"}}    bytes of a file, in base64
       {"over": {}}                            the supervisor has written all it ever will, and all of it was sent
"""

from __future__ import annotations

import base64
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, Optional

from overspan.bridge.runtime.slurm.channel import LineReader, encode_line
from overspan.bridge.runtime.slurm.node_folders import name_parent

PLACES = ("/tmp",)
"""Where the supervisor's folder may be, before the node's own TMPDIR."""
OVER, TAKEN = "over", "taken"
"""Files of the folder: the supervisor has written its last line; the relay has everything."""
PART = 256 << 10
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
    """Sends one folder's news; `have` is how much of each file the other side has."""

    def __init__(self, folder: str, launch: int) -> None:
        self._folder = folder
        self._have: dict[str, int] = {}
        self._journal = f"journal.{launch}.jsonl"
        self._first = (f"streams.{launch}.jsonl", f"supervisor.{launch}.log")
        self._orders = os.path.join(folder, f"orders.{launch}.jsonl")
        self._lines = LineReader()
        self._told_over = False

    def serve(self) -> int:
        """Send until the other side has all or goes away; gives the exit status."""
        _say({"ready": {"orders": _size(self._orders)}})
        while True:
            seconds = LOOK_SECONDS
            while select.select([0], [], [], seconds)[0]:
                data = os.read(0, PART)
                if not data:
                    return _FAILURE
                for message in self._lines.feed(data):
                    if self._take(message):
                        return 0
                seconds = 0.0
            self._send_news()

    def _take(self, message: dict[str, Any]) -> bool:
        """Take a message in; whether it is the last."""
        if "have" in message:
            self._have = {str(name): int(size) for name, size in message["have"].items()}
        elif "orders" in message:
            data = base64.b64decode(message["orders"]["data"])
            with open(self._orders, "ab") as file:
                if file.tell() == message["orders"]["offset"]:
                    file.write(data)
        elif "taken" in message:
            os.close(os.open(os.path.join(self._folder, TAKEN), os.O_WRONLY | os.O_CREAT, 0o600))
            return True
        return False

    def _send_news(self) -> None:
        """The journal last, and as it was before the rest: what it tells is there when it comes."""
        over = os.path.exists(os.path.join(self._folder, OVER))
        until = _size(os.path.join(self._folder, self._journal))
        for name in (*self._list_logs(), *self._first):
            self._send(name, _size(os.path.join(self._folder, name)))
        self._send(self._journal, until)
        if over and not self._told_over:
            self._told_over = True
            _say({"over": {}})

    def _list_logs(self) -> list[str]:
        try:
            return [f"logs/{name}" for name in sorted(os.listdir(os.path.join(self._folder, "logs")))]
        except OSError:
            return []

    def _send(self, name: str, until: int) -> None:
        offset = self._have.get(name, -1)
        path = os.path.join(self._folder, name)
        if offset >= until or not os.path.exists(path):
            return
        offset = max(0, offset)
        with open(path, "rb") as file:
            file.seek(offset)
            while name not in self._have or offset < until:
                # Of an empty file nothing, so that it is there.
                data = file.read(min(PART, until - offset))
                if not data and name in self._have:
                    break
                _say({"part": {"file": name, "offset": offset, "data": base64.b64encode(data).decode()}})
                offset += len(data)
                self._have[name] = offset


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


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
    native, launch = words
    # Slurm tells every step that it ends the allocation; what is written until then is still news.
    for number in (signal.SIGTERM, signal.SIGCONT, signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    found: Optional[str] = _await_folder(native)
    if not found:
        print(f"span: error: job {native} has no supervisor on this node", file=sys.stderr)
        return _FAILURE
    try:
        return FolderSender(found, int(launch)).serve()
    except OSError as error:
        print(f"span: error: the folder cannot be read: {error}", file=sys.stderr)
        return _FAILURE
