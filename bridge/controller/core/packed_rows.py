"""Packed rows: an encoded row of the listings as its own part and a rest that is one object for all equal ones.

Jobs of one script differ by their numbers, their times and the paths of their output. What else a row has is the
longer part of it, and with 100,000 waiting jobs most of what the listings would keep.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Sequence
from typing import Any

from overspan.bridge.listings.rows import COLUMNS, CORE, USUAL

MARK = b"\n"
"""Stands before the comma after the last value of an extent; no other newline is in a row."""
_CUT = b"\0"
"""Stands between the two pieces of a part; JSON has no such byte."""
_STREAMS = COLUMNS.index("stdout")
_BEGINS = (0, len(CORE), len(USUAL), _STREAMS, _STREAMS + 2, len(COLUMNS))
_SHARED = 256
"""Rests that are remembered, so that an equal one is the same object."""


def encode_row(row: Sequence[Any]) -> bytes:
    """The values of a row as they are sent, with a mark behind each extent."""
    return unpack_row(*_cut_row(row))


def pack_row(row: Sequence[Any]) -> tuple[bytes, bytes]:
    """The same in two parts: what is the job's own, and the rest, which other jobs have too."""
    own, rest = _cut_row(row)
    return own, _share(rest)


def unpack_row(own: bytes, rest: bytes) -> bytes:
    """The encoded row of two parts."""
    core, _, streams = own.partition(_CUT)
    middle, _, end = rest.partition(_CUT)
    return b"".join((core, middle, streams, end))


def _cut_row(row: Sequence[Any]) -> tuple[bytes, bytes]:
    core, usual, middle, streams, end = map(_encode, (row[begin:end] for begin, end in itertools.pairwise(_BEGINS)))
    return core + _CUT + streams, b"".join((MARK, b",", usual, MARK, b",", middle, b",", _CUT, b",", end))


def _encode(values: Sequence[Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))[1:-1].encode()


@functools.lru_cache(maxsize=_SHARED)
def _share(rest: bytes) -> bytes:
    return rest
