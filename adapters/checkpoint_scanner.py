"""The scanner for checkpoints as it is sent to where the folders are: nothing is installed there."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from overspan.bridge.model.checkpoints.listings import ListingRequest, encode_requests
from overspan.bridge.runtime.checkpoints import scan

LOAD = """\
text, _, requests = zlib.decompress(base64.b64decode(sys.stdin.buffer.readline())).decode().partition("\\0")
there = {"__name__": "scan"}
exec(compile(text, "scan.py", "exec"), there)
"""
"""Python that reads the scanner, as `there["main"]`, and its `requests` from one line of stdin.

It needs base64, sys and zlib. From stdin, because names of checkpoints belong in no process list; one line, because the
end of the input is not told everywhere.
"""


def pack_scanner(requests: Sequence[ListingRequest]) -> bytes:
    """The line that LOAD reads, as text, since transports take no other. Thousands of settled names become a few KB."""
    packed = zlib.compress(_read_scanner() + b"\0" + json.dumps(encode_requests(requests)).encode())
    return base64.b64encode(packed) + b"\n"


@cache
def _read_scanner() -> bytes:
    return Path(scan.__file__).read_bytes()
