"""`span hold`, `release`, `requeue` and `restart`: one order to each job that is named."""

from __future__ import annotations

from collections.abc import Callable

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.call import Call
from overspan.bridge.cli.output import report
from overspan.bridge.cli.own_job import outlive_order
from overspan.bridge.cli.references import find_job, split_ref
from overspan.bridge.client import Client
from overspan.bridge.model.errors import OverspanError

_ABOUT = {
    "hold": "Keep pending jobs from starting, until `span release`.",
    "release": "End a hold.",
    "requeue": "End what runs of a job and put it back into the queue.",
    "restart": "Start a task again in place, on the nodes it has; without a task all of them.",
}


def run(call: Call) -> int:
    """Give the order; the exit code is the last failure's."""
    parser = make_parser(call, _ABOUT[call.verb], f"  span {call.verb} 42\n")
    if call.verb == "restart":
        parser.add_argument("jobs", metavar="JOB", nargs=1, help="id, N+k, N.TASK or name")
        parser.add_argument("task", metavar="TASK", nargs="?", default="", help="name of the task")
    else:
        parser.add_argument("jobs", metavar="JOB", nargs="+", help="id or name")
    if call.verb == "requeue":
        parser.add_argument("--hold", action="store_true", help="hold it afterwards")
    chosen = parser.parse_args(call.words)
    if call.verb in ("requeue", "restart"):
        outlive_order(call.environment)
    code = 0
    with call.client() as client:
        for word in chosen.jobs:
            try:
                give_order(client, find_job(client, word), call.verb, vars(chosen))
            except OverspanError as error:
                if error.transient:
                    raise
                report(call, error)
                code = int(error.exit_code)
    return code


def give_order(client: Client, ref: str, verb: str, chosen: dict[str, object]) -> None:
    """Send one order to one job."""
    if verb == "requeue":
        client.requeue(ref, bool(chosen.get("hold")))
    elif verb == "restart":
        job, task = split_ref(ref)
        client.restart(job, str(chosen.get("task") or task))
    else:
        orders: dict[str, Callable[[str], None]] = {"hold": client.hold, "release": client.release}
        orders[verb](ref)
