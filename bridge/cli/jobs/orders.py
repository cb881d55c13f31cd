"""`span hold`, `release`, `requeue` and `restart`: one order to each job that is named."""

from __future__ import annotations

import sys
from collections.abc import Callable

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation, outlive_order
from overspan.bridge.cli.output import report, say
from overspan.bridge.cli.references import find_job, split_ref
from overspan.bridge.client import Client
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.states import TERMINAL

_ABOUT = {
    "hold": "Keep pending jobs from starting, until `span release`.",
    "release": "End a hold.",
    "requeue": "End what runs of a job and put it back into the queue.",
    "restart": "Start a task again in place, on the nodes it has; without a task all of them.",
}


def run(call: Invocation) -> int:
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
                ref = find_job(client, word)
                state = _find_state(client, ref) if call.verb == "requeue" else ""
                give_order(client, ref, call.verb, vars(chosen))
                _tell(call, ref, state, vars(chosen))
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


def _find_state(client: Client, ref: str) -> str:
    """The state of a job before the order; the order itself tells of a job that there is not."""
    try:
        return client.wait(ref, 0).state
    except OverspanError:
        return ""


def _tell(call: Invocation, ref: str, state: str, chosen: dict[str, object]) -> None:
    """Say on a terminal what was ordered; that a job which has done its work runs again is said everywhere."""
    if state == "COMPLETED" or sys.stderr.isatty():
        say(call, word_order(call.verb, ref, state, chosen))


def word_order(verb: str, ref: str, state: str, chosen: dict[str, object]) -> str:
    """What an order that was accepted brings about."""
    if verb == "requeue":
        held = ", held until `span release`" if chosen.get("hold") else ""
        if state in {each.value for each in TERMINAL}:
            return f"job {ref} was {state}: it goes back into the queue and runs again{held}"
        return f"job {ref} is ended and goes back into the queue{held}"
    if verb == "restart":
        job, task = split_ref(ref)
        task = str(chosen.get("task") or task)
        return f"task {task} of job {job} starts again in place" if task else f"job {job} starts again in place"
    return f"job {ref} is held until `span release`" if verb == "hold" else f"job {ref} is released"
