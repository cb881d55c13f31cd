"""History rows: the encoded rows of a job that is over, stored with it so that a listing need not decode the job."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable
from typing import Any

from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.rows import job_row, task_rows
from overspan.bridge.listings.rows import COLUMNS, CORE, USUAL

_log = logging.getLogger(__name__)

_FORMAT = zlib.crc32(",".join((*CORE, "", *USUAL, "", *COLUMNS)).encode())
"""Tells rows of this version's columns from others, which are made anew."""
_BETWEEN = b"\0"
_HEAD = 16
"""Letters before the rows: the format and their checksum."""


def make_history_rows(entry: JobEntry) -> bytes | None:
    """The rows of a job that is over: its own, then those of its tasks where there are several.

    None for one that is not over, and for an array, whose rows follow from its elements.
    """
    job = entry.job
    if not job.over or job.array is not None:
        return None
    try:
        rows = (job_row(entry), *(task_rows(entry) if len(job.tasks) > 1 else ()))
    except Exception:
        # The end of a job counts, however it looks in a listing; its rows are made when they are asked for.
        _log.exception("the account of job %d", job.id)
        return None
    return encode_history_rows(rows)


def encode_history_rows(rows: Iterable[bytes]) -> bytes:
    """The rows as they are kept."""
    data = _BETWEEN.join(rows)
    return b"%08x%08x" % (_FORMAT, zlib.crc32(data)) + data


def decode_history_rows(kept: bytes | None) -> list[bytes] | None:
    """The rows that were kept; None where there are none, or they are of another version or damaged."""
    if kept is None:
        return None
    data = kept[_HEAD:]
    if kept[:_HEAD] != b"%08x%08x" % (_FORMAT, zlib.crc32(data)):
        return None
    return data.split(_BETWEEN)


def read_row(row: bytes) -> list[Any]:
    """The values of a row, in the order of COLUMNS."""
    values: list[Any] = json.loads(b"[" + row + b"]")
    return values
