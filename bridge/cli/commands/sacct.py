"""`span sacct`: all jobs, finished ones too, in Slurm's accounting fields."""

from __future__ import annotations

import time

from overspan.bridge.cli.account_columns import (
    BRIEF_FIELDS,
    DEFAULT_FIELDS,
    FIELDS,
    parse_fields,
    render_accounts,
    render_parsable,
)
from overspan.bridge.cli.call import Call
from overspan.bridge.cli.commands.squeue import row_document
from overspan.bridge.cli.getopt import OPTIONAL, VALUE, Option, Words, help_text, parse
from overspan.bridge.cli.layout import render_delimited
from overspan.bridge.cli.output import rfc3339, write, write_json
from overspan.bridge.cli.references import check_refs, parse_states
from overspan.bridge.client import JobFilter
from overspan.bridge.model.durations import parse_when
from overspan.bridge.model.errors import InvalidRequest

OPTIONS = (
    Option("accounts", "A", VALUE, "jobs of these accounts"),
    Option("allocations", "X", help="jobs and tasks only (there are no steps here)"),
    Option("allusers", "a"),
    Option("allclusters", "L"),
    Option("array"),
    Option("brief", "b", help="id, state and exit code"),
    Option("clusters", "M", VALUE, "jobs on these clusters"),
    Option("delimiter", "", VALUE, "for -p and -P"),
    Option("duplicates", "D"),
    Option("endtime", "E", VALUE, "jobs before this time", "TIME"),
    Option("format", "o", VALUE, "fields: JobID,State%20", "FIELDS"),
    Option("help", "h", help="this text"),
    Option("helpformat", "e", help="list the fields"),
    Option("jobs", "j", VALUE, "these ids", "ID,..."),
    Option("json", "", OPTIONAL, "one JSON document"),
    Option("long", "l", help="every field"),
    Option("name", "", VALUE, "jobs of these names"),
    Option("nodelist", "N", VALUE),
    Option("noconvert"),
    Option("noheader", "n", help="no header"),
    Option("parsable", "p", help="| after each field"),
    Option("parsable2", "P", help="| between the fields"),
    Option("partition", "r", VALUE, "jobs in these partitions"),
    Option("qos", "q", VALUE, "jobs of these qualities of service"),
    Option("starttime", "S", VALUE, "jobs after this time; midnight unless -j is given", "TIME"),
    Option("state", "s", VALUE, "jobs in these states"),
    Option("truncate", "T"),
    Option("uid", "u", VALUE, "jobs of these users"),
    Option("units", "", VALUE),
    Option("user", "", VALUE),
    Option("version", "V"),
    Option("whole-hetjob", "", OPTIONAL),
)
_USAGE = "usage: span sacct [OPTION...]"


def run(call: Call) -> int:
    """Print the accounts."""
    words = parse(call.words, OPTIONS)
    if words.has("help"):
        write(help_text(_USAGE, OPTIONS, "TIME: now-2days, today, 14:30, 0131, 2026-01-31T14:30"))
        return 0
    if words.has("version"):
        from overspan.bridge.cli.commands.version import slurm_version

        write(slurm_version())
        return 0
    if words.has("helpformat"):
        write("".join(f"{name}\n" for name in FIELDS))
        return 0
    if words.rest:
        raise InvalidRequest(f"Unknown arguments: {' '.join(words.rest)}")
    fields = parse_fields(_field_list(words, call))
    with call.client() as client:
        listing = client.history(make_filter(words, time.time()))
    header = not words.has("noheader")
    if call.json:
        jobs = [row_document(row) for row in listing.rows]
        write_json({"format": 1, "now": rfc3339(listing.now), "jobs": jobs})
    elif words.has("parsable") or words.has("parsable2"):
        delimiter = words.last("delimiter") or "|"
        lines = render_delimited((f.column for f in fields), listing.rows, listing.now, delimiter=delimiter)
        write(render_parsable(lines, delimiter, not words.has("parsable2"), header))
    else:
        write(render_accounts(fields, listing.rows, listing.now, header))
    return 0


def make_filter(words: Words, now: float) -> JobFilter:
    """What to ask for. Ids are looked up at any time; without them the window begins at midnight, as sacct's does."""
    ids = check_refs((ref.partition(".")[0] for ref in words.listed("jobs")), "Invalid job id")
    since = _time(words.last("starttime"), now)
    states = parse_states(words.listed("state"))
    if since is None and not ids:
        today = time.localtime(now)
        since = time.mktime((today.tm_year, today.tm_mon, today.tm_mday, 0, 0, 0, 0, 0, -1))
    return JobFilter(
        states=() if states == ("all",) else states,
        users=words.listed("uid") + words.listed("user"),
        ids=ids,
        names=words.listed("name"),
        partitions=words.listed("partition"),
        clusters=words.listed("clusters"),
        accounts=words.listed("accounts"),
        qos=words.listed("qos"),
        tasks=True,
        since=since,
        until=_time(words.last("endtime"), now),
    )


def _field_list(words: Words, call: Call) -> str:
    given = [value for name, value in words.options if name == "format"]
    if given:
        return ",".join(given)
    if words.has("brief"):
        return BRIEF_FIELDS
    if words.has("long"):
        return ",".join(FIELDS)
    return call.environment.get("SACCT_FORMAT") or DEFAULT_FIELDS


def _time(text: str, now: float) -> float | None:
    if not text:
        return None
    try:
        return parse_when(text, now, past=True)
    except ValueError as error:
        raise InvalidRequest(f"Invalid time specification: {error}") from None
