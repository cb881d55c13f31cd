"""A link between two folders: each end sends the growth of its own files to the other, over a channel of JSON lines.

First it says {"have": {name: size}}, how much it has of the other's files, then parts of its own (`file_parts`). The
sizes of the files are the only state: an end that was killed is simply started again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Callable, Optional

from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.slurm.file_parts import encode_part, is_log, write_part
from overspan.bridge.runtime.slurm.member_locations import locations_path
from overspan.bridge.runtime.slurm.part_folders import MEMBERS, name_part

PART = 256 << 10
"""Bytes of one message."""
_SEATS = re.compile(name_part(r"([^/.][^/]*)", r"seats\.(\d+)\.jsonl"))

Say = Callable[[dict[str, Any]], None]
"""Sends a message to the other end."""


def list_names(directory: RunDirectory, node: bool) -> list[str]:
    """The files that the `node` or the login node writes, by their names in the run directory, as far as there are any.

    Those of a node are logs, lists and journal, of the login node orders and, for a part of a set, where the other
    tasks run. The last one is written behind the others.
    """
    fixed = _list_fixed(directory, node)
    if node:
        return [*(f"logs/{name}" for name in _list_folder(os.path.join(directory.path, "logs"))), *fixed]
    tasks = _list_folder(os.path.join(directory.path, MEMBERS))
    seats = (locations_path("", task, directory.launch) for task in tasks)
    return [*(name for name in seats if is_written(directory, name, node)), *fixed]


def is_written(directory: RunDirectory, name: str, node: bool) -> bool:
    """Whether a file is one that this side writes."""
    match = _SEATS.fullmatch(name)
    if not match:
        return name in _list_fixed(directory, node) or (node and is_log(name))
    own = os.path.relpath(directory.own, directory.path).split("/")
    return not node and own[0] == MEMBERS and own[1] != match[1] and int(match[2]) == directory.launch


def _list_fixed(directory: RunDirectory, node: bool) -> list[str]:
    files = ("streams.jsonl", "supervisor.log", "seats.jsonl", "journal.jsonl") if node else ("orders.jsonl", "closed")
    return [os.path.relpath(directory.file(name), directory.path) for name in files]


class FileLink:
    """One end, on the `node` or on the login node."""

    def __init__(self, directory: RunDirectory, node: bool, say: Say) -> None:
        self._directory = directory
        self._node = node
        self._say = say
        self._had: Optional[dict[str, int]] = None

    def greet(self) -> None:
        """Tell how much of the other's files is here."""
        self._say({"have": _measure(self._directory.path, list_names(self._directory, not self._node))})

    def take(self, message: Mapping[str, Any]) -> str:
        """Take a message in; gives the name of a file that was written. OSError and ValueError where it cannot be."""
        if "have" in message:
            self._had = {str(name): int(size) for name, size in message["have"].items()}
        if "part" not in message:
            return ""
        if not is_written(self._directory, str(message["part"]["file"]), not self._node):
            raise ValueError(f"{message['part']['file']!r} is no file that the other side writes")
        return write_part(self._directory.path, message["part"])

    def send_news(self) -> None:
        """Send what is new, once the other end has told what it has. Of an empty file nothing, so that it is there."""
        if self._had is None:
            return
        names = list_names(self._directory, self._node)
        # Measured from the last to the first, so that nothing comes before what it was written behind.
        sizes = _measure(self._directory.path, names[::-1])
        for name in names:
            if self._had.get(name, -1) < sizes.get(name, -1):
                self._had[name] = self._send(name, max(0, self._had.get(name, 0)), sizes[name])

    def _send(self, name: str, offset: int, until: int) -> int:
        with open(os.path.join(self._directory.path, name), "rb") as file:
            file.seek(offset)
            while True:
                data = file.read(min(PART, until - offset))
                self._say(encode_part(name, data, offset))
                offset += len(data)
                if not data or offset >= until:
                    return offset


def measure_file(path: str) -> int:
    """The size of a file; 0 where there is none."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _measure(folder: str, names: list[str]) -> dict[str, int]:
    """The sizes of those files that are there, in this order."""
    paths = {name: os.path.join(folder, name) for name in names}
    return {name: measure_file(path) for name, path in paths.items() if os.path.exists(path)}


def _list_folder(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
