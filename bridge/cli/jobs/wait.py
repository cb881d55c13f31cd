"""`span wait`: wait for jobs; the exit code is the job's."""

from __future__ import annotations

import sys
import time

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.jobs.exit_status import exit_code, explain_end
from overspan.bridge.cli.output import say, write_json
from overspan.bridge.cli.references import find_job
from overspan.bridge.client import Outcome
from overspan.bridge.model.errors import ExitCode

_NOTES = """\
  span wait 42 43
  span wait rlhf --timeout 3600

Exit code: 0 when every job COMPLETED, else the highest of the jobs' own: the exit
code, 128 + the signal's number, or 1 (it could not start, or was cancelled before
it did). 124 when the time is over, 4 for an unknown job. Why a job did not complete is
told on stderr.
"""


def run(call: Invocation) -> int:
    """Wait for every job named, in turn; the end of the last one ends the wait."""
    parser = make_parser(call, "Wait for the end of jobs.", _NOTES)
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="id, N+k, N.TASK or name")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="give up after so long")
    parser.add_argument("--json", action="store_true", help="print how the jobs ended as one JSON document")
    chosen = parser.parse_args(call.words)
    end = None if chosen.timeout is None else time.monotonic() + chosen.timeout
    results: dict[str, Outcome] = {}
    with call.client() as client:
        refs = [find_job(client, word) for word in chosen.jobs]
        for ref in refs:
            outcome = client.wait(ref, None if end is None else max(0.0, end - time.monotonic()))
            results[ref] = outcome
            if outcome.over and outcome.state != "COMPLETED" and not chosen.json:
                say(call, explain_end(client, ref, outcome))
    if chosen.json:
        write_json({"format": 1, "jobs": [{"ref": ref, **outcome._asdict()} for ref, outcome in results.items()]})
    late = [f"{ref} ({outcome.state})" for ref, outcome in results.items() if not outcome.over]
    if late:
        sys.stdout.flush()
        say(call, f"still not over after {chosen.timeout:g} s: {', '.join(late)}")
        return ExitCode.TIMED_OUT
    return max(map(exit_code, results.values()))
