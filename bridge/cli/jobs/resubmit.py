"""`span resubmit`: submits a job again as a new one; of an array also the failed elements alone."""

from __future__ import annotations

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write, write_json
from overspan.bridge.cli.references import find_job

_NOTES = """\
  span resubmit 42             the same file or script, as a new job
  span resubmit 83 --failed    an array of the elements of 83 that failed
  span resubmit '83_[4,7]'     an array of these elements

What the job was submitted with is used again: text, environment, options, secrets.
Dependencies, begin time, deadline and hold are left out.
"""


def run(call: Invocation) -> int:
    """Submit again and print the new id."""
    parser = make_parser(call, "Submit a job again as a new one.", _NOTES)
    parser.add_argument("job", metavar="JOB", help="id, N_i, N_[a-b] or name")
    parser.add_argument("--failed", action="store_true", help="only what failed: of an array those elements")
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON document")
    parser.add_argument("--parsable", action="store_true", help="print the id alone")
    chosen = parser.parse_args(call.words)
    with call.client() as client:
        ref = find_job(client, chosen.job)
        accepted = client.resubmit(ref, chosen.failed)
    for note in accepted.notes:
        say(call, note)
    if chosen.json:
        write_json({"format": 1, "id": accepted.id, "name": accepted.name, "cluster": accepted.cluster})
    elif chosen.parsable:
        write(f"{accepted.id}\n")
    else:
        write(f"Submitted job {accepted.id} ({accepted.name}) to {accepted.cluster}\n")
    return 0
