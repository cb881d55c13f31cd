"""Reading logs: of one node or a whole group, from the end or the beginning, once or until the job is over.

Several logs are merged by the times at which they grew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import inf
from typing import NamedTuple, Protocol

from overspan.bridge.client.messages import LogPart, LogSelection, Outcome, Stream, StreamKey
from overspan.bridge.model.errors import NotFound

POLL_SECONDS = 0.3
_BLOCK = 65536
_PIECE_BLOCK = 1 << 18
"""Bytes that are read at once where several logs are merged."""
ALL = -1
"""The number that wishes for all attempts."""


class LogSource(Protocol):
    """What reading logs needs of a client."""

    def streams(self, ref: str, times: bool = False) -> list[Stream]:
        """The logs a job has; with `times` also when each of them grew."""

    def log_part(self, ref: str, key: StreamKey, offset: int = 0, limit: int = 1 << 20) -> LogPart:
        """Bytes of one log."""

    def wait(self, ref: str, timeout: float | None = None) -> Outcome:
        """Wait for the end of the job."""


class LogChunk(NamedTuple):
    """Bytes of a log, and when they came (epoch seconds) where that is known."""

    stream: Stream
    data: bytes
    at: float | None = None


def read_logs(
    source: LogSource, ref: str, wish: LogSelection, pause: Callable[[], None] = lambda: None
) -> Iterator[tuple[Stream, bytes]]:
    """Give the bytes of every log that is wished for, as (log, bytes); see `read_parts`."""
    for part in read_parts(source, ref, wish, pause):
        yield part.stream, part.data


def read_parts(
    source: LogSource, ref: str, wish: LogSelection, pause: Callable[[], None] = lambda: None
) -> Iterator[LogChunk]:
    """Give the bytes of every log that is wished for.

    One request a poll tells the sizes of all logs; only those that grew are read. `pause` is called before each wait
    for more. NotFound when a job that is not followed has no such log.
    """
    offsets: dict[StreamKey, int] = {}
    first = True
    over = not wish.follow
    while True:
        present = source.streams(ref, first and (wish.times or wish.since is not None))
        chosen = choose_streams(present, wish)
        # What was begun is read to its end, though a newer attempt has started meanwhile.
        found = [stream for stream in present if stream in chosen or key_of(stream) in offsets]
        if not found and over and first:
            if not present:
                raise NotFound(f"job {ref} has no such log yet", remedy=f"`span logs -f {ref}` waits for it")
            raise NotFound(f"job {ref} has no such log", remedy=f"`span show {ref}` lists its tasks and attempts")
        if first:
            offsets.update((key_of(stream), _find_begin(source, ref, stream, wish)) for stream in found)
            # Without their times all pieces are of one time, and logs are read one after the other.
            for piece, data in read_pieces(order_pieces(found, offsets), partial(source.log_part, ref)):
                offsets[key_of(piece.stream)] = piece.begin + len(data)
                yield LogChunk(piece.stream, data, piece.at)
        for stream in found:
            key = key_of(stream)
            offsets.setdefault(key, 0)
            while offsets[key] < stream.size or over:
                part = source.log_part(ref, key, offsets[key])
                if not part.data:
                    break
                offsets[key] = part.offset + len(part.data)
                yield LogChunk(stream, part.data)
        if over:
            return
        first = False
        pause()
        # The long poll is also the pause; the last bytes are read after the end.
        over = source.wait(ref, POLL_SECONDS).over


def _find_begin(source: LogSource, ref: str, stream: Stream, wish: LogSelection) -> int:
    """Where a log is read from, always the beginning of a line."""
    begin = tail_offset(source, ref, stream, wish.tail) if wish.tail is not None else 0
    if wish.since is None:
        return begin
    since = find_since(stream, wish.since)
    if since < stream.size:
        block = max(0, since - _BLOCK)
        # The line that was being written then is shown whole.
        before = source.log_part(ref, key_of(stream), block, since - block).data[: since - block] if since else b""
        since = block + before.rfind(b"\n") + 1
    return max(begin, since)


def choose_streams(streams: list[Stream], wish: LogSelection) -> list[Stream]:
    """Choose the logs that a wish names; of each node's, without a number, the newest attempt's."""
    chosen = [
        stream
        for stream in streams
        if not stream.trouble
        and wish.task in ("", stream.task)
        and wish.node in (None, stream.node)
        and wish.stream in ("", stream.stream)
        and wish.attempt in (None, ALL, stream.attempt)
    ]
    if wish.attempt == ALL:
        return chosen
    newest: dict[tuple[str, str, int], int] = {}
    for stream in chosen:
        place = (stream.job, stream.task, stream.node)
        newest[place] = max(newest.get(place, 0), stream.attempt)
    return [stream for stream in chosen if stream.attempt == newest[stream.job, stream.task, stream.node]]


def tail_offset(source: LogSource, ref: str, stream: Stream, lines: int) -> int:
    """Where the last `lines` lines of a log begin; read backwards block by block."""
    end = stream.size
    missing = lines
    at = end
    while at > 0 and lines > 0:
        begin = max(0, at - _BLOCK)
        data = source.log_part(ref, key_of(stream), begin, at - begin).data
        if at == end and data.endswith(b"\n"):
            # The last line's own end opens no further line.
            missing += 1
        count = data.count(b"\n")
        if count >= missing:
            place = len(data)
            for _ in range(missing):
                place = data.rindex(b"\n", 0, place)
            return begin + place + 1
        missing -= count
        at = begin
    return 0 if lines > 0 else end


# --- several logs as one, by the times at which they grew

Read = Callable[[StreamKey, int, int], LogPart]
"""Reads bytes of a log: which one, from where, how many at most."""


class TimedPiece(NamedTuple):
    """Bytes of a log that came at one time (epoch seconds); None if the time is unknown."""

    at: float | None
    stream: Stream
    begin: int
    end: int


def key_of(stream: Stream) -> StreamKey:
    """The key that asks for this log."""
    return StreamKey(stream.task, stream.node, stream.attempt, stream.stream, stream.job)


def order_pieces(streams: Iterable[Stream], begins: Mapping[StreamKey, int]) -> list[TimedPiece]:
    """What there is of some logs behind these places, oldest first; what has no time comes before all else."""
    pieces = []
    for stream in streams:
        begin = begins[key_of(stream)]
        for at, size in stream.marks or ():
            end = min(size, stream.size)
            if end > begin:
                pieces.append(TimedPiece(at, stream, begin, end))
                begin = end
        if begin < stream.size:
            last = stream.marks[-1][0] if stream.marks else None
            pieces.append(TimedPiece(last, stream, begin, stream.size))
    return sorted(pieces, key=lambda piece: -inf if piece.at is None else piece.at)


def find_since(stream: Stream, since: float) -> int:
    """Where what came from that time on begins; the log's end where nothing did."""
    older = [size for at, size in stream.marks or () if at < since]
    return min(max(older, default=0), stream.size)


def read_pieces(pieces: Iterable[TimedPiece], read: Read) -> Iterator[tuple[TimedPiece, bytes]]:
    """The bytes of pieces, each with its place, read in large blocks. A log that is shorter now has nothing more."""
    ahead: dict[StreamKey, tuple[int, bytes]] = {}
    for piece in pieces:
        key, place = key_of(piece.stream), piece.begin
        while place < piece.end:
            begin, data = ahead.get(key, (0, b""))
            if not begin <= place < begin + len(data):
                part = read(key, place, max(_PIECE_BLOCK, min(piece.end - place, 1 << 20)))
                # What was lost before it (a log that its node has rotated) is left out.
                begin, data = ahead[key] = part.offset, part.data
                if not data or begin >= piece.end:
                    break
                place = max(place, begin)
            found = data[place - begin : piece.end - begin]
            yield piece._replace(begin=place), found
            place += len(found)
