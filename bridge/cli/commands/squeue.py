"""`span squeue`: jobs that wait or run, in Slurm's columns. A group is one line a task, `N+k`, as hetjobs are."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence

from overspan.bridge.cli import squeue_letters
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write
from overspan.bridge.cli.references import check_refs, find_user, parse_states
from overspan.bridge.cli.squeue_sort import DEFAULT_SORT, parse_sort, sort_extent, sort_rows
from overspan.bridge.cli.table_layout import Layout, parse_letters, parse_names, render, write_header
from overspan.bridge.cli.usage import check_clusters, complain, read_words
from overspan.bridge.client import Client, JobFilter, JobRow, Listing
from overspan.bridge.client.records import EXTENTS
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.getopt import OPTIONAL, VALUE, Option, Words
from overspan.bridge.model.slurm_words import INVALID_JOB

OPTIONS = (
    Option("account", "A", VALUE, "jobs of these accounts"),
    Option("all", "a"),
    Option("array", "r", help="one line an array element"),
    Option("array-unique"),
    Option("clusters", "M", VALUE, "jobs on these clusters; `all`"),
    Option("expand-patterns"),
    Option("federation"),
    Option("Format", "O", VALUE, "long names: JobID,Name:30,State"),
    Option("format", "o", VALUE, 'letters: "%.18i %.9P %R"'),
    Option("groups", help="one line a group instead of one a task"),
    Option("help", help="this text"),
    Option("hide"),
    Option("iterate", "i", VALUE, "repeat every so many seconds", "SECONDS"),
    Option("jobs", "j", OPTIONAL, "these ids", "ID,..."),
    Option("json", "", OPTIONAL, "one JSON document"),
    Option("licenses", "L", VALUE),
    Option("local"),
    Option("long", "l", help="more columns"),
    Option("me", help="own jobs"),
    Option("name", "n", VALUE, "jobs of these names"),
    Option("noconvert"),
    Option("node", "", VALUE),
    Option("nodes", "", VALUE),
    Option("nodelist", "w", VALUE, "jobs on these nodes"),
    Option("noheader", "h", help="no header"),
    Option("only-job-state"),
    Option("partition", "p", VALUE, "jobs in these partitions"),
    Option("priority", "P"),
    Option("qos", "q", VALUE, "jobs of these qualities of service"),
    Option("reservation", "R", VALUE),
    Option("sibling"),
    Option("sort", "S", VALUE, "letters of -o, with - for falling", "KEYS"),
    Option("start", help="when pending jobs are expected to start"),
    Option("states", "t", VALUE, "jobs in these states; `all`"),
    Option("steps", "s", OPTIONAL, "the steps that run"),
    Option("usage"),
    Option("user", "u", VALUE, "jobs of these users"),
    Option("verbose", "v"),
    Option("version", "V"),
    Option("yaml", "", OPTIONAL),
)
_USAGE = "usage: span squeue [OPTION...]"
_MIN_JOB_AGE = 300
"""Seconds for which Slurm's squeue knows a finished job (MinJobAge)."""
_USUAL_OPTIONS = frozenset({"me", "user", "states", "name", "partition", "account", "qos", "noheader", "iterate"})
"""Options that choose jobs and change nothing of their lines."""
_VARIABLES = frozenset({"SLURM_CLUSTERS", "SLURM_BITSTR_LEN"})
_DATE = "%a %b %d %H:%M:%S %Y"


def run(call: Invocation) -> int:
    """Print the queue, once or again and again."""
    call = call._replace(words=tuple(_attach_values(call.words)))
    words = read_words(call, OPTIONS, _USAGE)
    if words.rest:
        print(_USAGE)
        raise InvalidRequest(f"Unrecognized option: {words.rest[0]}")
    if words.has("array"):
        os.environ["SLURM_BITSTR_LEN"] = "0"
    with call.client() as client:
        if not words.has("iterate"):
            return _print_once(call, client, words)
        seconds = _seconds(words.last("iterate"))
        while True:
            write(time.strftime(_DATE) + "\n")
            code = _print_once(call, client, words)
            if code:
                return code
            write("\n")
            sys.stdout.flush()
            time.sleep(seconds)


def choose_layout(words: Words, environment: dict[str, str]) -> Layout:
    """The format: -o or -O, then -l and --start, SQUEUE_FORMAT, SQUEUE_FORMAT2, Slurm's default."""
    given = [name for name, _ in words.options if name in ("Format", "format")]
    if len(set(given)) > 1:
        both = ("-O (--Format)", "-o (--format)") if given[0] == "format" else ("-o (--format)", "-O (--Format)")
        raise InvalidRequest(" is incompatible with ".join(both))
    if words.has("Format"):
        return _parse_names(words.last("Format"))
    if words.has("format"):
        return parse_letters(words.last("format"), squeue_letters.LETTERS)
    if words.has("long"):
        return parse_letters(squeue_letters.LONG_FORMAT, squeue_letters.LETTERS)
    if words.has("start"):
        return parse_letters(squeue_letters.START_FORMAT, squeue_letters.LETTERS)
    if not environment.get("SQUEUE_FORMAT") and environment.get("SQUEUE_FORMAT2"):
        return _parse_names(environment["SQUEUE_FORMAT2"])
    return parse_letters(environment.get("SQUEUE_FORMAT") or squeue_letters.DEFAULT_FORMAT, squeue_letters.LETTERS)


def _parse_names(text: str) -> Layout:
    from overspan.bridge.cli.squeue_fields import NAMES

    return parse_names(text, NAMES)


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
        accounts=words.listed("account") or _items(environment, "SQUEUE_ACCOUNT"),
        qos=words.listed("qos") or _items(environment, "SQUEUE_QOS"),
        tasks=not words.has("groups"),
    )


def _print_once(call: Invocation, client: Client, words: Words) -> int:
    environment = dict(call.environment)
    layout = choose_layout(words, environment)
    sort = words.last("sort") or environment.get("SQUEUE_SORT") or DEFAULT_SORT
    documents = words.has("json") or words.has("yaml")
    wanted = make_filter(words, environment)
    try:
        keys = parse_sort(sort)
    except InvalidRequest:
        write("" if words.has("noheader") or documents else write_header(layout) + "\n")
        raise
    extents = ["all"] if documents or words.has("steps") else [layout.extent, sort_extent(keys)]
    extent = max(extents, key=EXTENTS.index)
    wanted = wanted._replace(users=_known_users(call, wanted.users), extent=extent, steps=words.has("steps"))
    check_clusters(client, wanted.clusters)
    usual = _is_usual(words, environment)
    listing = client.queue_table(wanted) if usual else client.queue(wanted)
    if listing.header:
        write("\n".join([*([] if words.has("noheader") else [listing.header]), *listing.lines, ""]))
        _tell_stale(call, listing)
        return 0
    names = words.listed("nodelist") + words.listed("nodes") + words.listed("node")
    rows = _on_nodes(client, listing.rows, names)
    if not rows and len(words.listed("jobs")) == 1 and not _is_known(client, wanted.ids, listing.now):
        return complain(f"slurm_load_jobs error: {INVALID_JOB}")
    if words.has("array") or any("_" in ref for ref in wanted.ids):
        from overspan.bridge.cli.array_elements import name_elements, split_elements

        rows = split_elements(rows) if words.has("array") else name_elements(rows)
    rows = sort_rows(rows, sort, listing.now)
    if documents:
        from overspan.bridge.cli.job_json import write_jobs

        write_jobs(call, rows, listing.now)
        return 0
    if words.has("steps"):
        return _write_steps(call, words, rows, listing)
    _write_tables(words, layout, rows, listing)
    for fault in layout.faults:
        say(call, f"error: Invalid job format specification: {fault}")
    _tell_stale(call, listing)
    return 0


def _is_usual(words: Words, environment: Mapping[str, str]) -> bool:
    """Whether the table is the one that the daemon has at hand: no other columns, no other order, no other rows."""
    given = {name for name, _ in words.options}
    variables = any(name.startswith("SQUEUE_") or name in _VARIABLES for name in environment)
    return given <= _USUAL_OPTIONS and not variables


def _tell_stale(call: Invocation, listing: Listing) -> None:
    """Tell of clusters that do not answer, or not all of it."""
    for stale in listing.stale:
        since = time.strftime("%H:%M:%S", time.localtime(stale.since))
        why = f": {stale.message}" if stale.message else ""
        if stale.partial:
            say(call, f"cluster {stale.cluster}, since {since}{why}")
            continue
        say(call, f"cluster {stale.cluster} has not answered since {since}; its jobs are shown as they were{why}")


def _write_tables(words: Words, layout: Layout, rows: list[JobRow], listing: Listing) -> None:
    if words.has("long") and not words.has("iterate") and not words.has("noheader"):
        write(time.strftime(_DATE, time.localtime(listing.now)) + "\n")
    header = not words.has("noheader")
    if words.has("clusters"):
        named = [name for name in words.listed("clusters") if name != "all"]
        _write_by_cluster(layout, rows, listing, named, header)
    else:
        write(render(layout, rows, listing.now, header))


def _write_steps(call: Invocation, words: Words, rows: list[JobRow], listing: Listing) -> int:
    """Print the steps that run; -s names steps, -j jobs."""
    from overspan.bridge.cli import steps

    chosen = words.listed("steps")
    for ref in chosen:
        if "." not in ref:
            raise InvalidRequest(f"Invalid job_step id: {ref}.??")
    running = steps.running_steps(rows, steps.gather_steps(listing.steps))
    layout = parse_letters(words.last("format") or steps.STEP_FORMAT, steps.STEP_LETTERS)
    shown = steps.order_by_number(steps.choose_steps(running, chosen))
    write(render(layout, shown, listing.now, not words.has("noheader")))
    for fault in layout.faults:
        say(call, f"error: Invalid job step format specification: {fault}")
    return 0


def _write_by_cluster(layout: Layout, rows: list[JobRow], listing: Listing, named: Sequence[str], header: bool) -> None:
    """Slurm's form for -M: each cluster's name before its table, of those without jobs too; nothing of it with -h."""
    by_cluster: dict[str, list[JobRow]] = {name: [] for name in named}
    for row in rows:
        by_cluster.setdefault(row.cluster, []).append(row)
    for number, name in enumerate(by_cluster if named else sorted(by_cluster)):
        title = ("\n" if number else "") + f"CLUSTER: {name}\n" if header else ""
        write(title + render(layout, by_cluster[name], listing.now, header))


def _known_users(call: Invocation, words: tuple[str, ...]) -> tuple[str, ...]:
    """The users by name. An unknown one is reported and still asked for, so that nothing is shown."""
    names = []
    for word in words:
        user = find_user(word)
        if user is None:
            say(call, f"error: Invalid user: {word}\n")
        names.append(user or word)
    return tuple(names)


def _is_known(client: Client, ids: tuple[str, ...], now: float) -> bool:
    rows = client.history(JobFilter(ids=tuple(ref.partition("_")[0] for ref in ids), limit=1)).rows
    return any(row.ended_at is None or now - row.ended_at < _MIN_JOB_AGE for row in rows)


def _on_nodes(client: Client, rows: list[JobRow], names: Sequence[str]) -> list[JobRow]:
    if not names:
        return rows
    from overspan.bridge.model.hostlists import expand

    try:
        asked = set(expand(",".join(names)))
    except ValueError:
        raise InvalidRequest(f"'{','.join(names)}' invalid entry for --nodelist") from None
    known = {str(node.get("name")) for node in client.nodes().get("nodes") or ()}
    for name in sorted(asked - known):
        raise InvalidRequest(f"Invalid node name {name}")
    return [row for row in rows if asked.intersection(expand(row.node_list))]


def _attach_values(words: Sequence[str]) -> list[str]:
    """Give `-j 42` and `-s 42.0` their values: Slurm takes the next word, which getopt does not."""
    joined: list[str] = []
    names = {"-j": "jobs", "--jobs": "jobs", "--job": "jobs", "-s": "steps", "--steps": "steps", "--step": "steps"}
    for word in words:
        if joined and joined[-1] in names and not word.startswith("-"):
            joined[-1] = f"--{names[joined[-1]]}={word}"
        else:
            joined.append(word)
    return joined


def _items(environment: dict[str, str], name: str) -> tuple[str, ...]:
    return tuple(item for item in environment.get(name, "").split(",") if item)


def _seconds(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise InvalidRequest(f"--iterate={text}\n")
    return int(text)
