"""`span squeue`: jobs that wait or run, in Slurm's columns. A group is one line a task, `N+k`, as hetjobs are."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import DATE, say, tell_stale, write
from overspan.bridge.cli.references import check_refs, find_user, parse_states
from overspan.bridge.cli.usage import check_clusters, read_words
from overspan.bridge.client import Client, JobFilter
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.getopt import OPTIONAL, VALUE, Option, Words

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
_USUAL_OPTIONS = frozenset({"me", "user", "states", "name", "partition", "account", "qos", "noheader", "iterate"})
"""Options that choose jobs and change nothing of their lines."""
_VARIABLES = frozenset({"SLURM_CLUSTERS", "SLURM_BITSTR_LEN"})


def run(call: Invocation) -> int:
    """Print the queue, once or again and again."""
    call = call._replace(words=tuple(attach_values(call.words)))
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
            write(time.strftime(DATE) + "\n")
            code = _print_once(call, client, words)
            if code:
                return code
            write("\n")
            sys.stdout.flush()
            time.sleep(seconds)


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
    wanted = make_filter(words, environment)
    wanted = wanted._replace(users=_known_users(call, wanted.users))
    check_clusters(client, wanted.clusters)
    if _is_usual(words, environment):
        listing = client.queue_table(wanted._replace(extent="core"))
        if listing.header:
            write("\n".join([*([] if words.has("noheader") else [listing.header]), *listing.lines, ""]))
            tell_stale(call, listing)
            return 0
    # What follows imports all fields, which most calls need not pay for.
    from overspan.bridge.cli.tables.squeue_tables import print_rows

    return print_rows(call, client, words, wanted)


def _is_usual(words: Words, environment: Mapping[str, str]) -> bool:
    """Whether the table is the one that the daemon has at hand: no other columns, no other order, no other rows."""
    given = {name for name, _ in words.options}
    variables = any(name.startswith("SQUEUE_") or name in _VARIABLES for name in environment)
    return given <= _USUAL_OPTIONS and not variables and not sys.stdout.isatty()


def _known_users(call: Invocation, words: tuple[str, ...]) -> tuple[str, ...]:
    """The users by name. An unknown one is reported and still asked for, so that nothing is shown."""
    names = []
    for word in words:
        user = find_user(word)
        if user is None:
            say(call, f"error: Invalid user: {word}\n")
        names.append(user or word)
    return tuple(names)


def attach_values(words: Sequence[str]) -> list[str]:
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
