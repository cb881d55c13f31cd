"""A link between two folders: each end sends the growth of its own files to the other, over a channel of JSON lines.

have   {"have": {name: size}}                   how much this end has of the other's files; first
part   {"part": {"file", "offset", "data"}}     bytes of a file, in base64; without an offset they are appended

The sizes of the files are the only state: an end that was killed is simply started again.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from typing import Any, Callable, Optional

from overspan.bridge.runtime.core.run_directory import RunDirectory

PART = 256 << 10
"""Bytes of one message."""
_LOG = re.compile(r"logs/[^/.][^/]*")
_SEATS = re.compile(r"members/([^/.][^/]*)/seats\.(\d+)\.jsonl")
_SUFFIXES = {"output": "out", "error": "err"}

Say = Callable[[dict[str, Any]], None]
"""Sends a message to the other end."""


def list_names(directory: RunDirectory, node: bool) -> list[str]:
    """The files that the `node` or the login node writes, by their names in the run directory, as far as there are any.

    Those of a node are logs, lists and journal, of the login node orders and, for a part of a set, where the other
    tasks run. The last one is written behind the others.
    """
    logs = [f"logs/{name}" for name in _list_folder(os.path.join(directory.path, "logs"))] if node else []
    tasks = _list_folder(os.path.join(directory.path, "members"))
    seats = (f"members/{task}/seats.{directory.launch}.jsonl" for task in tasks)
    return [*logs, *(name for name in seats if is_written(directory, name, node)), *_list_fixed(directory, node)]


def is_written(directory: RunDirectory, name: str, node: bool) -> bool:
    """Whether a file is one that this side writes."""
    match = _SEATS.fullmatch(name)
    if match:
        part = os.path.relpath(directory.own, directory.path).split("/")
        return part[0] == "members" and int(match[2]) == directory.launch and (match[1] == part[1]) is node
    return name in _list_fixed(directory, node) or (node and is_log(name))


def _list_fixed(directory: RunDirectory, node: bool) -> list[str]:
    files = ("streams.jsonl", "supervisor.log", "journal.jsonl") if node else ("orders.jsonl", "closed")
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
        self._say({"have": measure_files(self._directory.path, list_names(self._directory, not self._node))})

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
        sizes = measure_files(self._directory.path, names[::-1])
        for name in names:
            if self._had.get(name, -1) < sizes.get(name, -1):
                self._had[name] = self._send(name, max(0, self._had.get(name, 0)), sizes[name])

    def _send(self, name: str, offset: int, until: int) -> int:
        with open(os.path.join(self._directory.path, name), "rb") as file:
            file.seek(offset)
            while True:
                data = file.read(min(PART, until - offset))
                self._say({"part": {"file": name, "offset": offset, "data": base64.b64encode(data).decode()}})
                offset += len(data)
                if not data or offset >= until:
                    return offset


def name_log(key: object, stream: str) -> str:
    """The file of a node run's stream, where it is sent."""
    return f"logs/{key}.{_SUFFIXES[stream]}"


def is_log(name: str) -> bool:
    """Whether a name is that of a node run's output."""
    return bool(_LOG.fullmatch(name))


def measure_files(folder: str, names: list[str]) -> dict[str, int]:
    """The sizes of those files that are there."""
    sizes = {}
    for name in names:
        try:
            sizes[name] = os.stat(os.path.join(folder, name)).st_size
        except FileNotFoundError:
            continue
    return sizes


def encode_part(name: str, data: bytes) -> dict[str, Any]:
    """A message with bytes for the end of a file."""
    return {"part": {"file": name, "data": base64.b64encode(data).decode()}}


def write_part(folder: str, part: Mapping[str, Any]) -> str:
    """Put bytes of a file at their place; gives its name. Raises OSError."""
    name, data, offset = str(part["file"]), base64.b64decode(part["data"]), part.get("offset")
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0) as file:
        file.seek(0 if offset is None else int(offset), os.SEEK_END if offset is None else os.SEEK_SET)
        while data:
            data = data[file.write(data) :]
    return name


def _list_folder(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
