"""Answers that go on: the lines of a watch or a followed log."""

from __future__ import annotations

import contextlib
import importlib
import socket
from collections.abc import Generator
from typing import Any

from overspan.bridge.model.errors import TimedOut, Unreachable

_PART = 1 << 16


class AnswerStream:
    """The lines of an answer as bytes, without their ends; `close` may come from another thread."""

    def __init__(self, response: Any, doing: str) -> None:
        self._response = response
        self._doing = doing
        self._closed = False

    def __iter__(self) -> Generator[bytes]:
        """Each line once it is whole. Raises TimedOut after silence, and Unreachable when the connection breaks."""
        parts: list[bytes] = []
        with contextlib.closing(self.parts()) as pieces:
            for part in pieces:
                first, *others = part.split(b"\n")
                parts.append(first)
                if others:
                    yield b"".join(parts)
                    *whole, last = others
                    yield from whole
                    parts = [last]
            if any(parts):
                yield b"".join(parts)

    def parts(self) -> Generator[bytes]:
        """The answer in the pieces that it comes in. Raises as the lines do."""
        errors = importlib.import_module("urllib3.exceptions")
        try:
            yield from self._response.stream(_PART)
        except errors.ReadTimeoutError as error:
            raise TimedOut(f"the cluster was silent: {self._doing}") from error
        except (errors.HTTPError, OSError, ValueError, AttributeError) as error:
            # A socket that is closed under its reader fails in several ways.
            if not self._closed:
                raise Unreachable(f"the connection broke: {self._doing}: {error}") from error
        finally:
            self._response.close()

    def close(self) -> None:
        """End it; a thread that waits for a line comes back at once."""
        self._closed = True
        try:
            # Closing the descriptor would not wake its reader, and would race with it.
            self._response.shutdown()
        except (AttributeError, OSError, ValueError, RuntimeError):
            below: Any = getattr(getattr(self._response, "connection", None), "sock", None)
            if below is not None:
                try:
                    below.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
