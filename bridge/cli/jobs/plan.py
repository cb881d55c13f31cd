"""`span plan`: the exact script, manifests or processes of a job file or batch script; nothing is changed."""

from __future__ import annotations

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.jobs.job_file_options import add_file_options, hide_secrets, read_changes
from overspan.bridge.cli.jobs.submit import read_job
from overspan.bridge.cli.output import say, write, write_json
from overspan.bridge.client import Submission
from overspan.bridge.model.errors import InvalidRequest


def run(call: Invocation) -> int:
    """Print the plan."""
    about = "Print what a submission would send to the cluster, and change nothing."
    parser = make_parser(call, about, "  span plan rlhf.yaml -M local\n  span plan train.sh\n")
    parser.add_argument("file", metavar="FILE", help="job file or batch script; - is standard input")
    parser.add_argument("-M", "--cluster", default="", help="plan for this cluster")
    parser.add_argument("-p", "--pool", default="", metavar="NAME", help="plan for a worker of this pool")
    add_file_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    chosen = parser.parse_args(call.words)
    text = read_job(chosen.file)
    script = text.startswith("#!")
    file = "stdin" if chosen.file == "-" else chosen.file
    changes = read_changes(call, chosen)
    if script and (any(changes) or chosen.name):
        raise InvalidRequest(
            "--set, --env and their like are for job files", remedy="write options of sbatch for a script"
        )
    submission = Submission(
        kind="script" if script else "job_file",
        text=text,
        file=file,
        argv=(file,) if script else (),
        command=("span", "plan", *hide_secrets(call.words)),
        cluster=chosen.pool if script and chosen.pool else chosen.cluster,
        name=chosen.name,
        overrides=[*changes.overrides, *([f"pool={chosen.pool}"] if chosen.pool and not script else [])],
        env=changes.env,
        secrets=changes.secrets,
    )
    with call.client() as client:
        plan, notes = client.plan(submission)
    if chosen.json:
        write_json({"format": 1, "text": plan, "notes": list(notes)})
        return 0
    for note in notes:
        say(call, note)
    write(plan if plan.endswith("\n") else plan + "\n")
    return 0
