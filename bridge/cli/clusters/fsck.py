"""`span fsck`: compares what is on a cluster with the known jobs, and lists orphans; `--release` removes them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from overspan.bridge.cli.arguments import Parser, make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write, write_json
from overspan.bridge.model.errors import ExitCode, InvalidRequest

_EXAMPLES = """\
  span fsck lab                       what is there, and whose
  span fsck lab --release             remove what ended jobs of this daemon have left
  span fsck lab --release --installation 3f2a90c1d7e4
                                      all of a daemon that is no more
"""
_WORDS = {"live": "live", "left": "left over", "other": "not known here"}


def run(call: Invocation) -> int:
    """Print what is there; 1 while something of this daemon's is left over, a job has nothing there, or is damaged."""
    chosen = _read(call)
    with call.client() as client:
        answer = client.fsck(
            chosen.cluster,
            release=chosen.release,
            installations=chosen.installation,
            all_installations=chosen.all_installations,
        )
    left = [one for one in answer["launches"] if one["standing"] == "left" and not one["removed"]]
    damaged = [str(text) for text in answer.get("damaged") or ()]
    code = ExitCode.FAILED if left or answer["missing"] or damaged else ExitCode.OK
    if chosen.json:
        write_json({key: value for key, value in answer.items() if key != "error"})
        return code
    for text in damaged:
        say(call, f"{text}; it is left as it is, and so is what it has on the cluster")
    if not answer["looked"]:
        say(call, f"{chosen.cluster}: launches leave nothing there that could be listed")
        return code
    _write_table(answer["launches"])
    for one in answer["launches"]:
        for text in one["stuck"]:
            say(call, f"job {one['job']}: {text}")
    for job in answer["missing"]:
        say(call, f"job {job}: the cluster has nothing of it; it is looked at again, and submitted anew if it may be")
    _advise(call, chosen, answer)
    return code


def _read(call: Invocation) -> argparse.Namespace:
    parser: Parser = make_parser(
        call, "Compare what launches have on a cluster with the jobs that are known.", _EXAMPLES
    )
    parser.add_argument("cluster", metavar="CLUSTER", help="name of a cluster; `span clusters` lists them")
    parser.add_argument("--release", action="store_true", help="remove what no job of this daemon wants any more")
    parser.add_argument(
        "--installation", action="append", default=[], metavar="ID", help="with --release: all of another daemon too"
    )
    parser.add_argument(
        "--all-installations", action="store_true", help="with --release: all of every other daemon too"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")
    chosen = parser.parse_args(call.words)
    if (chosen.installation or chosen.all_installations) and not chosen.release:
        raise InvalidRequest(
            "--installation and --all-installations say what is removed", remedy="add --release, or leave them out"
        )
    return chosen


def _write_table(launches: list[Mapping[str, Any]]) -> None:
    rows = [("JOB", "LAUNCH", "INSTALLATION", "STANDING", "RUNNING", "OBJECTS")]
    for one in launches:
        standing = "removed" if one["removed"] else _WORDS.get(str(one["standing"]), str(one["standing"]))
        objects = ", ".join(one["objects"])
        rows.append(
            (str(one["job"]), str(one["launch"]), str(one["installation"]), standing, str(one["running"]), objects)
        )
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        write("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() + "\n")


def _advise(call: Invocation, chosen: argparse.Namespace, answer: Mapping[str, Any]) -> None:
    """What can be done about what is still there."""
    kept = [one for one in answer["launches"] if not one["removed"]]
    if any(one["standing"] == "left" for one in kept):
        say(call, f"`span fsck {chosen.cluster} --release` removes what is left over")
    others = sorted({str(one["installation"]) for one in kept if one["standing"] == "other"})
    if others:
        say(call, f"this daemon's installation is {answer['installation']}; only their own daemons know of the others")
        say(call, "if one is no more, --release --installation ID removes all of it, its running pods too")
