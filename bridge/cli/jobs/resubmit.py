"""`span resubmit`: submits a job again as a new one, with changes; of an array also the failed elements alone."""

from __future__ import annotations

import argparse

from overspan.bridge.cli.arguments import Parser, make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write, write_json
from overspan.bridge.cli.references import find_job
from overspan.bridge.model.options.resubmit import RESUBMIT_OPTIONS, OptionOwner
from overspan.bridge.model.options.sbatch import BY_NAME

_NOTES = """\
  span resubmit 42                                the same file or script, as a new job
  span resubmit 42 --time 2h --mem 32G            with more of both
  span resubmit rlhf --task trainer --mem 64G     one task of a group with more memory
  span resubmit 83 --failed --time 2h             an array of the elements of 83 that failed
  span resubmit '83_[4,7]'                        an array of these elements

What the job was submitted with is used again: text, environment, options, secrets, and
what `scontrol update` has changed of its name, comment, time limit and nice since.
Dependencies, begin time, deadline and hold are left out, unless they are given anew.
"""


def run(call: Invocation) -> int:
    """Submit again and print the new id."""
    chosen = _make_parser(call).parse_args(call.words)
    with call.client() as client:
        ref = find_job(client, chosen.job)
        accepted = client.resubmit(ref, chosen.failed, _read_changes(chosen))
    for note in accepted.notes:
        say(call, note)
    if chosen.json:
        write_json({"format": 1, "id": accepted.id, "name": accepted.name, "cluster": accepted.cluster})
    elif chosen.parsable:
        write(f"{accepted.id}\n")
    else:
        write(f"Submitted job {accepted.id} ({accepted.name}) to {accepted.cluster}\n")
    return 0


def _make_parser(call: Invocation) -> Parser:
    parser = make_parser(call, "Submit a job again as a new one, with changes.", _NOTES)
    parser.add_argument("job", metavar="JOB", help="id, N_i, N_[a-b] or name")
    parser.add_argument("--failed", action="store_true", help="only what failed: of an array those elements")
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON document")
    parser.add_argument("--parsable", action="store_true", help="print the id alone")
    changes = parser.add_argument_group("changes, as options of sbatch")
    changes.add_argument("--task", default="", metavar="NAME", help="of several, the task that the sizes are of")
    for option in RESUBMIT_OPTIONS:
        letter = BY_NAME[option.name].letter
        words = [*([f"-{letter}"] if letter else []), f"--{option.name}", *([f"--{option.alias}"] * bool(option.alias))]
        name = f"change {option.name}"
        if option.value:
            changes.add_argument(*words, dest=name, metavar=option.value, help=option.help)
        else:
            changes.add_argument(*words, dest=name, action="store_const", const="", help=option.help)
    return parser


def _read_changes(chosen: argparse.Namespace) -> dict[str, str]:
    """The options that were given; those that a task may have are of the one that is named."""
    changes = {}
    for option in RESUBMIT_OPTIONS:
        value = getattr(chosen, f"change {option.name}")
        if value is not None:
            owned = chosen.task and option.owner is not OptionOwner.JOB
            changes[f"{chosen.task}.{option.name}" if owned else option.name] = value
    return changes
