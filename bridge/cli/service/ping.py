"""`span ping`: whether the daemon is well."""

from __future__ import annotations

from overspan import __version__
from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write, write_json
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.errors import ExitCode


def run(call: Invocation) -> int:
    """Print who answers; 1 when it reports problems."""
    parser = make_parser(call, "Ask the daemon how it is; it is started if there is none.")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    chosen = parser.parse_args(call.words)
    with call.client() as client:
        facts = client.ping()
    problems = facts.get("problems") or []
    if chosen.json:
        write_json(facts)
    else:
        write(
            f"span daemon {facts.get('version')} on {facts.get('host')}, process {facts.get('pid')},"
            f" since {format_timestamp(facts.get('since'))}, {facts.get('clusters')} clusters,"
            f" state in {facts.get('state_dir')}\n"
        )
        for problem in problems:
            write(f"problem: {problem}\n")
    if facts.get("version") not in (None, __version__):
        say(call, f"this command is version {__version__}; `span shutdown` lets the next one start its own daemon")
    return ExitCode.FAILED if problems else ExitCode.OK
