"""`span timeline`: every change of state of a job, oldest first."""

from __future__ import annotations

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import rfc3339, write, write_json
from overspan.bridge.cli.references import find_job, split_ref
from overspan.bridge.client import Transition
from overspan.bridge.model.durations import format_timestamp


def run(call: Invocation) -> int:
    """Print the timeline."""
    parser = make_parser(call, "Print every change of state of a job.", "  span timeline 42\n")
    parser.add_argument("job", metavar="JOB", help="id or name")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    chosen = parser.parse_args(call.words)
    with call.client() as client:
        ref, task = split_ref(find_job(client, chosen.job))
        rows = [row for row in client.timeline(ref) if task in ("", row.task)]
    if chosen.json:
        write_json({"format": 1, "rows": [{**row._asdict(), "at": rfc3339(row.at)} for row in rows]})
    else:
        width = max((len(row.task) for row in rows), default=0)
        write("".join(transition_line(row, width) for row in rows))
    return 0


def transition_line(row: Transition, width: int = 0) -> str:
    """One line: time with milliseconds, task in a column of some width, change, reason and text."""
    milli = int(row.at * 1000) % 1000
    change = f"{row.start or '-'} -> {row.end}" if row.end else ""
    reason = f"({row.reason})" if row.reason not in ("", "None") else ""
    words = filter(None, (change, reason, row.text))
    return f"{format_timestamp(row.at)}.{milli:03d}  {row.task or 'job':<{max(width, 12)}}  {' '.join(words)}\n"
