"""`span top`: the queue of all clusters, live, in the terminal; `--once` prints it once."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import find_width, paint, say, use_colour, write
from overspan.bridge.cli.usage import check_clusters, read_words
from overspan.bridge.model.errors import InvalidRequest, Unreachable
from overspan.bridge.model.options.getopt import OPTIONAL, VALUE, Option, Words
from overspan.tui.web.options import ORDER, VIEWER, WEB, WEB_OPTIONS

if TYPE_CHECKING:
    from overspan.tui.daemon.source import OpenSource
    from overspan.tui.options import TopOptions
    from overspan.tui.queue.styled_text import StyledText

_CHOOSING = (
    Option("account", "A", VALUE, "jobs of these accounts"),
    Option("array", "r", help="array elements and tasks unfolded"),
    Option("clusters", "M", VALUE, "jobs on these clusters; `all`"),
    Option("jobs", "j", OPTIONAL, "these ids", "ID,..."),
    Option("me", help="own jobs"),
    Option("name", "n", VALUE, "jobs of these names"),
    Option("nodelist", "w", VALUE, "jobs on these nodes"),
    Option("partition", "p", VALUE, "jobs in these partitions"),
    Option("qos", "q", VALUE, "jobs of these qualities of service"),
    Option("states", "t", VALUE, "jobs in these states; `all`"),
    Option("user", "u", VALUE, "jobs of these users"),
)
"""As squeue has them."""
_SHOWING = (
    Option("Format", "O", VALUE, "columns by long names: JobID,Name,State"),
    Option("format", "o", VALUE, 'columns by letters: "%i %P %R"'),
    Option("long", "l", help="more columns"),
    Option("sort", "S", VALUE, "letters of -o, with - for falling", "KEYS"),
    Option("start", help="pending jobs, and when they are expected to start"),
)
"""As squeue has them, but that widths and literal texts of formats do not count."""
_OWN = (
    Option("demo", help="show a simulated lab; no daemon is needed", own=True),
    Option("once", help="print the queue once, for scripts and plain terminals", own=True),
    Option("filter", "", VALUE, "begin with this filter: `state:r user:ana !debug`", "TEXT", own=True),
    Option("read-only", help="change nothing: no order can be given", own=True),
    Option("ascii", help="no characters beyond ASCII", own=True),
    Option("no-mouse", help="leave the mouse to the terminal", own=True),
    Option("theme", "", VALUE, "other colours", "NAME", own=True),
)
_USUAL = (
    Option("help", help="this text"),
    Option("usage"),
    Option("version", "V"),
)
OPTIONS = (*_CHOOSING, *_SHOWING, *_OWN, *WEB_OPTIONS, *_USUAL)
_USAGE = "usage: span top [OPTION...]"
_NOTES = "On the screen, ? lists the keys."
_COLOURS = {
    "good": "green",
    "busy": "cyan",
    "waiting": "yellow",
    "bad": "red",
    "ended": "faint",
    "dim": "faint",
    "accent": "blue",
    "title": "bold",
}
"""The terminal's own colours for the styles of the screen."""


def run(call: Invocation) -> int:
    """Show the queue until the user ends it, or print it once."""
    from overspan.bridge.cli.slurm.squeue import attach_values

    named = call._replace(verb="span top", words=tuple(attach_values(call.words)))
    words = read_words(named, OPTIONS, _USAGE, _NOTES)
    if words.rest:
        raise InvalidRequest(f"{words.rest[0]!r} is no option", remedy="`span top --help` lists the options")
    if words.has(WEB):
        from overspan.tui.web.command import serve_web

        return serve_web(words, OPTIONS, call.environment)
    open_source = _choose_source(call, words)
    options = read_options(call, words, open_source)
    if words.has("once"):
        return _print_once(call, options, open_source)
    if words.has(VIEWER):
        from overspan.tui.web.command import end_with_server

        end_with_server()
        orders = words.last(VIEWER) == ORDER
        options = options._replace(web=True, web_actions=orders, read_only=options.read_only or not orders)
    else:
        check_terminal(call.environment, all(map(os.isatty, (0, 1, 2))))
    from overspan.tui.terminal.terminal import prepare_environment

    prepare_environment(os.environ)
    # The rows of a large queue are many objects, none of which is garbage.
    gc.set_threshold(20_000, 20, 50)
    # Textual costs a quarter of a second of imports, which no other command needs.
    from overspan.tui.start import start

    return start(open_source, options, call.environment)


def _choose_source(call: Invocation, words: Words) -> OpenSource:
    """The user's daemon, or the simulated lab."""
    if not words.has("demo"):
        return call.client
    from overspan.tui.demo.source import open_demo

    return open_demo()


def check_terminal(environment: Mapping[str, str], terminal: bool) -> None:
    """Raise InvalidRequest where no screen can be shown."""
    name = environment.get("TERM", "")
    if not terminal:
        message = "the screen needs a terminal for stdin, stdout and stderr"
    elif name in ("", "dumb", "unknown"):
        message = f"the screen needs a terminal that can move its cursor, and TERM is {name!r}"
    else:
        return
    raise InvalidRequest(message, remedy="`span top --once` prints the queue once")


def read_options(call: Invocation, words: Words, open_source: OpenSource) -> TopOptions:
    """What the words choose. What chooses jobs has to be right; what only shows them is told, and the rest counts."""
    from overspan.bridge.cli.slurm.squeue import make_filter
    from overspan.tui.options import TopOptions

    troubles: list[str] = []
    wanted = make_filter(words, dict(call.environment))
    wanted = wanted._replace(users=_read_users(wanted.users, troubles))
    if wanted.clusters:
        _check_clusters(open_source, wanted.clusters)
    return TopOptions(
        wanted=wanted._replace(extent="core"),
        filter=" ".join(filter(None, (_filter_nodes(words.listed("nodelist")), words.last("filter")))),
        columns=_read_columns(words, troubles),
        sort=_read_sort(words.last("sort"), troubles),
        unfolded=words.has("array"),
        read_only=words.has("read-only"),
        ascii=words.has("ascii"),
        mouse=not words.has("no-mouse"),
        theme=words.last("theme"),
        troubles=tuple(troubles),
    )


def _read_users(words: tuple[str, ...], troubles: list[str]) -> tuple[str, ...]:
    """The users by name; one whom this machine does not know may still have jobs on a cluster."""
    from overspan.bridge.cli.references import find_user

    names = [find_user(word) for word in words]
    troubles += [f"this machine knows no user {word!r}" for word, name in zip(words, names) if not name]
    return tuple(name or word for word, name in zip(words, names))


def _check_clusters(open_source: OpenSource, names: tuple[str, ...]) -> None:
    """Raise InvalidRequest for a cluster that there is not. A daemon that does not answer is told on the screen."""
    try:
        with closing(open_source()) as client:
            check_clusters(client, names)
    except Unreachable:
        pass


def _read_columns(words: Words, troubles: list[str]) -> tuple[str, ...]:
    from overspan.bridge.listings.fields import LONG_FORMAT, START_FORMAT
    from overspan.tui.queue.columns import read_format

    given = [(name, value) for name, value in words.options if name in ("Format", "format")]
    given += [("format", LONG_FORMAT)] if words.has("long") else []
    given += [("format", START_FORMAT)] if words.has("start") else []
    if not given:
        return ()
    name, text = given[0]
    found = read_format(text, letters=name == "format")
    troubles += [found.trouble] if found.trouble else []
    return found.fields


def _read_sort(text: str, troubles: list[str]) -> str:
    """The fields of squeue's letters: `P,-p` is `partition,-priority_fraction`."""
    from overspan.bridge.listings.fields import SORTED

    found = []
    for word in filter(None, text.replace(" ", "").split(",")):
        letter = word.lstrip("+-")
        if letter in SORTED:
            found.append(("-" if word.startswith("-") else "") + SORTED[letter].name)
        else:
            troubles.append(f"--sort: there is no letter {letter!r} to sort by; those of -o are meant")
    return ",".join(found)


def _filter_nodes(names: tuple[str, ...]) -> str:
    """The filter that -w stands for."""
    if not names:
        return ""
    from overspan.bridge.model.slurm.hostlists import expand
    from overspan.tui.filter_language import spell_value

    try:
        nodes = expand(",".join(names))
    except ValueError as error:
        raise InvalidRequest(f"--nodelist={','.join(names)}: {error}") from None
    return f"node:{','.join(map(spell_value, nodes))}"


def _print_once(call: Invocation, options: TopOptions, open_source: OpenSource) -> int:
    """Print what the screen would show, all lines of it."""
    from overspan.tui.queue.shown import ask_enough
    from overspan.tui.queue.snapshot import join_line, write_snapshot
    from overspan.tui.terminal.terminal import read_traits

    options = options._replace(ascii=options.ascii or read_traits(call.environment, sys.stdout.encoding or "").ascii)
    for trouble in options.troubles:
        say(call, trouble)
    with closing(open_source()) as source:
        changes = source.queue_changes("", ask_enough(options).wanted)
    width = find_width(call.environment)
    colour = use_colour(sys.stdout, call.environment)

    def print_part(part: StyledText) -> str:
        return paint(part.text, _COLOURS[part.style], colour) if part.style in _COLOURS else part.text

    write("".join(join_line(line, print_part) + "\n" for line in write_snapshot(changes, options, width)))
    return 0
