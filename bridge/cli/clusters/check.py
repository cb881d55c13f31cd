"""`span check`: what works on a cluster, or between two, and what to do about the rest."""

from __future__ import annotations

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.clusters.finding_table import print_findings
from overspan.bridge.cli.clusters.reach import check_reach
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import write_json
from overspan.bridge.model.errors import ExitCode, InvalidRequest

_ACROSS = ("ports", "image", "timeout")
_EXAMPLES = """\
  span check local
  span check --across leo kube --ports 8000,29500
"""


def run(call: Invocation) -> int:
    """Print the findings; 1 when something does not work."""
    parser = make_parser(call, "Try what jobs need on a cluster, or whether two clusters reach each other.", _EXAMPLES)
    parser.add_argument("cluster", nargs="?", metavar="CLUSTER", help="name of a cluster; `span clusters` lists them")
    parser.add_argument("--across", nargs=2, metavar=("A", "B"), help="run a task on each, which connects to the other")
    parser.add_argument("--ports", metavar="PORTS", help="with --across: ports to try, as 8000,8010-8012 (29500)")
    parser.add_argument("--image", metavar="IMAGE", help="with --across: an image with python3 for pods")
    parser.add_argument("--timeout", type=int, metavar="SECONDS", help="with --across: how long a trial may take (300)")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    chosen = parser.parse_args(call.words)
    if (chosen.cluster is None) == (chosen.across is None):
        raise InvalidRequest(
            "one CLUSTER is checked, or the ways between two",
            remedy="`span check leo`, or `span check --across leo kube`",
        )
    if chosen.across:
        return check_reach(call, chosen)
    given = [name for name in _ACROSS if getattr(chosen, name) is not None]
    if given:
        raise InvalidRequest(f"--{given[0]} is for --across", remedy="span check --across A B")
    with call.client() as client:
        findings = client.check(chosen.cluster)
    good = all(finding.get("works") for finding in findings)
    if chosen.json:
        write_json({"format": 1, "cluster": chosen.cluster, "findings": findings})
    else:
        print_findings(call, findings)
    return ExitCode.OK if good else ExitCode.FAILED
