"""What comes from a terminal."""

from __future__ import annotations

import os
import select
import time


def read_until(fd: int, text: bytes) -> bytes:
    """Read from a terminal until it shows something."""
    data, deadline = b"", time.monotonic() + 120
    while text not in data:
        assert select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0], data
        data += os.read(fd, 4096)
    return data
