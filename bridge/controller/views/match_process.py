"""The process that matches lines of a log: a regular expression may take for ever, and a process can be killed.

Its input is a JSON document in the first line (pattern, invert), then blocks: a line with the offset and the number of
bytes, and the bytes. It answers each block with a line: a JSON list of [begin, end, text], the newest first, where each
character of a text is a byte.
"""

from __future__ import annotations

import json
import sys
from typing import BinaryIO

from overspan.bridge.model.log_matching import find_lines, make_matcher


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer blocks until the input ends."""
    asked = json.loads(source.readline())
    matcher = make_matcher(asked["pattern"], asked["invert"])
    for head in source:
        offset, size = map(int, head.split())
        found = [
            [match.begin, match.end, match.data.decode("latin-1")]
            for match in find_lines(source.read(size), offset, matcher)
        ]
        target.write(json.dumps(found[::-1]).encode() + b"\n")
        target.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
