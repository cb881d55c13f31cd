"""`span scancel`: cancel or signal jobs, with Slurm's silence. `span scancel N TASK` ends one task of a group."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write, write_json
from overspan.bridge.cli.references import find_job, find_user, is_ref, parse_states, split_ref, split_refs
from overspan.bridge.cli.usage import check_clusters, complain, read_words
from overspan.bridge.client import CancelOrder, Client, JobFilter
from overspan.bridge.model.errors import InvalidRequest, NotFound
from overspan.bridge.model.options.getopt import VALUE, Option, Words
from overspan.bridge.model.slurm.words import ALREADY_ENDED, INVALID_JOB

if TYPE_CHECKING:
    from overspan.bridge.client.messages import FailedOrder

OPTIONS = (
    Option("account", "A", VALUE, "jobs of this account"),
    Option("batch", "b", help="signal the batch script only"),
    Option("clusters", "M", VALUE, "jobs on these clusters"),
    Option("cron", "c"),
    Option("ctld"),
    Option("full", "f", help="signal the batch script and its steps"),
    Option("help", help="this text"),
    Option("hurry", "H"),
    Option("interactive", "i", help="ask for each job"),
    Option("jobname", "n", VALUE, "jobs of this name"),
    Option("json", help="the answer as one JSON document"),
    Option("me", help="own jobs"),
    Option("name", "", VALUE, "jobs of this name"),
    Option("no-flush", help="leave data where it is that is not in its object store yet"),
    Option("nodelist", "w", VALUE, "jobs that run on these nodes"),
    Option("partition", "p", VALUE, "jobs in this partition"),
    Option("pool", "", VALUE, "jobs in this pool", own=True),
    Option("qos", "q", VALUE, "jobs of this quality of service"),
    Option("quiet", "Q", help="no message for unknown ids"),
    Option("reservation", "R", VALUE),
    Option("sibling", "", VALUE),
    Option("signal", "s", VALUE, "send this signal and nothing else"),
    Option("state", "t", VALUE, "jobs in this state: PENDING, RUNNING, SUSPENDED"),
    Option("usage"),
    Option("user", "u", VALUE, "jobs of this user"),
    Option("verbose", "v", help="say what is done"),
    Option("version", "V"),
    Option("wckey", "", VALUE),
)
_USAGE = "usage: span scancel [OPTION...] ID...\n       span scancel [OPTION...] ID|NAME TASK"
_SILENT = ("not_found", "conflict")


def run(call: Invocation) -> int:
    """Cancel; 0 unless a signal did not arrive or something else than an unknown id went wrong."""
    words = read_words(call, OPTIONS, _USAGE)
    name = words.last("signal")
    if name and not _number(name):
        return complain(f"Unknown job signal: {name}")
    try:
        parse_states(words.listed("state"))
    except InvalidRequest as error:
        line = error.message.splitlines()[0]
        return complain(f"{line}\nValid job states are PENDING, RUNNING, and SUSPENDED")
    if words.has("reservation") or words.has("wckey"):
        # No job has one here, so none is chosen.
        return 0
    order = make_order(words, call.environment)
    with call.client() as client:
        check_clusters(client, order.filter.clusters)
        order = _resolve_name(client, order)
        if words.has("interactive"):
            order = order._replace(refs=_ask(client, order), filter=JobFilter())
            if not order.refs:
                return 0
        if words.has("verbose"):
            for ref in order.refs:
                say(call, f"Signal {_number(name)} to job {ref}" if name else f"Terminating job {ref}")
        steps, order = _part_steps(order)
        failed = sum(_end_step(call, client, words, step) for step in steps)
        if steps and not order.refs and order.filter.empty:
            return min(1, failed)
        result = client.cancel(order)
    if call.json:
        errors = [failed._asdict() for failed in result.errors]
        write_json({"format": 1, "done": list(result.done), "errors": errors})
    if result.note:
        sys.stderr.write(f"scancel: warning: {result.note}\n")
    return max(min(1, failed), _report(words, order, result.errors))


def _resolve_name(client: Client, order: CancelOrder) -> CancelOrder:
    """Give the id for the name in `NAME TASK`, as the other verbs that take a task do."""
    if not order.task or is_ref(order.refs[0]):
        return order
    try:
        return order._replace(refs=(find_job(client, order.refs[0]),))
    except NotFound:
        raise InvalidRequest(f"Invalid job id {order.refs[0]}") from None


def _part_steps(order: CancelOrder) -> tuple[list[str], CancelOrder]:
    """The steps `N.0` among the ids, and the order without them."""
    refs = tuple(f"{ref}.{order.task}" for ref in order.refs) if order.task.isdigit() else order.refs
    steps = [ref for ref in refs if split_ref(ref)[1].isdigit()]
    if not steps:
        return [], order
    return steps, order._replace(refs=tuple(ref for ref in refs if ref not in steps), task="")


def _end_step(call: Invocation, client: Client, words: Words, ref: str) -> int:
    """End or signal a single step; gives 1 where no such step runs."""
    from overspan.bridge.cli.slurm.allocations import signal_step

    job, step = split_ref(ref)
    live = client.queue(JobFilter(ids=(job,))).rows
    number = _number(words.last("signal") or "KILL")
    if live and signal_step(str(live[0].id), step, number, call.environment):
        return 0
    if not words.has("quiet"):
        sys.stderr.write(f"scancel: error: Kill job error on job step id {ref}: {INVALID_JOB}\n")
    return 1


def _report(words: Words, order: CancelOrder, errors: Sequence[FailedOrder]) -> int:
    """Report what could not be done. A job that is gone is an error only where a signal was meant to reach it."""
    code = 0
    for ref, kind, message, remedy in errors:
        if kind == "not_found" and (order.task or split_ref(ref)[1]):
            # An unknown task is a typing mistake, unlike a job that is gone.
            code = 1
            known = message.startswith("job ")
            text = message if known else f"Invalid job id {ref}{'.' * bool(order.task)}{order.task}"
            sys.stderr.write(f"scancel: error: {text}\n" + (f"  {remedy}\n" if known and remedy else ""))
            continue
        loud = bool(order.signal) or order.batch_only or kind not in _SILENT
        if loud:
            code = 1
        if (loud and not words.has("quiet")) or words.has("verbose"):
            head, _, text = message.partition(": ")
            text = text if head.startswith("job ") and text else message
            if kind == "not_found" or (order.signal and text == ALREADY_ENDED):
                text = INVALID_JOB
            sys.stderr.write(f"scancel: error: Kill job error on job id {ref}: {text}\n")
    return code


def make_order(words: Words, environment: Mapping[str, str] | None = None) -> CancelOrder:
    """What the words ask for, with SCANCEL_* below them. Raises InvalidRequest in Slurm's words."""
    given = tuple(part for word in words.rest for part in split_refs(word) or ("",))
    refs = tuple(word for word in given if is_ref(word) and word != "0")
    # Slurm takes numbers of steps, but no names (22.05).
    refs = tuple(word for word in refs if split_ref(word)[1] not in ("batch", "extern", "interactive"))
    others = [word for word in given if word not in refs]
    task = ""
    if len(others) == 1 and len(refs) == 1 and given[0] == refs[0]:
        task = others[0]
    elif len(others) == 2 and not any(map(is_ref, given)):
        # `NAME TASK`: no form of Slurm's, which takes ids alone.
        return CancelOrder((others[0],), others[1], _make_filter(words, environment or {}), *_signal_of(words))
    elif others:
        raise InvalidRequest(f"Invalid job id {others[0]}")
    if len(refs) == 1 and not task:
        job, task = split_ref(refs[0])
        refs = (job,)
    chosen = _make_filter(words, environment or {})
    if not refs and chosen.empty:
        raise InvalidRequest("No job identification provided")
    return CancelOrder(refs, task, chosen, *_signal_of(words), flush=not words.has("no-flush"))


def _signal_of(words: Words) -> tuple[str, bool, bool]:
    """The signal, and whether the script alone, or all, has it."""
    return words.last("signal").upper().removeprefix("SIG"), words.has("batch"), words.has("full")


def _make_filter(words: Words, environment: Mapping[str, str]) -> JobFilter:
    def listed(option: str, variable: str) -> tuple[str, ...]:
        return words.listed(option) or tuple(filter(None, environment.get(variable, "").split(",")))

    users = _known_users(listed("user", "SCANCEL_USER"))
    if words.has("me"):
        from overspan.bridge.client.submission import user_name

        users = (user_name(),)
    nodes = words.listed("nodelist")
    if nodes:
        from overspan.bridge.model.slurm.hostlists import expand

        try:
            nodes = tuple(expand(words.last("nodelist")))
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
    return JobFilter(
        states=parse_states(listed("state", "SCANCEL_STATE")),
        users=users,
        names=words.listed("name") + words.listed("jobname") or listed("jobname", "SCANCEL_NAME"),
        partitions=listed("partition", "SCANCEL_PARTITION"),
        clusters=tuple(name for name in words.listed("clusters") if name != "all") + words.listed("pool"),
        accounts=listed("account", "SCANCEL_ACCOUNT"),
        qos=listed("qos", "SCANCEL_QOS"),
        nodes=nodes,
    )


def _known_users(words: tuple[str, ...]) -> tuple[str, ...]:
    users = []
    for word in words:
        user = find_user(word)
        if user is None:
            raise InvalidRequest(f"Invalid user name: {word}")
        users.append(user)
    return tuple(users)


def _number(signal: str) -> int:
    # Imported here, since most calls name no signal and start sooner without.
    from overspan.bridge.model.signals import signal_number

    return signal_number(signal)


def _ask(client: Client, order: CancelOrder) -> tuple[str, ...]:
    """Ask for each job on the terminal; anything but y keeps it."""
    chosen = []
    for row in client.queue(order.filter._replace(ids=order.refs)).rows:
        ref = str(row.id) if row.array_id is None or row.array_waiting else row.ref
        write(f"Cancel job_id={ref} name={row.name} partition={row.partition} [y/n]? ")
        sys.stdout.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            chosen.append(ref)
    return tuple(chosen)
