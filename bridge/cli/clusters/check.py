"""`span check`: what works on a cluster, and what to do about the rest."""

from __future__ import annotations

import sys

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import paint, use_colour, write, write_json
from overspan.bridge.model.errors import ExitCode


def run(call: Invocation) -> int:
    """Print the findings; 1 when something does not work."""
    parser = make_parser(call, "Try what jobs need on a cluster.", "  span check local\n")
    parser.add_argument("cluster", metavar="CLUSTER", help="name of a cluster; `span clusters` lists them")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    chosen = parser.parse_args(call.words)
    with call.client() as client:
        findings = client.check(chosen.cluster)
    good = all(finding.get("works") for finding in findings)
    if chosen.json:
        write_json({"format": 1, "cluster": chosen.cluster, "findings": findings})
        return ExitCode.OK if good else ExitCode.FAILED
    colour = use_colour(sys.stdout, call.environment)
    width = max([len(str(finding.get("what", ""))) for finding in findings], default=0)
    for finding in findings:
        works = bool(finding.get("works"))
        mark = paint("ok  ", "green", colour) if works else paint("no  ", "red", colour)
        write(f"{mark} {finding.get('what', '')!s:<{width}}  {finding.get('seen') or ''}".rstrip() + "\n")
        if finding.get("remedy"):
            write(f"     {finding['remedy']}\n")
    return ExitCode.OK if good else ExitCode.FAILED
