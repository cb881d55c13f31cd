"""`span data put|get|rescue|ls|rm`: files and folders to an object store and from it, and what jobs could not send."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write_json, write_table
from overspan.bridge.cli.references import find_job
from overspan.bridge.client.storage import TransferStep
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.errors import ExitCode, InvalidRequest
from overspan.bridge.model.names import one_line
from overspan.bridge.model.sizes import format_bytes
from overspan.bridge.model.storage import is_object_url

_EXAMPLES = """\
  span data put ./corpus s3://corpora/v3      send a folder; given again, it goes on
  span data get s3://runs/llama/step_900 .    fetch a folder into ./step_900
  span data rescue 42                         send what job 42 could not
  span data ls -M lab                         what ended jobs there could not send
  span data rm 42                             remove what job 42 could not send
"""
_USES = {
    "put": ("PATH URL", (False, True)),
    "get": ("URL PATH", (True, False)),
    "rescue": ("JOB", (False,)),
    "ls": ("no words, and -M CLUSTER", ()),
    "rm": ("JOB", (False,)),
}
"""What each verb takes, and which of it are URLs."""
_HEAD = ("CLUSTER", "JOB", "TASK", "SIZE", "FILES", "LAST WRITE", "STATE", "UNTIL", "URL")
_NAME_LENGTH = 200


def run(call: Invocation) -> int:
    """Transfer; how far it is goes to a terminal."""
    chosen = _read(call)
    with call.client() as client:
        if chosen.verb == "rescue":
            return _rescue(call, client.storage.rescue(find_job(client, chosen.words[0])), chosen.json)
        if chosen.verb == "ls":
            return _list(call, client.storage.list_unsent(chosen.cluster), chosen.json)
        if chosen.verb == "rm":
            return _remove(call, client.storage.remove_unsent(find_job(client, chosen.words[0])), chosen.json)
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
    verbs = "send, fetch, send what a job has left, or list and remove what jobs have left"
    parser.add_argument("verb", choices=tuple(_USES), help=verbs)
    parser.add_argument("words", metavar="WORD", nargs="*", help="PATH URL, URL PATH, or JOB")
    parser.add_argument("-M", "--cluster", default="", metavar="CLUSTER", help="ls: the cluster; all without it")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    chosen = parser.parse_intermixed_args(call.words)
    takes, wanted = _USES[chosen.verb]
    if tuple(map(is_object_url, chosen.words)) != wanted:
        raise InvalidRequest(f"`span data {chosen.verb}` takes {takes}", remedy="a URL is written s3://BUCKET/FOLDER")
    if chosen.cluster and chosen.verb != "ls":
        raise InvalidRequest("-M goes with `span data ls`", remedy="leave it out: a job is where it ran")
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


def _list(call: Invocation, answer: Mapping[str, Any], as_json: bool) -> int:
    if as_json:
        write_json({"format": 1, "unsent": answer["unsent"]})
    else:
        write_table([_HEAD, *map(_cells, answer["unsent"])])
    for note in answer["notes"]:
        say(call, note)
    return ExitCode.FAILED if answer["notes"] else ExitCode.OK


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    written, until = format_timestamp(float(row["written_at"])), format_timestamp(float(row["until"]))
    names = (str(row["cluster"]), str(row["job"]), str(row["task"]) or "-")
    url = one_line(str(row["url"]), _NAME_LENGTH) or "-"
    return (*names, format_bytes(int(row["size"])), str(row["files"]), written, str(row["state"]), until, url)


def _remove(call: Invocation, answer: Mapping[str, Any], as_json: bool) -> int:
    if as_json:
        write_json({"format": 1, **{key: answer[key] for key in ("job", "cluster", "files", "size")}})
    else:
        files = int(answer["files"])
        size = format_bytes(int(answer["size"]))
        say(call, f"{files} file{'s' * (files != 1)}, {size} removed from {answer['cluster']}")
    return ExitCode.OK
