"""`span sinfo`: partitions and nodes of every cluster, in Slurm's columns."""

from __future__ import annotations

from overspan.bridge.cli import node_columns
from overspan.bridge.cli.call import Call
from overspan.bridge.cli.getopt import OPTIONAL, VALUE, Option, Words, help_text, parse
from overspan.bridge.cli.layout import parse_letters, render
from overspan.bridge.cli.node_columns import NodeRow
from overspan.bridge.cli.output import say, write, write_json
from overspan.bridge.model.errors import InvalidRequest

OPTIONS = (
    Option("all", "a"),
    Option("clusters", "M", VALUE, "these clusters; `all`"),
    Option("exact", "e"),
    Option("format", "o", VALUE, 'letters: "%P %.6D %N"'),
    Option("help", help="this text"),
    Option("json", "", OPTIONAL, "one JSON document"),
    Option("list-reasons", "R", help="why nodes are not available"),
    Option("long", "l", help="more columns"),
    Option("noconvert"),
    Option("Node", "N", help="one line a node"),
    Option("nodes", "n", VALUE, "these nodes"),
    Option("noheader", "h", help="no header"),
    Option("partition", "p", VALUE, "these partitions"),
    Option("states", "t", VALUE, "nodes in these states"),
    Option("summarize", "s", help="one line a partition"),
    Option("version", "V"),
)
_USAGE = "usage: span sinfo [OPTION...]"
_MIN_AUTO_WIDTH = 9


def run(call: Call) -> int:
    """Print the nodes."""
    words = parse(call.words, OPTIONS)
    if words.has("help"):
        write(help_text(_USAGE, OPTIONS))
        return 0
    if words.has("version"):
        from overspan.bridge.cli.commands.version import slurm_version

        write(slurm_version())
        return 0
    if words.rest:
        raise InvalidRequest(f"Unrecognized option: {words.rest[0]}")
    clusters = words.listed("clusters")
    with call.client() as client:
        document = client.nodes(() if "all" in clusters else clusters)
    nodes = _choose(document.get("nodes") or [], words)
    if call.json:
        write_json({"format": 1, "clusters": document.get("clusters") or [], "nodes": nodes})
        return 0
    text = choose_format(words, call.environment.get("SINFO_FORMAT", ""))
    letters = parse_letters(text.replace("#", ""), node_columns.LETTERS)
    shown = {key for key, column in node_columns.LETTERS.items() if any(f.column is column for f in letters.fields)}
    rows = node_columns.gather(nodes, shown, words.has("Node"))
    layout = parse_letters(fit_widths(text, rows), node_columns.LETTERS)
    write(render(layout, rows, float(document.get("now") or 0), not words.has("noheader")))
    for cluster in document.get("clusters") or ():
        if cluster.get("message"):
            say(call, f"cluster {cluster.get('name')}: {cluster['message']}")
    return 0


def choose_format(words: Words, default: str = "") -> str:
    """The format text of the options."""
    if words.has("format"):
        return words.last("format")
    if words.has("list-reasons"):
        return "%20E %N"
    if words.has("summarize"):
        return node_columns.SUMMARY_FORMAT
    if words.has("Node"):
        return node_columns.NODE_LONG_FORMAT if words.has("long") else node_columns.NODE_FORMAT
    return node_columns.LONG_FORMAT if words.has("long") else default or node_columns.DEFAULT_FORMAT


def fit_widths(text: str, rows: list[NodeRow]) -> str:
    """Give `%#P` and `%#N` the width of the longest text, 9 at least, as sinfo does."""
    for letter in ("P", "N"):
        column = node_columns.LETTERS[letter]
        width = max([len(column.text(row, 0)) for row in rows], default=0)
        width = max(width, _MIN_AUTO_WIDTH)
        text = text.replace(f"%#{letter}", f"%{width}{letter}").replace(f"%.#{letter}", f"%.{width}{letter}")
    return text


def _choose(nodes: list[dict[str, object]], words: Words) -> list[dict[str, object]]:
    partitions = words.listed("partition")
    states = tuple(state.lower() for state in words.listed("states"))
    if words.has("nodes"):
        from overspan.bridge.model.hostlists import expand

        try:
            names = set(expand(words.last("nodes")))
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        nodes = [node for node in nodes if node.get("name") in names]
    if partitions:
        nodes = [node for node in nodes if node.get("partition") in partitions]
    if states and "all" not in states:
        nodes = [node for node in nodes if str(node.get("state", "")).startswith(states)]
    if words.has("list-reasons"):
        nodes = [node for node in nodes if node.get("reason")]
    return nodes
