"""`span scancel`: cancel or signal jobs, with Slurm's silence. `span scancel N TASK` ends one task of a group."""

from __future__ import annotations

import sys

from overspan.bridge.cli.call import Call
from overspan.bridge.cli.getopt import VALUE, Option, Words, help_text, parse
from overspan.bridge.cli.output import say, write, write_json
from overspan.bridge.cli.references import is_ref, parse_states, split_ref
from overspan.bridge.client import CancelOrder, Client, JobFilter
from overspan.bridge.model.errors import InvalidRequest

OPTIONS = (
    Option("account", "A", VALUE),
    Option("batch", "b", help="signal the batch script only"),
    Option("clusters", "M", VALUE, "jobs on these clusters"),
    Option("full", "f", help="signal the batch script and its steps"),
    Option("help", help="this text"),
    Option("hurry", "H"),
    Option("interactive", "i", help="ask for each job"),
    Option("json", help="the answer as one JSON document"),
    Option("jobname", "n", VALUE, "jobs of this name"),
    Option("me", help="own jobs"),
    Option("name", "", VALUE, "jobs of this name"),
    Option("partition", "p", VALUE, "jobs in this partition"),
    Option("quiet", "Q", help="no message for unknown ids"),
    Option("signal", "s", VALUE, "send this signal and nothing else"),
    Option("state", "t", VALUE, "jobs in this state: PENDING, RUNNING, SUSPENDED"),
    Option("user", "u", VALUE, "jobs of this user"),
    Option("verbose", "v", help="say what is done"),
    Option("version", "V"),
)
_USAGE = "usage: span scancel [OPTION...] ID...\n       span scancel [OPTION...] ID TASK"
_SILENT = ("not_found", "conflict")


def run(call: Call) -> int:
    """Cancel; 0 unless a signal did not arrive or something else than an unknown id went wrong."""
    words = parse(call.words, OPTIONS)
    if words.has("help"):
        write(help_text(_USAGE, OPTIONS))
        return 0
    if words.has("version"):
        from overspan.bridge.cli.commands.version import slurm_version

        write(slurm_version())
        return 0
    order = make_order(words)
    with call.client() as client:
        if words.has("interactive"):
            order = order._replace(refs=_ask(client, order), filter=JobFilter())
            if not order.refs:
                return 0
        if words.has("verbose"):
            for ref in order.refs:
                say(call, f"Signal {order.signal} to job {ref}" if order.signal else f"Terminating job {ref}")
        result = client.cancel(order)
    if call.json:
        errors = [{"ref": ref, "code": code, "message": message} for ref, code, message in result.errors]
        write_json({"format": 1, "done": list(result.done), "errors": errors})
    code = 0
    for ref, kind, message in result.errors:
        text = "Invalid job id specified" if kind == "not_found" else message
        loud = bool(order.signal) or kind not in _SILENT
        if loud:
            code = 1
        if loud or words.has("verbose"):
            print(f"scancel: error: Kill job error on job id {ref}: {text}", file=sys.stderr)
    return code


def make_order(words: Words) -> CancelOrder:
    """What the words ask for. Raises InvalidRequest in Slurm's words."""
    refs = tuple(word for word in words.rest if is_ref(word))
    others = [word for word in words.rest if not is_ref(word)]
    task = ""
    if len(others) == 1 and len(refs) == 1 and words.rest[0] == refs[0]:
        task = others[0]
    elif others:
        raise InvalidRequest(f"Invalid job id {others[0]}")
    if len(refs) == 1 and not task:
        job, task = split_ref(refs[0])
        refs = (job,)
    users = words.listed("user")
    if words.has("me"):
        from overspan.bridge.client.submission import user_name

        users = (user_name(),)
    chosen = JobFilter(
        states=parse_states(words.listed("state")),
        users=users,
        names=words.listed("name") + words.listed("jobname"),
        partitions=words.listed("partition"),
        clusters=words.listed("clusters"),
    )
    if not refs and chosen.empty:
        raise InvalidRequest("No job identification provided")
    signal = words.last("signal").upper().removeprefix("SIG")
    return CancelOrder(refs, task, chosen, signal, words.has("batch"), words.has("full"))


def _ask(client: Client, order: CancelOrder) -> tuple[str, ...]:
    """Ask for each job on the terminal; anything but y keeps it."""
    chosen = []
    for row in client.queue(order.filter._replace(ids=order.refs)).rows:
        question = f"Cancel job_id={row.id} name={row.name} partition={row.partition} [y/n]? "
        sys.stderr.write(question)
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            chosen.append(str(row.id))
    return tuple(chosen)
