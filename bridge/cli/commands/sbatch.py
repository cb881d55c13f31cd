"""`span sbatch`: submit a batch script. The daemon reads the options; the client reads the script's text."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from overspan.bridge.cli.call import Call
from overspan.bridge.cli.output import say, write, write_json
from overspan.bridge.cli.sbatch_options import Scan, scan
from overspan.bridge.client import Accepted, Client, Outcome, Submission
from overspan.bridge.client.submission import decode_text, read_text
from overspan.bridge.model.errors import InvalidRequest

_HELP = """\
usage: span sbatch [OPTION...] SCRIPT [ARGUMENT...]
       span sbatch [OPTION...] --wrap COMMAND
       span sbatch [OPTION...] < SCRIPT

Options are Slurm's (sbatch(1)), on the command line or in #SBATCH lines; some:
  -M, --clusters=NAME      the cluster to run on
  -J, --job-name=NAME      -t, --time=LIMIT         -p, --partition=NAME
  -N, --nodes=N            -n, --ntasks=N           -c, --cpus-per-task=N
  -G, --gpus=N             --gres=gpu:N             --mem=SIZE
  -o, --output=FILE        -e, --error=FILE         -D, --chdir=DIRECTORY
  -d, --dependency=LIST    -b, --begin=TIME         --export=NAMES
  -W, --wait               exit with the job's code
  --parsable               print the id alone
  -Q, --quiet              print nothing
  --test-only              say when it would start, submit nothing
  -H, --hold               submit it held
  --json                   print the answer as one JSON document

Examples:
  span sbatch train.sh 0.001
  span sbatch --wrap 'python train.py' -G 1 -t 2:00:00
  span plan train.sh       print what would be sent
"""
_UNKNOWN_OPTION = 255


def run(call: Call) -> int:
    """Submit, and print Slurm's line."""
    try:
        found = scan(call.words)
    except InvalidRequest as error:
        print(f"sbatch: {error.message}", file=sys.stderr)
        print('Try "sbatch --help" for more information', file=sys.stderr)
        return _UNKNOWN_OPTION
    if found.has("help") or found.has("usage"):
        write(_HELP)
        return 0
    if found.has("version"):
        from overspan.bridge.cli.commands.version import slurm_version

        write(slurm_version())
        return 0
    submission = make_submission(call, found)
    with call.client() as client:
        accepted = client.send(submission)
        return _answer(call, client, found, accepted)


def make_submission(call: Call, found: Scan) -> Submission:
    """Read the script: the file named, else standard input; with --wrap the daemon has it in the words."""
    file = found.script
    if found.has("wrap"):
        text = ""
    elif file in ("", "-", "/dev/stdin"):
        if sys.stdin.isatty():
            print("sbatch: reading the script from the terminal, end with Ctrl-D", file=sys.stderr)
        text = decode_text(sys.stdin.buffer.read(), "stdin")
    else:
        text = read_text(file)
    return Submission(
        kind="script",
        text=text,
        file=file,
        argv=call.words,
        command=("sbatch", *call.words),
        test_only=found.has("test-only"),
    )


def submitted_line(accepted: Accepted, options: Mapping[str, object]) -> str:
    """What sbatch prints: the sentence, or the id alone with --parsable; the cluster only where -M was given."""
    cluster = accepted.cluster if options.get("clusters") else ""
    if options.get("quiet") and not options.get("parsable"):
        return ""
    if options.get("parsable"):
        return f"{accepted.id};{cluster}\n" if cluster else f"{accepted.id}\n"
    return f"Submitted batch job {accepted.id}" + (f" on cluster {cluster}\n" if cluster else "\n")


def exit_code(outcome: Outcome) -> int:
    """sbatch --wait's code: the job's, 1 where a signal or something else ended it."""
    if outcome.signal:
        return 1
    return outcome.exit_code or (0 if outcome.state == "COMPLETED" else 1)


def _answer(call: Call, client: Client, found: Scan, accepted: Accepted) -> int:
    options: dict[str, object] = {name: found.has(name) for name in ("wait", "parsable", "quiet", "clusters")}
    options["wait"] = options["wait"] or "SBATCH_WAIT" in os.environ
    options.update(accepted.options)
    if not options["quiet"]:
        for note in accepted.notes:
            say(call, note)
    if found.has("test-only") or options.get("test_only"):
        say(call, accepted.text)
        return 0
    if call.json:
        write_json({"format": 1, "id": accepted.id, "task_ids": accepted.task_ids, "cluster": accepted.cluster})
    else:
        write(submitted_line(accepted, options))
    if not options["wait"]:
        return 0
    sys.stdout.flush()
    return exit_code(client.wait(str(accepted.id)))
