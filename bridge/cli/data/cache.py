"""`span cache ls|clean`: what clusters keep of object stores for the next jobs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write, write_json, write_table
from overspan.bridge.model.durations import format_timestamp, parse_delay
from overspan.bridge.model.errors import ExitCode, InvalidRequest
from overspan.bridge.model.names import one_line
from overspan.bridge.model.sizes import format_bytes

_EXAMPLES = """\
  span cache ls                        what is kept, by cluster
  span cache clean                     remove what no job uses
  span cache clean --unused-for 7d     only what no job has used for a week
"""
_HEAD = ("CLUSTER", "SIZE", "LAST USE", "USED BY", "CONTENT")
_NAME_LENGTH = 1024


def run(call: Invocation) -> int:
    """List or clean."""
    chosen = _read(call)
    with call.client() as client:
        if chosen.verb == "ls":
            answer = client.cache.list(chosen.cluster)
        else:
            answer = client.cache.clean(chosen.cluster, _read_seconds(chosen.unused_for))
    if chosen.json:
        write_json({"format": 1, "caches": answer["caches"]})
    elif chosen.verb == "ls":
        _list(answer["caches"])
    else:
        for cache in answer["caches"]:
            kept = f", {_count(cache['kept'])} kept" if cache["kept"] else ""
            write(f"{cache['cluster']}: {_count(cache['removed'])} removed, {format_bytes(cache['size'])}{kept}\n")
    for note in answer["notes"]:
        say(call, note)
    return ExitCode.FAILED if answer["notes"] else ExitCode.OK


def _read(call: Invocation) -> argparse.Namespace:
    parser = make_parser(call, "What clusters keep of what jobs only read of object stores (COPY).", _EXAMPLES)
    parser.add_argument("verb", choices=("ls", "clean"), help="list, or remove what no job uses")
    parser.add_argument("-M", "--cluster", default="", metavar="CLUSTER", help="the cluster; all without it")
    parser.add_argument("--unused-for", default="0", metavar="TIME", help="clean: spare what was used since: 12h, 7d")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    return parser.parse_args(call.words)


def _read_seconds(text: str) -> int:
    try:
        return parse_delay(text)
    except ValueError as error:
        raise InvalidRequest(f"--unused-for: {error}") from None


def _list(caches: list[Mapping[str, Any]]) -> None:
    rows = [(str(cache["cluster"]), *_cells(content)) for cache in caches for content in cache["contents"]]
    write_table([_HEAD, *rows])
    for cache in caches:
        size = sum(int(content["size"]) for content in cache["contents"])
        limit = f" of {format_bytes(cache['limit'])}" if cache["limit"] else ""
        write(f"{cache['cluster']}: {format_bytes(size)}{limit} in {cache['path']}\n")


def _cells(content: Mapping[str, Any]) -> tuple[str, ...]:
    name = one_line(str(content["name"]), _NAME_LENGTH) + ("" if content["whole"] else " (a part)")
    used_by = str(content["links"]) if content["links"] else "-"
    return format_bytes(int(content["size"])), format_timestamp(float(content["used_at"])), used_by, name


def _count(number: int) -> str:
    return f"{number} content{'s' * (number != 1)}"
