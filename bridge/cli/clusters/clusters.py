"""`span clusters`: the configured clusters and how they are."""

from __future__ import annotations

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import write, write_json
from overspan.bridge.model.durations import format_timestamp


def run(call: Invocation) -> int:
    """Print the clusters; `*` marks the default."""
    parser = make_parser(call, "List the clusters; * marks the default.")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    chosen = parser.parse_args(call.words)
    with call.client() as client:
        clusters = client.clusters()
    if chosen.json:
        write_json({"format": 1, "clusters": clusters})
        return 0
    rows = [("NAME", "KIND", "STATE", "JOBS", "SINCE", "MESSAGE")]
    for cluster in clusters:
        name = f"{cluster.get('name')}{'*' if cluster.get('default') else ''}"
        since = format_timestamp(cluster.get("since"), "-")
        jobs = str(cluster.get("jobs", 0))
        words = (str(cluster.get("kind", "")), str(cluster.get("state", "")), jobs, since)
        rows.append((name, *words, str(cluster.get("message") or "")))
    widths = [max(len(row[place]) for row in rows) for place in range(6)]
    for row in rows:
        write("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() + "\n")
    return 0
