"""Bytes of a file as a message of a channel: {"part": {"file", "data"}} with the data in base64, and an "offset".

Without an offset they belong to the file's end.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from typing import Any, Optional

_LOG = re.compile(r"logs/[^/.][^/]*")
_SUFFIXES = {"output": "out", "error": "err"}


def name_log(key: object, stream: str) -> str:
    """The file of a node run's stream, where it is sent."""
    return f"logs/{key}.{_SUFFIXES[stream]}"


def is_log(name: str) -> bool:
    """Whether a name is that of a node run's output."""
    return bool(_LOG.fullmatch(name))


def encode_part(name: str, data: bytes, offset: Optional[int] = None) -> dict[str, Any]:
    """The message with some bytes of a file."""
    place = {} if offset is None else {"offset": offset}
    return {"part": {"file": name, **place, "data": base64.b64encode(data).decode()}}


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
