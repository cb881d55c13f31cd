"""Viewer: `span top` in a process of its own for each browser, with pipes for a terminal.

Textual's own driver for browsers writes packets: a letter, four bytes of length, and that many bytes. `D` is what a
terminal would show, or was typed; `M` is JSON about the window and the end. All else of that protocol, files and links
to open, is for applications that need it: it goes no further than here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

PRELUDE = b"__GANGLION__\n"
PRELUDE_LINES = 20
"""Lines that may come before it."""
MOST = 8 << 20
"""Bytes of a packet; a longer one is none."""
FRAME = 1024
"""Bytes from which on a packet is a part of a frame, and no start of the terminal."""
WIDTHS, HEIGHTS = range(20, 501), range(5, 201)
"""Columns and lines that a window may have: each costs memory."""
QUIT_SECONDS, TERM_SECONDS = 3.0, 2.0
"""From the request to end to TERM, and from there to KILL."""
Send = Callable[[bytes], Awaitable[None]]


def fit_size(width: object, height: object) -> tuple[int, int]:
    """The nearest size that is allowed; 80 by 24 for what is no size."""
    return _fit(width, WIDTHS, 80), _fit(height, HEIGHTS, 24)


def _fit(value: object, allowed: range, usual: int) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 6:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return usual
    return max(allowed[0], min(value, allowed[-1]))


def make_environment(environment: Mapping[str, str], width: int, height: int) -> dict[str, str]:
    """The environment of a viewer: a browser's window in place of the server's terminal."""
    own = {
        name: text for name, text in environment.items() if name not in ("NO_COLOR", "LINES", "TMUX", "STY", "LC_ALL")
    }
    return own | {
        "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
        "TEXTUAL_FPS": "30",
        "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "TERM": "xterm-256color",
        "LC_CTYPE": "C.UTF-8",
        "COLUMNS": str(width),
        "ROWS": str(height),
    }


class Viewer:
    """One process; `send` gets what its terminal shows."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], send: Send) -> None:
        self._words = words
        self._environment = environment
        self._send = send
        self._process: asyncio.subprocess.Process | None = None
        self._focused = False
        """What the browser said last of its window's focus."""
        self._drawn = False
        """Whether it has shown a frame: its driver takes the focus away once more while it starts."""

    async def run(self, width: int, height: int) -> None:
        """Start it, and pass on what it shows until it ends."""
        self._process = await asyncio.create_subprocess_exec(
            *self._words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=make_environment(self._environment, width, height),
            # The terminal's Ctrl-C is for the server, which ends its viewers in order.
            start_new_session=True,
        )
        output = self._process.stdout
        assert output is not None
        with suppress(asyncio.IncompleteReadError, ConnectionResetError, asyncio.LimitOverrunError, ValueError):
            await self._pass_on(output)

    async def _pass_on(self, output: asyncio.StreamReader) -> None:
        for _ in range(PRELUDE_LINES):
            line = await output.readline()
            if line == PRELUDE or not line:
                break
        while True:
            head = await output.readexactly(5)
            size = int.from_bytes(head[1:], "big")
            if size > MOST:
                return
            data = await output.readexactly(size)
            if head[:1] == b"D":
                await self._send(data)
                if size >= FRAME and not self._drawn:
                    self._drawn = True
                    await self.focus(self._focused)
            elif head[:1] == b"M" and read_meta(data).get("type") == "exit":
                return

    async def type(self, text: str) -> None:
        """Pass on what was typed."""
        await self._write(b"D", text.encode(errors="replace"))

    async def focus(self, focused: bool) -> None:
        """Tell whether the browser's window has the focus."""
        self._focused = focused
        await self.tell(type="focus" if focused else "blur")

    async def tell(self, **meta: object) -> None:
        """Tell something about the window."""
        await self._write(b"M", json.dumps(meta).encode())

    async def _write(self, kind: bytes, data: bytes) -> None:
        pipe = self._process.stdin if self._process is not None else None
        if pipe is None or pipe.is_closing():
            return
        with suppress(ConnectionError, RuntimeError):
            pipe.write(kind + len(data).to_bytes(4, "big") + data)
            await pipe.drain()

    async def stop(self) -> None:
        """End it: by request, then by TERM, then by KILL."""
        process = self._process
        if process is None:
            return
        await self.tell(type="quit")
        for seconds, act in ((QUIT_SECONDS, process.terminate), (TERM_SECONDS, process.kill)):
            try:
                await asyncio.wait_for(process.wait(), seconds)
                break
            except TimeoutError:
                with suppress(ProcessLookupError):
                    act()
        await process.wait()


def read_meta(data: bytes) -> dict[str, Any]:
    """What a viewer tells about itself; nothing where it is no JSON object."""
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
