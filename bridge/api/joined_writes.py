"""Sends an answer's head and body together: two writes are two wake-ups of whoever waits for the answer."""

from __future__ import annotations

import asyncio
from typing import Any

_HEAD = b"HTTP/1."


class JoinedWrites:
    """A transport that keeps the head of an answer until its body comes, or the loop's next round."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._due: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        """Send data behind all that was written before."""
        head, self._head = self._head, b""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if head or not data.startswith(_HEAD):
            self._transport.write(head + data)
            return
        self._head, self._due = data, self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Send what was written, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            self.write(b"")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
