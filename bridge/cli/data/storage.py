"""`span storage ls|du|rm URL`: what is in an object store."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write, write_json
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.names import one_line
from overspan.bridge.model.sizes import format_bytes

_EXAMPLES = """\
  span storage ls s3://runs/llama             one level; -r all below
  span storage du s3://runs/llama             how much there is
  span storage rm -r s3://runs/llama/old      remove a folder
"""
_NAME_LENGTH = 1024


def run(call: Invocation) -> int:
    """Print what was asked for."""
    chosen = _read(call)
    with call.client() as client:
        if chosen.verb == "ls":
            return _list(call, client.storage.list_objects(chosen.url, chosen.recursive), chosen)
        if chosen.verb == "du":
            files, size = client.storage.measure(chosen.url)
            if chosen.json:
                write_json({"format": 1, "files": files, "size": size})
            else:
                write(f"{format_bytes(size)} in {files} object{'s' * (files != 1)}\n")
            return 0
        removed = client.storage.remove(chosen.url, chosen.recursive)
    if chosen.json:
        write_json({"format": 1, "removed": removed})
    else:
        say(call, f"{removed} object{'s' * (removed != 1)} removed")
    return 0


def _read(call: Invocation) -> argparse.Namespace:
    parser = make_parser(call, "What is in the object stores of the configuration.", _EXAMPLES)
    parser.add_argument("verb", choices=("ls", "du", "rm"), help="list, measure or remove")
    parser.add_argument("url", metavar="URL", help="s3://BUCKET/FOLDER")
    parser.add_argument("-r", "--recursive", action="store_true", help="all that is below, too")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    return parser.parse_args(call.words)


def _list(call: Invocation, answer: Mapping[str, Any], chosen: argparse.Namespace) -> int:
    objects, truncated = answer["objects"], bool(answer["truncated"])
    if chosen.json:
        write_json({"format": 1, "objects": objects, "truncated": truncated})
    else:
        rows = [_cells(stored) for stored in objects]
        width = max((len(row[0]) for row in rows), default=0)
        write("".join(f"{size:>{width}}  {time:<19}  {name}\n" for size, time, name in rows))
    if truncated:
        say(call, f"there are more than these {len(objects)}; name a folder further down")
    return 0


def _cells(stored: Mapping[str, Any]) -> tuple[str, str, str]:
    name = one_line(str(stored["key"]), _NAME_LENGTH)
    if name.endswith("/"):
        return "", "", name
    return format_bytes(int(stored["size"])), format_timestamp(float(stored["modified"])), name
