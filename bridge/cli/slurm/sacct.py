"""`span sacct`: all jobs, finished ones too, in Slurm's accounting fields."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, tell_missing, write
from overspan.bridge.cli.references import is_ref, parse_states
from overspan.bridge.cli.tables.sacct_fields import (
    BRIEF_FIELDS,
    DEFAULT_FIELDS,
    LONG_FIELDS,
    AccountField,
    list_fields,
    parse_fields,
)
from overspan.bridge.cli.tables.sacct_lines import AccountLine, as_lines, render_accounts, render_parsable
from overspan.bridge.cli.tables.steps import gather_steps, is_named
from overspan.bridge.cli.usage import complain, read_words
from overspan.bridge.client import Client, JobFilter, JobRow
from overspan.bridge.listings.layout import render_delimited
from overspan.bridge.listings.texts import eligible_at
from overspan.bridge.model.durations import format_timestamp, parse_when
from overspan.bridge.model.errors import InvalidRequest, NotFound
from overspan.bridge.model.options.getopt import OPTIONAL, VALUE, Option, Words

OPTIONS = (
    Option("accounts", "A", VALUE, "jobs of these accounts"),
    Option("allocations", "X", help="jobs only, no steps"),
    Option("allusers", "a"),
    Option("allclusters", "L"),
    Option("array", help="one line an array element"),
    Option("batch-script", "B"),
    Option("brief", "b", help="id, state and exit code"),
    Option("clusters", "M", VALUE, "jobs on these clusters"),
    Option("constraints", "C", VALUE),
    Option("delimiter", "", VALUE, "for -p and -P"),
    Option("duplicates", "D", help="every run of requeued jobs"),
    Option("endtime", "E", VALUE, "jobs before this time", "TIME"),
    Option("env-vars"),
    Option("expand-patterns"),
    Option("federation"),
    Option("flags", "F", VALUE),
    Option("format", "o", VALUE, "fields: JobID,State%20", "FIELDS"),
    Option("gid", "g", VALUE),
    Option("help", "h", help="this text"),
    Option("helpformat", "e", help="list the fields"),
    Option("jobs", "j", VALUE, "these ids", "ID,..."),
    Option("json", "", OPTIONAL, "one JSON document"),
    Option("local"),
    Option("long", "l", help="every field"),
    Option("name", "", VALUE, "jobs of these names"),
    Option("ncpus", "I", VALUE),
    Option("nnodes", "i", VALUE),
    Option("nodelist", "N", VALUE, "jobs that ran on these nodes"),
    Option("noconvert"),
    Option("noheader", "n", help="no header"),
    Option("parsable", "p", help="| after each field"),
    Option("parsable2", "P", help="| between the fields"),
    Option("partition", "r", VALUE, "jobs in these partitions"),
    Option("qos", "q", VALUE, "jobs of these qualities of service"),
    Option("reason", "R", VALUE),
    Option("starttime", "S", VALUE, "jobs after this time; midnight unless -j or -s is given", "TIME"),
    Option("state", "s", VALUE, "jobs in these states"),
    Option("timelimit-max", "K", VALUE),
    Option("timelimit-min", "k", VALUE),
    Option("truncate", "T"),
    Option("uid", "u", VALUE, "jobs of these users"),
    Option("units", "", VALUE, "K, M, G, T or P"),
    Option("usage", "U"),
    Option("user", "", VALUE),
    Option("verbose", "v"),
    Option("version", "V"),
    Option("wckeys", "W", VALUE),
    Option("whole-hetjob", "", OPTIONAL),
    Option("yaml", "", OPTIONAL),
)
_USAGE = "usage: span sacct [OPTION...]"
_NOTES = "TIME: now-2days, today, 14:30, 0131, 2026-01-31T14:30"


def run(call: Invocation) -> int:
    """Print the accounts."""
    words = read_words(call, OPTIONS, _USAGE, _NOTES)
    if words.has("helpformat"):
        write(list_fields())
        return 0
    if words.rest:
        say(call, "error: Unknown arguments:")
        for word in words.rest:
            say(call, f"error:  {word}")
        return 1
    unit = words.last("units").upper()[:1]
    if words.has("units") and unit not in ("K", "M", "G", "T", "P"):
        say(call, f"error: Invalid unit type '{words.last('units')}'. Possible options are 'KMGTP'")
        return complain("sacct: fatal: Invalid unit type")
    fields = parse_fields(_field_list(words, call))
    try:
        wanted = make_filter(words, time.time())
    except _Fatal as error:
        return complain(str(error))
    runs = words.has("duplicates")
    with call.client() as client:
        # An earlier run may have a state that is asked for.
        asked = wanted._replace(states=()) if runs else wanted
        listing = client.history(asked._replace(steps=_needs_steps(words, fields)))
        rows = _list_runs(client, listing.rows, wanted) if runs else listing.rows
    accounts = as_lines(choose_rows(rows, words), gather_steps(listing.steps), unit, words.has("allocations"))
    lines = choose_lines([line for line in accounts if _is_of_run(line)] if runs else accounts, words)
    header = not words.has("noheader")
    tell_missing(call, listing)
    if words.has("json") or words.has("yaml"):
        from overspan.bridge.cli.tables.sacct_json import write_accounts

        write_accounts(call, lines, listing.now)
        return 0
    if words.has("parsable") or words.has("parsable2"):
        delimiter = words.last("delimiter") or "|"
        texts = render_delimited((f.column for f in fields), lines, listing.now, delimiter=delimiter)
        write(render_parsable(texts, delimiter, not words.has("parsable2"), header))
    else:
        write(render_accounts(fields, lines, listing.now, header))
    return 0


def _list_runs(client: Client, rows: Iterable[JobRow], wanted: JobFilter) -> list[JobRow]:
    """Every run of each job; of one that is forgotten meanwhile the last."""
    from overspan.bridge.cli.tables.sacct_duplicates import choose_runs, has_runs, split_runs

    found = []
    for row in rows:
        try:
            found += split_runs(row, client.show(row.ref)) if has_runs(row) else [row]
        except NotFound:
            found.append(row)
    return choose_runs(found, wanted)


class _Fatal(Exception):
    """A mistake that sacct tells in another form than its other errors."""


def make_filter(words: Words, now: float) -> JobFilter:
    """What to ask for. Ids are looked up at any time; else the window begins at midnight, or now with states.

    Raises InvalidRequest, and an exception with the text for what sacct calls fatal.
    """
    for ref in words.listed("jobs"):
        if not is_ref(ref):
            raise _Fatal(f"sacct: fatal: Bad job/step specified: {ref}")
    ids = tuple(ref.partition(".")[0] for ref in words.listed("jobs"))
    since, until = _time(words.last("starttime"), now), _time(words.last("endtime"), now)
    try:
        states = parse_states(words.listed("state"))
    except InvalidRequest as error:
        name = error.message.splitlines()[0].rpartition(": ")[2]
        raise _Fatal(f"sacct: fatal: unrecognized job state value '{name}'") from None
    if since is None and not ids:
        today = time.localtime(now)
        midnight = time.mktime((today.tm_year, today.tm_mon, today.tm_mday, 0, 0, 0, 0, 0, -1))
        since = now if states and until is None else midnight
    if since is not None and since > (now if until is None else until):
        start, end = format_timestamp(since), format_timestamp(now if until is None else until)
        raise InvalidRequest(f"Start time ({start}) requested is after end time ({end}).")
    return JobFilter(
        states=() if states == ("all",) else states,
        users=_users(words.listed("uid") + words.listed("user")),
        ids=ids,
        names=words.listed("name"),
        partitions=words.listed("partition"),
        clusters=tuple(name for name in words.listed("clusters") if name != "all"),
        accounts=words.listed("accounts"),
        qos=words.listed("qos"),
        tasks=True,
        since=since,
        until=until,
    )


def choose_rows(rows: list[JobRow], words: Words) -> list[JobRow]:
    """What the daemon cannot choose: by node; elements one by one; with no ids none that were never eligible.

    Slurm's window is about the time since when a job could start, so held ones are not in any.
    """
    if not words.listed("jobs"):
        rows = [row for row in rows if eligible_at(row) is not None]
    if words.has("nodelist"):
        asked = set(_expand(words.last("nodelist")))
        rows = [row for row in rows if asked.intersection(_expand(row.node_list))]
    if words.has("array"):
        from overspan.bridge.cli.tables.array_elements import split_elements

        rows = split_elements(rows)
    return rows


def _is_of_run(line: AccountLine) -> bool:
    from overspan.bridge.cli.tables.sacct_duplicates import is_of_run

    return line.step is None or is_of_run(line.row, line.step)


def _needs_steps(words: Words, fields: Sequence[AccountField]) -> bool:
    """Whether a line or a field tells of steps."""
    documents = words.has("json") or words.has("yaml")
    return documents or not words.has("allocations") or any(f.column.header == "DerivedExitCode" for f in fields)


def choose_lines(lines: list[AccountLine], words: Words) -> list[AccountLine]:
    """The steps that are asked for: an id with a step names that step alone, a node the steps that ran there."""
    refs = words.listed("jobs")
    if any("." in ref for ref in refs) and not words.has("allocations"):
        # A document has the steps inside their jobs.
        whole = words.has("json") or words.has("yaml")
        lines = [line for line in lines if (whole and not line.step) or any(_is_named(line, ref) for ref in refs)]
    if words.has("nodelist"):
        asked = set(_expand(words.last("nodelist")))
        lines = [line for line in lines if not line.step or asked.intersection(_expand(line.node_list))]
    return lines


def _is_named(line: AccountLine, ref: str) -> bool:
    job, dot, step = ref.partition(".")
    if not is_named(line.row, "", job):
        return False
    return not dot or (line.step is not None and line.step.id == step)


def _expand(names: str) -> list[str]:
    from overspan.bridge.model.slurm.hostlists import expand

    try:
        return expand(names)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def _field_list(words: Words, call: Invocation) -> str:
    given = [value for name, value in words.options if name == "format"]
    if given and words.has("long"):
        raise InvalidRequest("Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.")
    if given:
        return ",".join(given)
    if words.has("brief"):
        return BRIEF_FIELDS
    if words.has("long"):
        return LONG_FIELDS
    return call.environment.get("SACCT_FORMAT") or DEFAULT_FIELDS


def _users(names: tuple[str, ...]) -> tuple[str, ...]:
    import pwd

    users = []
    for name in names:
        try:
            users.append(pwd.getpwuid(int(name)).pw_name if name.isdigit() else pwd.getpwnam(name).pw_name)
        except (KeyError, OverflowError):
            raise InvalidRequest(f"Invalid user id: {name}") from None
    return tuple(users)


def _time(text: str, now: float) -> float | None:
    if not text:
        return None
    try:
        return parse_when(text, now, past=True)
    except ValueError:
        raise _Fatal(f"Invalid time specification (pos=0): {text}") from None
