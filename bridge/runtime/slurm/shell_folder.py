"""Temporary folder for a shell on a node that shares none: `shell-folder`, a step of the job that ends with the shell.

Its standard input brings a line {"documents": {name: text}}, which become files. It answers {"lodged": {"folder"}},
waits for the end of its input, and removes the folder.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from overspan.bridge.runtime.slurm.channel import LineReader, encode_line
from overspan.bridge.runtime.slurm.node_folders import make_folder, write_file

APPLICATION = "application.pyz"
"""The file of the folder that is the supervisor's application."""
_NATIVE = "native"
_READ_SIZE = 1 << 18
_FAILURE = 70


def encode_documents(documents: dict[str, str], native: str) -> bytes:
    """The line that brings the documents of a launch, whose native job this is."""
    return encode_line({"documents": {**documents, _NATIVE: native}})


def read_native(folder: str) -> str:
    """The native job that a folder was made for; empty for any other folder."""
    try:
        with open(os.path.join(folder, _NATIVE), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def fill_folder(folder: str, documents: dict[str, Any]) -> None:
    """Put the documents there, and the application that runs. Raises OSError."""
    for name, text in documents.items():
        write_file(folder, name, str(text).encode("utf-8", "surrogateescape"))
    with open(sys.argv[0], "rb") as file:
        write_file(folder, APPLICATION, file.read())


def _leave(number: int, frame: object) -> None:
    """Exit by an exception, so that the folder is removed when Slurm ends the step too."""
    sys.exit(128 + number)


def main(words: Sequence[str] = ()) -> int:
    """Provide the folder until standard input ends; 70 when no documents came, or no folder could be made."""
    signal.signal(signal.SIGTERM, _leave)
    os.umask(0o077)
    lines = LineReader()
    messages: list[dict[str, Any]] = []
    while not messages:
        data = os.read(0, _READ_SIZE)
        if not data:
            return _FAILURE
        messages = lines.feed(data)
    try:
        folder = make_folder(("/tmp", os.environ.get("TMPDIR", "")))
    except OSError as error:
        print(f"span: error: {error}", file=sys.stderr)
        return _FAILURE
    try:
        fill_folder(folder.path, messages[0].get("documents", {}))
        os.write(1, encode_line({"lodged": {"folder": folder.path}}))
        while os.read(0, _READ_SIZE):
            pass
    finally:
        folder.remove()
    return 0
