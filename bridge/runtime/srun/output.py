"""Output of ranks: labelled or not, in whole lines or unbuffered, to srun's own streams or to files."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Mapping, Sequence

from overspan.bridge.model.file_paths import join_path
from overspan.bridge.model.patterns import FilenameFields, expand_filename
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.srun.rank_process import PIPE

_LONGEST_LINE = 1 << 16


class Sink:
    """One descriptor that all ranks share. Its reader may go away: the rest is dropped then."""

    def __init__(self, fd: int, *, whole_lines: bool, label_width: int = 0) -> None:
        self._fd = fd
        self._whole_lines = whole_lines or label_width > 0
        self._width = label_width
        self._partial: dict[int, bytearray] = {}
        self._fresh: dict[int, bool] = {}

    def write(self, rank: int, data: bytes) -> None:
        """Write what a rank wrote, as far as lines are whole."""
        if not self._whole_lines:
            write_all(self._fd, data)
            return
        held = self._partial.setdefault(rank, bytearray())
        held += data
        end = held.rfind(b"\n") + 1
        if not end and len(held) > _LONGEST_LINE:
            end = len(held)
        if end:
            self._put(rank, bytes(held[:end]))
            del held[:end]

    def finish(self, rank: int) -> None:
        """Write the line that a rank has begun and not ended."""
        held = self._partial.pop(rank, None)
        if held:
            self._put(rank, bytes(held) + (b"\n" if self._width else b""))

    def _put(self, rank: int, data: bytes) -> None:
        if self._width:
            label = b"%*d: " % (self._width, rank)
            data = b"".join(label + line for line in data.splitlines(keepends=True))
        write_all(self._fd, data)


class Sinks:
    """The sinks of a step by the rank that writes: its component's for output, and for errors."""

    def __init__(self, pairs: Sequence[tuple[Sink, Sink]], component: Mapping[int, int]) -> None:
        self._pairs = pairs
        self._component = component

    def write(self, rank: int, data: bytes, *, error: bool) -> None:
        """Write what a rank wrote."""
        self._pairs[self._component[rank]][error].write(rank, data)

    def finish(self, rank: int) -> None:
        """Write the lines that a rank has begun and not ended."""
        for sink in dict.fromkeys(self._pairs[self._component[rank]]):
            sink.finish(rank)


def write_all(fd: int, data: bytes) -> None:
    """Write to a descriptor, waiting where it is non-blocking; nothing more where its reader is gone."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except OSError:
            return


class StreamTarget(NamedTuple):
    """Where a stream of all ranks goes: a file of each rank's own (pattern), or srun's `path` (empty: its stream)."""

    each: str = ""
    path: str = ""
    only: int = -1
    nothing: bool = False

    def name(self, rank: int, fields: FilenameFields, directory: str) -> str:
        """What the rank itself opens."""
        if self.nothing or (self.only >= 0 and rank != self.only):
            return ""
        if self.each:
            return join_path(directory, expand_filename(self.each, fields))
        return PIPE


def choose_target(pattern: str, labelled: bool) -> StreamTarget:
    """Read a value of --output, --error or --input: all, none, a rank's number, or a file name pattern."""
    if pattern in ("", "all"):
        return StreamTarget()
    if pattern == "none":
        return StreamTarget(nothing=True)
    if pattern.isdigit():
        return StreamTarget(only=int(pattern))
    return StreamTarget(path=pattern) if labelled or not _is_of_rank(pattern) else StreamTarget(each=pattern)


def _is_of_rank(pattern: str) -> bool:
    letters = pattern.replace("%%", "").split("%")[1:]
    return "\\" not in pattern and any(part.lstrip("0123456789")[:1] in ("t", "n", "N") for part in letters)


def fold_ranks(ranks: Iterable[int]) -> str:
    """Numbers in Slurm's short form: `0-3,7`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] + 1 == rank:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def unfold_ranks(text: str) -> list[int]:
    """The numbers of a short form."""
    found: list[int] = []
    for piece in filter(None, text.split(",")):
        first, _, last = piece.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
