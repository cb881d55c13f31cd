"""`span data put|get|rescue`: files and folders to an object store and from it, and what a job could not send."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write_json
from overspan.bridge.cli.references import find_job
from overspan.bridge.client.storage import TransferStep
from overspan.bridge.model.errors import ExitCode, InvalidRequest
from overspan.bridge.model.names import one_line
from overspan.bridge.model.sizes import format_bytes
from overspan.bridge.model.storage import is_object_url

_EXAMPLES = """\
  span data put ./corpus s3://corpora/v3      send a folder; given again, it goes on
  span data get s3://runs/llama/step_900 .    fetch a folder into ./step_900
  span data rescue 42                         send what job 42 could not
"""
_NAME_LENGTH = 200


def run(call: Invocation) -> int:
    """Transfer; how far it is goes to a terminal."""
    chosen = _read(call)
    with call.client() as client:
        if chosen.verb == "rescue":
            return _rescue(call, client.storage.rescue(find_job(client, chosen.words[0])), chosen.json)
        if chosen.verb == "put":
            last = show_transfer(client.storage.put(*chosen.words))
        else:
            url, target = chosen.words
            last = show_transfer(client.storage.get(url, _place(url, target)))
    if chosen.json:
        write_json({"format": 1, "files": last.total_files, "size": last.total_size})
    else:
        say(call, f"{last.total_files} file{'s' * (last.total_files != 1)}, {format_bytes(last.total_size)}")
    return 0


def _read(call: Invocation) -> argparse.Namespace:
    parser = make_parser(call, "Move data between this machine and the object stores of the configuration.", _EXAMPLES)
    parser.add_argument("verb", choices=("put", "get", "rescue"), help="send, fetch, or send what a job has left")
    parser.add_argument("words", metavar="WORD", nargs="+", help="PATH URL, URL PATH, or JOB")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    chosen = parser.parse_args(call.words)
    wanted = {"put": (False, True), "get": (True, False), "rescue": (False,)}[chosen.verb]
    if tuple(map(is_object_url, chosen.words)) != wanted:
        words = {"put": "PATH URL", "get": "URL PATH", "rescue": "JOB"}[chosen.verb]
        raise InvalidRequest(f"`span data {chosen.verb}` takes {words}", remedy="a URL is written s3://BUCKET/FOLDER")
    return chosen


def _place(url: str, target: str) -> str:
    """Where a fetched object or folder goes: into a folder that is there, under its own name."""
    import os.path

    name = url.rstrip("/").rpartition("/")[2]
    return os.path.join(target, name) if os.path.isdir(target) else target


def show_transfer(steps: Iterable[TransferStep]) -> TransferStep:
    """Follow a transfer, with a line on a terminal; how far it was in the end."""
    last, shown = TransferStep(0, 0, 0, 0), sys.stderr.isatty()
    try:
        for last in steps:
            if shown:
                total = f" of {format_bytes(last.total_size)}" if last.total_size else ""
                sys.stderr.write(f"\r\x1b[K{last.files} files, {format_bytes(last.size)}{total}")
                sys.stderr.flush()
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
    return last


def _rescue(call: Invocation, answer: Mapping[str, Any], as_json: bool) -> int:
    newer = [one_line(str(name), _NAME_LENGTH) for name in answer.get("newer") or ()]
    if as_json:
        write_json({"format": 1, "files": answer["files"], "size": answer["size"], "newer": newer})
    else:
        files = int(answer["files"])
        say(call, f"{files} file{'s' * (files != 1)}, {format_bytes(int(answer['size']))} sent")
    for name in newer:
        say(call, f"{name}: the store has a newer version, and this one stays on the node")
    return ExitCode.FAILED if newer else ExitCode.OK
