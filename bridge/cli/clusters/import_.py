"""`span import`: watches jobs that were submitted to a cluster directly."""

from __future__ import annotations

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import report, say, write, write_json
from overspan.bridge.model.errors import ExitCode, InvalidRequest, OverspanError


def run(call: Invocation) -> int:
    """Print the id of each job that is watched now; the exit code is that of the first that cannot be."""
    parser = make_parser(
        call, "Watch jobs that a cluster has; they are never submitted again.", "  span import leo:81234 leo:81250_3\n"
    )
    parser.add_argument("jobs", metavar="CLUSTER:ID", nargs="+", help="a cluster and its own id of a job or element")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    chosen = parser.parse_args(call.words)
    taken, failures = [], []
    with call.client() as client:
        for text in chosen.jobs:
            try:
                cluster, native = _split(text)
                taken.append(client.import_job(cluster, native))
                if not chosen.json:
                    write(f"{taken[-1]['id']}\n")
                    say(call, f"{text} is job {taken[-1]['id']}, {taken[-1]['state']}")
            except OverspanError as error:
                failures.append(error)
                report(call, error)
    if chosen.json:
        write_json({"format": 1, "jobs": taken})
    return int(failures[0].exit_code) if failures else ExitCode.OK


def _split(text: str) -> tuple[str, str]:
    cluster, colon, native = text.partition(":")
    if not cluster or not colon or not native:
        raise InvalidRequest(f"{text!r} names no job of a cluster", remedy="write CLUSTER:ID, such as leo:81234")
    return cluster, native
