"""`span squeue`: jobs that wait or run, in Slurm's columns. A group is one line a task, `N+k`, as hetjobs are."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from overspan.bridge.cli import columns
from overspan.bridge.cli.call import Call
from overspan.bridge.cli.getopt import OPTIONAL, VALUE, Option, Words, help_text, parse
from overspan.bridge.cli.layout import Layout, parse_letters, parse_names, render
from overspan.bridge.cli.ordering import DEFAULT_SORT, sort_rows
from overspan.bridge.cli.output import rfc3339, say, write, write_json
from overspan.bridge.cli.references import check_refs, parse_states
from overspan.bridge.client import Client, JobFilter, JobRow, Listing
from overspan.bridge.model.errors import InvalidRequest

OPTIONS = (
    Option("account", "A", VALUE, "jobs of these accounts"),
    Option("all", "a"),
    Option("array", "r", help="one line an array element"),
    Option("clusters", "M", VALUE, "jobs on these clusters; `all`"),
    Option("Format", "O", VALUE, "long names: JobID,Name:30,State"),
    Option("format", "o", VALUE, 'letters: "%.18i %.9P %R"'),
    Option("groups", help="one line a group instead of one a task"),
    Option("help", help="this text"),
    Option("iterate", "i", VALUE, "repeat every so many seconds", "SECONDS"),
    Option("jobs", "j", OPTIONAL, "these ids", "ID,..."),
    Option("json", "", OPTIONAL, "one JSON document"),
    Option("long", "l", help="more columns"),
    Option("me", help="own jobs"),
    Option("name", "n", VALUE, "jobs of these names"),
    Option("nodelist", "w", VALUE, "jobs on these nodes"),
    Option("noconvert"),
    Option("noheader", "h", help="no header"),
    Option("only-job-state"),
    Option("partition", "p", VALUE, "jobs in these partitions"),
    Option("qos", "q", VALUE, "jobs of these qualities of service"),
    Option("sort", "S", VALUE, "letters of -o, with - for falling", "KEYS"),
    Option("start", help="when pending jobs are expected to start"),
    Option("states", "t", VALUE, "jobs in these states; `all`"),
    Option("usage"),
    Option("user", "u", VALUE, "jobs of these users"),
    Option("version", "V"),
)
_USAGE = "usage: span squeue [OPTION...]"
_MIN_JOB_AGE = 300
"""Seconds for which Slurm's squeue knows a finished job (MinJobAge)."""


def run(call: Call) -> int:
    """Print the queue, once or again and again."""
    words = parse(_attach_jobs(call.words), OPTIONS)
    if words.has("help") or words.has("usage"):
        write(help_text(_USAGE, OPTIONS))
        return 0
    if words.has("version"):
        from overspan.bridge.cli.commands.version import slurm_version

        write(slurm_version())
        return 0
    if words.rest:
        raise InvalidRequest(f"Unrecognized option: {words.rest[0]}")
    with call.client() as client:
        if not words.has("iterate"):
            return _print_once(call, client, words)
        seconds = _seconds(words.last("iterate"))
        while True:
            write(time.strftime("%a %b %d %H:%M:%S %Y") + "\n")
            code = _print_once(call, client, words)
            if code:
                return code
            write("\n")
            sys.stdout.flush()
            time.sleep(seconds)


def choose_layout(words: Words, environment: dict[str, str]) -> Layout:
    """The format: -O and -o (the later one), then -l and --start, SQUEUE_FORMAT2, SQUEUE_FORMAT, Slurm's default."""
    for name, value in reversed(words.options):
        if name == "Format":
            return parse_names(value, columns.NAMES)
        if name == "format":
            return parse_letters(value, columns.LETTERS)
    if words.has("long"):
        return parse_letters(columns.LONG_FORMAT, columns.LETTERS)
    if words.has("start"):
        return parse_letters(columns.START_FORMAT, columns.LETTERS)
    if environment.get("SQUEUE_FORMAT2"):
        return parse_names(environment["SQUEUE_FORMAT2"], columns.NAMES)
    return parse_letters(environment.get("SQUEUE_FORMAT") or columns.DEFAULT_FORMAT, columns.LETTERS)


def make_filter(words: Words, environment: dict[str, str]) -> JobFilter:
    """What to ask for: options, then Slurm's variables."""
    users = words.listed("user") or _items(environment, "SQUEUE_USERS")
    if words.has("me"):
        from overspan.bridge.client.submission import user_name

        users = (user_name(),)
    states = words.listed("states") or _items(environment, "SQUEUE_STATES")
    if words.has("start"):
        states = ("PENDING",)
    clusters = words.listed("clusters") or _items(environment, "SLURM_CLUSTERS")
    return JobFilter(
        states=parse_states(states),
        users=users,
        ids=check_refs(words.listed("jobs")),
        names=words.listed("name") or _items(environment, "SQUEUE_NAMES"),
        partitions=words.listed("partition") or _items(environment, "SQUEUE_PARTITION"),
        clusters=() if "all" in clusters else clusters,
        accounts=words.listed("account"),
        qos=words.listed("qos"),
        tasks=not words.has("groups"),
    )


def row_document(row: JobRow) -> dict[str, object]:
    """A row for --json: the columns' names, times in RFC 3339."""
    times = ("submitted_at", "started_at", "ended_at", "begin")
    return {"ref": row.ref, **row._asdict(), **{name: rfc3339(getattr(row, name)) for name in times}}


def _print_once(call: Call, client: Client, words: Words) -> int:
    environment = dict(call.environment)
    layout = choose_layout(words, environment)
    wanted = make_filter(words, environment)
    sort = words.last("sort") or environment.get("SQUEUE_SORT") or DEFAULT_SORT
    listing = client.queue(wanted)
    rows = _on_nodes(listing.rows, words.listed("nodelist"))
    if not rows and len(wanted.ids) == 1 and not _is_known(client, wanted.ids, listing.now):
        print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
        return 1
    rows = sort_rows(rows, sort, listing.now)
    if call.json:
        old = [{"cluster": s.cluster, "since": rfc3339(s.since), "message": s.message} for s in listing.stale]
        write_json({"format": 1, "now": rfc3339(listing.now), "jobs": list(map(row_document, rows)), "stale": old})
        return 0
    if words.has("long") and not words.has("iterate") and not words.has("noheader"):
        write(time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(listing.now)) + "\n")
    header = not words.has("noheader")
    if words.has("clusters"):
        _write_by_cluster(layout, rows, listing, header)
    else:
        write(render(layout, rows, listing.now, header))
    for stale in listing.stale:
        since = time.strftime("%H:%M:%S", time.localtime(stale.since))
        say(call, f"cluster {stale.cluster} has not answered since {since}; its jobs are shown as they were")
    return 0


def _write_by_cluster(layout: Layout, rows: list[JobRow], listing: Listing, header: bool) -> None:
    """Slurm's form for -M: a line with the cluster's name before each table."""
    by_cluster: dict[str, list[JobRow]] = {}
    for row in rows:
        by_cluster.setdefault(row.cluster, []).append(row)
    for name in sorted(by_cluster):
        write(f"CLUSTER: {name}\n" + render(layout, by_cluster[name], listing.now, header))


def _is_known(client: Client, ids: tuple[str, ...], now: float) -> bool:
    rows = client.history(JobFilter(ids=ids, limit=1)).rows
    return any(row.ended_at is None or now - row.ended_at < _MIN_JOB_AGE for row in rows)


def _on_nodes(rows: list[JobRow], names: Sequence[str]) -> list[JobRow]:
    if not names:
        return rows
    from overspan.bridge.model.hostlists import expand

    try:
        asked = set(expand(",".join(names)))
    except ValueError as error:
        raise InvalidRequest(f"Invalid node name specified: {error}") from None
    return [row for row in rows if asked.intersection(expand(row.node_list))]


def _attach_jobs(words: Sequence[str]) -> list[str]:
    """Give `-j 42` its value: Slurm takes the next word where it begins with a digit."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in ("-j", "--jobs") and not word.startswith("-"):
            joined[-1] = f"--jobs={word}"
        else:
            joined.append(word)
    return joined


def _items(environment: dict[str, str], name: str) -> tuple[str, ...]:
    return tuple(item for item in environment.get(name, "").split(",") if item)


def _seconds(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise InvalidRequest(f"Invalid --iterate argument: {text}")
    return int(text)
