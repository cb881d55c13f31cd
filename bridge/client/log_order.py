"""Several logs as one, by the times at which they grew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

from overspan.bridge.client.messages import LogPart, Stream, StreamKey

_BLOCK = 1 << 18

Read = Callable[[StreamKey, int, int], LogPart]
"""Reads bytes of a log: which one, from where, how many at most."""


class Piece(NamedTuple):
    """Bytes of a log that came at one time (epoch seconds); None where nobody noted it."""

    at: float | None
    stream: Stream
    begin: int
    end: int


def key_of(stream: Stream) -> StreamKey:
    """The key that asks for this log."""
    return StreamKey(stream.task, stream.node, stream.attempt, stream.stream, stream.job)


def order_pieces(streams: Iterable[Stream], begins: Mapping[StreamKey, int]) -> list[Piece]:
    """What there is of some logs behind these places, oldest first; what has no time comes before all else."""
    pieces = []
    for stream in streams:
        begin = begins[key_of(stream)]
        for at, size in stream.marks or ():
            end = min(size, stream.size)
            if end > begin:
                pieces.append(Piece(at, stream, begin, end))
                begin = end
        if begin < stream.size:
            last = stream.marks[-1][0] if stream.marks else None
            pieces.append(Piece(last, stream, begin, stream.size))
    return sorted(pieces, key=lambda piece: -inf if piece.at is None else piece.at)


def find_since(stream: Stream, since: float) -> int:
    """Where what came from that time on begins; the log's end where nothing did."""
    older = [size for at, size in stream.marks or () if at < since]
    return min(max(older, default=0), stream.size)


def read_pieces(pieces: Iterable[Piece], read: Read) -> Iterator[tuple[Piece, bytes]]:
    """The bytes of pieces, each with its place, read in large blocks. A log that is shorter now has nothing more."""
    ahead: dict[StreamKey, tuple[int, bytes]] = {}
    for piece in pieces:
        key, place = key_of(piece.stream), piece.begin
        while place < piece.end:
            begin, data = ahead.get(key, (0, b""))
            if not begin <= place < begin + len(data):
                part = read(key, place, max(_BLOCK, min(piece.end - place, 1 << 20)))
                # What was lost before it (a log that its node has rotated) is left out.
                begin, data = ahead[key] = part.offset, part.data
                if not data or begin >= piece.end:
                    break
                place = max(place, begin)
            found = data[place - begin : piece.end - begin]
            yield piece._replace(begin=place), found
            place += len(found)
