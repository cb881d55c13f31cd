"""`span submit`: submit a job file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.jobs.exit_status import exit_code, explain_end
from overspan.bridge.cli.jobs.job_file_options import add_file_options, hide_secrets, read_changes
from overspan.bridge.cli.output import say, write, write_json
from overspan.bridge.client import Accepted, Submission
from overspan.bridge.client.submission import decode_text, read_text
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.errors import InvalidRequest

if TYPE_CHECKING:
    from overspan.bridge.client.storage import TransferStep

_EXAMPLES = """\
  span submit rlhf.yaml -M gpu --set trainer.num_nodes=2 --env SEED=7
  span submit --wait eval.yaml && echo good
"""
GROUP_VARIABLE = "OVERSPAN_JOB_GROUP"
NO_GROUP = "none"
_KEYS = ("id", "task_ids", "name", "cluster", "notes")


def run(call: Invocation) -> int:
    """Submit a job file and print its id; a file with `cron` makes a schedule."""
    chosen = _parse(call)
    submission = _make_submission(call, chosen)
    group = NO_GROUP if chosen.no_job_group else chosen.job_group
    if group:
        # The daemon reads it where it reads the rest of the environment.
        call = call._replace(environment={**call.environment, GROUP_VARIABLE: group})
    with call.client() as client:
        accepted = client.send(submission, _show_transfer)
        for note in accepted.notes:
            say(call, note)
        _tell(call, accepted, chosen)
        if accepted.schedule and chosen.wait:
            say(call, "--wait has no effect: a schedule has no end")
        if accepted.schedule or not chosen.wait:
            return 0
        sys.stdout.flush()
        outcome = client.wait(str(accepted.id))
        if outcome.state != "COMPLETED" and not chosen.json:
            say(call, explain_end(client, str(accepted.id), outcome))
        return exit_code(outcome)


def _parse(call: Invocation) -> argparse.Namespace:
    parser = make_parser(call, "Submit a job file.", _EXAMPLES)
    parser.add_argument("file", metavar="FILE", help="job file (YAML); - is standard input")
    parser.add_argument("-M", "--cluster", default="", help="cluster to run on; of several the first that takes it")
    parser.add_argument("-p", "--pool", default="", metavar="NAME", help="run on a worker of this pool")
    add_file_options(parser)
    parser.add_argument("--hold", action="store_true", help="do not start it before `span release`")
    parser.add_argument("--job-group", default="", metavar="ID", help="join a group; the default inside one")
    parser.add_argument("--no-job-group", action="store_true", help="join no group")
    parser.add_argument("--wait", action="store_true", help="wait for its end, exit with its code")
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON document")
    parser.add_argument("--parsable", action="store_true", help="print the id alone")
    return parser.parse_args(call.words)


def _make_submission(call: Invocation, chosen: argparse.Namespace) -> Submission:
    text = read_job(chosen.file)
    if text.startswith("#!"):
        raise InvalidRequest(f"{chosen.file} is a batch script, not a job file", remedy=f"span sbatch {chosen.file}")
    changes = read_changes(call, chosen)
    return Submission(
        kind="job_file",
        text=text,
        file="stdin" if chosen.file == "-" else chosen.file,
        command=("span", "submit", *hide_secrets(call.words)),
        cluster=chosen.cluster,
        name=chosen.name,
        hold=chosen.hold,
        overrides=[*changes.overrides, *([f"pool={chosen.pool}"] if chosen.pool else [])],
        env=changes.env,
        secrets=changes.secrets,
    )


def _show_transfer(steps: Iterable[TransferStep]) -> None:
    # Not at the top: few submissions have files sent.
    from overspan.bridge.cli.data.transfers import show_transfer

    show_transfer(steps)


def _tell(call: Invocation, accepted: Accepted, chosen: argparse.Namespace) -> None:
    if chosen.json:
        fields = accepted._asdict()
        keys = ("schedule", "name", "cluster", "notes") if accepted.schedule else _KEYS
        write_json({"format": 1, **{key: fields[key] for key in keys}})
    elif accepted.schedule:
        write(f"c{accepted.schedule}\n" if chosen.parsable else f"Submitted schedule {accepted.schedule}\n")
        say(call, f"c{accepted.schedule} ({accepted.name}) runs next at {format_timestamp(accepted.next_due)}")
    elif chosen.parsable:
        write(f"{accepted.id}\n")
    else:
        write(f"Submitted job {accepted.id} ({accepted.name}) to {accepted.cluster}\n")


def read_job(file: str) -> str:
    """Read a job file, or standard input for `-`."""
    return decode_text(sys.stdin.buffer.read(), "stdin") if file == "-" else read_text(file)
