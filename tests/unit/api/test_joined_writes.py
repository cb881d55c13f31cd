"""An answer's head and body are one write."""

from __future__ import annotations

import asyncio

from overspan.bridge.api.joined_writes import JoinedWrites

HEAD, BODY = b"HTTP/1.1 200 OK\r\n\r\n", b"{}"


class _Wire:
    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.writes.append(b"closed")


def _join(*parts: bytes, close: bool = False) -> list[bytes]:
    async def play() -> list[bytes]:
        wire = _Wire()
        joined = JoinedWrites(wire, asyncio.get_running_loop())  # type: ignore[arg-type]
        for part in parts:
            joined.write(part)
        if close:
            joined.close()
        at_once = list(wire.writes)
        await asyncio.sleep(0)
        return [*at_once, b"|", *wire.writes[len(at_once) :]]

    return asyncio.run(play())


def test_a_head_goes_with_its_body() -> None:
    assert _join(HEAD, BODY) == [HEAD + BODY, b"|"]
    assert _join(HEAD, b"", HEAD, BODY) == [HEAD, HEAD + BODY, b"|"]


def test_a_head_without_a_body_goes_with_the_next_round() -> None:
    assert _join(HEAD) == [b"|", HEAD]


def test_what_was_written_is_sent_before_the_end() -> None:
    assert _join(HEAD, close=True) == [HEAD, b"closed", b"|"]
    assert _join(HEAD, BODY, BODY, close=True) == [HEAD + BODY, BODY, b"closed", b"|"]
