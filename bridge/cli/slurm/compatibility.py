"""`span sprio`, `sstat`, `sdiag`, `sacctmgr` and `sshare`: the answers that programs expect from them.

There are no shares, no measured use and no accounting associations here, so most answers are short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write
from overspan.bridge.cli.references import is_ref
from overspan.bridge.cli.tables.accounting_tables import Table, read_table, write_table
from overspan.bridge.cli.tables.steps import StepLine, choose_steps, is_named
from overspan.bridge.cli.usage import complain, read_words
from overspan.bridge.client import JobFilter, JobRow
from overspan.bridge.model.options.getopt import VALUE, Option, Words

_COMMON = (Option("help", "h"), Option("usage"), Option("verbose", "v"), Option("version", "V"))
_SPRIO = (
    *(option for option in _COMMON if option.name != "help"),
    Option("clusters", "M", VALUE),
    Option("format", "o", VALUE),
    Option("help"),
    Option("jobs", "j", VALUE, "these ids"),
    Option("long", "l"),
    Option("noheader", "h"),
    Option("norm", "n"),
    Option("partition", "p", VALUE),
    Option("sort", "S", VALUE),
    Option("user", "u", VALUE),
    Option("weights", "w"),
)
_SSTAT = (
    *_COMMON,
    Option("allsteps", "a"),
    Option("format", "o", VALUE, "fields: JobID,NTasks", "FIELDS"),
    Option("helpformat", "e", help="list the fields"),
    Option("jobs", "j", VALUE, "these ids", "ID,..."),
    Option("noconvert"),
    Option("noheader", "n", help="no header"),
    Option("parsable", "p", help="| after each field"),
    Option("parsable2", "P", help="| between the fields"),
    Option("pidformat", "i"),
)
_SDIAG = (*_COMMON, Option("all", "a"), Option("cluster", "M", VALUE), Option("reset", "r"), Option("sort-by-id", "i"))
_SACCTMGR = (
    *_COMMON,
    Option("associations", "s"),
    Option("immediate", "i"),
    Option("noheader", "n", help="no header"),
    Option("oneliner", "o"),
    Option("parsable", "p", help="| after each field"),
    Option("parsable2", "P", help="| between the fields"),
    Option("quiet", "Q"),
    Option("readonly", "r"),
)
_SSHARE = (
    *_COMMON,
    Option("accounts", "A", VALUE),
    Option("all", "a"),
    Option("clusters", "M", VALUE),
    Option("format", "o", VALUE, "fields: Account%30,User", "FIELDS"),
    Option("long", "l"),
    Option("noheader", "n", help="no header"),
    Option("parsable", "p", help="| after each field"),
    Option("parsable2", "P", help="| between the fields"),
    Option("users", "u", VALUE),
    Option("Users", "U", help="no accounts"),
)
_RULE = "*" * 55


def run(call: Invocation) -> int:
    """Carry out the verb."""
    return _VERBS[call.verb](call)


def _sprio(call: Invocation) -> int:
    read_words(call, _SPRIO, "usage: span sprio [OPTION...]")
    # The queue is ordered by priority, then first come; there are no factors to show.
    return complain(
        "You are not running a supported priority plugin\n(priority/basic).\nOnly 'priority/multifactor' is supported."
    )


def _sstat(call: Invocation) -> int:
    from overspan.bridge.cli.tables.accounting_tables import STAT_FIELDS, STAT_FORMAT
    from overspan.bridge.cli.tables.steps import gather_steps, running_steps

    words = read_words(call, _SSTAT, "usage: span sstat [OPTION...] -j ID,...")
    if words.has("helpformat"):
        write("".join(f"{name}\n" for name in STAT_FIELDS))
        return 0
    ids = words.listed("jobs") + words.rest
    if not ids:
        say(call, "error: You didn't give me any jobs to stat.")
        return 1
    for ref in ids:
        if not is_ref(ref):
            return complain(f"sstat: fatal: Bad job/step specified: {ref}")
    table = read_table(words.last("format") or STAT_FORMAT, STAT_FIELDS)
    with call.client() as client:
        wanted = JobFilter(ids=tuple(ref.partition(".")[0] for ref in ids), tasks=True, steps=True)
        listing = client.queue(wanted)
    rows = listing.rows
    running = running_steps(rows, gather_steps(listing.steps))
    steps = [step for ref in ids for step in _steps_of(running, ref, words.has("allsteps"))]
    lines = [{"JobID": step.ref, "NTasks": str(step.ntasks), "Nodelist": step.node_list} for step in steps]
    write(write_table(table, lines, words))
    for ref in ids:
        if not any(is_named(row, "", ref.partition(".")[0]) for row in rows):
            say(call, f"error: couldn't get steps for job {ref}")
        elif "." in ref and not any(is_named(step.row, step.id, ref) for step in running):
            say(call, f"error: StepId={ref} not found running.")
    return 0


def _steps_of(running: Sequence[StepLine], ref: str, every: bool) -> list[StepLine]:
    """The steps that an id asks of; without -a a job's own line is that of its first srun (measured on Slurm 22.05)."""
    named = choose_steps(running, [ref])
    return named if every or "." in ref else [step for step in named if not step.batch][:1]


def _sdiag(call: Invocation) -> int:
    read_words(call, _SDIAG, "usage: span sdiag [OPTION...]")
    with call.client() as client:
        rows = client.queue(JobFilter(states=("all",))).rows
        ping = client.ping()
    write(_diagnosis_text(rows, ping, time.time()))
    return 0


def _diagnosis_text(rows: Sequence[JobRow], ping: Mapping[str, Any], now: float) -> str:
    """The answer for the jobs that the queue knows, finished ones of the last minutes too."""
    since = float(ping.get("since") or now)
    states = [row.state for row in rows]
    ended = sum(state in ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL") for state in states)
    lines = [
        _RULE,
        f"sdiag output at {_when(now)}",
        f"Data since      {_when(since)}",
        _RULE,
        "Server thread count:  1",
        "Agent queue size:     0",
        "Agent count:          0",
        "Agent thread count:   0",
        "DBD Agent queue size: 0",
        "",
        f"Jobs submitted: {len(rows)}",
        f"Jobs started:   {sum(row.started_at is not None for row in rows)}",
        f"Jobs completed: {ended}",
        f"Jobs canceled:  {states.count('CANCELLED')}",
        f"Jobs failed:    {states.count('FAILED')}",
        "",
        f"Job states ts:  {_when(now)}",
        f"Jobs pending:   {states.count('PENDING')}",
        f"Jobs running:   {states.count('RUNNING')}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _when(epoch: float) -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(epoch)) + f" ({int(epoch)})"


def _sacctmgr(call: Invocation) -> int:
    from overspan.bridge.cli.tables.accounting_tables import ENTITIES, ENTITY_HELP

    words = read_words(call, _SACCTMGR, "usage: span sacctmgr [OPTION...] show|list ENTITY [NAME...] [format=FIELDS]")
    if not words.rest or words.rest[0].lower() not in ("show", "list"):
        given = words.rest[0] if words.rest else ""
        return complain(f"Clusters are described in Overspan's configuration: sacctmgr {given} changes nothing here")
    entity = words.rest[1].lower().rstrip("s") if len(words.rest) > 1 else ""
    found = next((known for known in ENTITIES if entity and known.startswith(entity)), None)
    if found is None:
        return complain(ENTITY_HELP)
    chosen = [word.partition("=")[2] for word in words.rest[2:] if word.lower().startswith(("format=", "fields="))]
    fields, default = ENTITIES[found]
    table = read_table(",".join(chosen) or default, fields)
    write(write_table(table, _entity_lines(call, found, words), words))
    return 0


def _entity_lines(call: Invocation, entity: str, words: Words) -> list[dict[str, str]]:
    """The lines of an entity; without accounts there are no users and associations to list."""
    if entity == "qo":
        return [{"Name": "normal", "Priority": "0", "GraceTime": "00:00:00", "PreemptMode": "cluster"}]
    if entity == "cluster":
        with call.client() as client:
            clusters = client.clusters()
            host = str(client.ping().get("host") or "")
        names = [word for word in words.rest[2:] if "=" not in word]
        return [
            {"Cluster": str(cluster["name"]), "ControlHost": host, "ControlPort": "0", "RPC": "0", "QOS": "normal"}
            for cluster in clusters
            if not names or cluster["name"] in names
        ]
    return []


def _sshare(call: Invocation) -> int:
    from overspan.bridge.cli.tables.accounting_tables import SHARE_FIELDS, SHARE_FORMAT, SHARE_LONG_FORMAT

    words = read_words(call, _SSHARE, "usage: span sshare [OPTION...]")
    default = SHARE_LONG_FORMAT if words.has("long") else SHARE_FORMAT
    table: Table = read_table(words.last("format") or default, SHARE_FIELDS)
    root = {"Account": "root", "RawUsage": "0", "EffectvUsage": "0.000000", "LevelFS": "0.000000"}
    write(write_table(table, [] if words.has("Users") else [root], words))
    return 0


_VERBS: dict[str, Callable[[Invocation], int]] = {
    "sprio": _sprio,
    "sstat": _sstat,
    "sdiag": _sdiag,
    "sacctmgr": _sacctmgr,
    "sshare": _sshare,
}
