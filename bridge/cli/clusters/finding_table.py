"""The table of what was tried: a mark, what it was, what was seen, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import paint, use_colour, write


def print_findings(call: Invocation, findings: Sequence[Mapping[str, Any]]) -> None:
    """Print findings, each with `what`, `works`, `seen` and `remedy`."""
    colour = use_colour(sys.stdout, call.environment)
    width = max([len(str(finding.get("what", ""))) for finding in findings], default=0)
    for finding in findings:
        mark = paint("ok  ", "green", colour) if finding.get("works") else paint("no  ", "red", colour)
        write(f"{mark} {finding.get('what', '')!s:<{width}}  {finding.get('seen') or ''}".rstrip() + "\n")
        if finding.get("remedy"):
            write(f"     {finding['remedy']}\n")
