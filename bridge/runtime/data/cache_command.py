"""Tells and cleans a cache where its machine is: ls|clean PATH LIMIT SECONDS, answered as JSON.

An empty LIMIT is the usual one. What cannot be done is a line on stderr and exit code 1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from overspan.bridge.runtime.data.cache import ContentCache


def main(words: Sequence[str]) -> int:
    """Do one of the two; gives the exit code."""
    verb, path, limit, seconds = words
    cache = ContentCache(os.path.expanduser(path), int(limit) if limit else None)
    try:
        if verb == "clean":
            print(json.dumps(cache.clean(float(seconds))._asdict()))
        else:
            found = cache.describe()
            print(json.dumps([found.path, found.limit, found.contents]))
    except OSError as error:
        print(f"{error.filename or cache.path}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0
