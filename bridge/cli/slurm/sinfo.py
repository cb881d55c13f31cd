"""`span sinfo`: partitions and nodes of every cluster, in Slurm's columns."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import DATE, say, write
from overspan.bridge.cli.tables import sinfo_fields
from overspan.bridge.cli.tables.sinfo_fields import NodeRow
from overspan.bridge.cli.usage import check_clusters, complain, read_words
from overspan.bridge.listings.layout import Layout, parse_letters, parse_names, render
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.getopt import OPTIONAL, VALUE, Option, Words

OPTIONS = (
    Option("all", "a"),
    Option("clusters", "M", VALUE, "these clusters; `all`"),
    Option("dead", "d", help="nodes that do not answer"),
    Option("exact", "e"),
    Option("federation"),
    Option("Format", "O", VALUE, "long names: Partition,NodeList:30"),
    Option("format", "o", VALUE, 'letters: "%P %.6D %N"'),
    Option("future", "F"),
    Option("help", help="this text"),
    Option("hide"),
    Option("iterate", "i", VALUE, "repeat every so many seconds", "SECONDS"),
    Option("json", "", OPTIONAL, "one JSON document"),
    Option("list-reasons", "R", help="why nodes are not available"),
    Option("local"),
    Option("long", "l", help="more columns"),
    Option("noconvert"),
    Option("Node", "N", help="one line a node"),
    Option("nodes", "n", VALUE, "these nodes"),
    Option("noheader", "h", help="no header"),
    Option("partition", "p", VALUE, "these partitions"),
    Option("reservation", "T"),
    Option("responding", "r"),
    Option("sort", "S", VALUE),
    Option("states", "t", VALUE, "nodes in these states"),
    Option("summarize", "s", help="one line a partition"),
    Option("usage"),
    Option("verbose", "v"),
    Option("version", "V"),
    Option("yaml", "", OPTIONAL),
)
_USAGE = "usage: span sinfo [OPTION...]"
_MIN_AUTO_WIDTH = 9
_STATES = (
    "unknown down idle allocated ? mixed future drain drained draining no_respond reserved perfctrs cloud completing"
    " powering_down powered_down power_down powering_up fail maint reboot reboot^ unknown"
)
_SHORT = {"alloc": "allocated", "mix": "mixed", "comp": "completing", "drng": "draining", "resv": "reserved"}
_FORMATS = ("Format", "format", "list-reasons", "summarize", "long", "json", "yaml")
"""Options that ask for columns of Slurm's, or for a document."""
Node = dict[str, Any]


def run(call: Invocation) -> int:
    """Print the nodes, once or again and again."""
    words = read_words(call, OPTIONS, _USAGE)
    clusters = words.listed("clusters")
    with call.client() as client:
        check_clusters(client, clusters)
        while True:
            if words.has("iterate"):
                write(time.strftime(DATE) + "\n")
            code = _print(call, words, client.nodes(() if "all" in clusters else clusters))
            seconds = words.last("iterate")
            if not words.has("iterate"):
                return code
            if not seconds.isdigit() or int(seconds) == 0:
                raise InvalidRequest(f"Invalid iterate argument: {seconds}")
            write("\n")
            sys.stdout.flush()
            time.sleep(int(seconds))


def _print(call: Invocation, words: Words, document: dict[str, Any]) -> int:
    every: list[Node] = [node for node in document.get("nodes") or () if _in_partition(node, words)]
    fitted = _fits_terminal(words, call.environment)
    if not words.has("clusters") and not fitted:
        # As in Slurm, a line tells its cluster only where clusters were asked for.
        every = [{**node, "cluster": ""} for node in every] if not _documents(words) else every
    nodes = _choose(every, words)
    layout = choose_layout(words, call.environment.get("SINFO_FORMAT", ""), [])
    columns = [field.column for field in layout.fields]
    rows = sinfo_fields.gather(nodes, columns, words.has("Node"))
    if _documents(words):
        from overspan.bridge.cli.tables.node_json import write_lines

        write_lines(call, rows)
        return _say_silence(call, document)
    divided = any(column.header == "PARTITION" for column in columns)
    if divided and not words.has("Node") and not words.has("list-reasons"):
        rows += sinfo_fields.empty_rows(every, rows)
    now = float(document.get("now") or time.time())
    if fitted:
        from overspan.bridge.cli.tables.node_table import fit_nodes

        layout = fit_nodes(rows, now, by_node=words.has("Node"), titled=words.has("clusters"))
    else:
        layout = choose_layout(words, call.environment.get("SINFO_FORMAT", ""), rows)
    if words.has("long") and not words.has("iterate"):
        write(time.strftime(DATE, time.localtime(now)) + "\n")
    header = not words.has("noheader")
    if words.has("clusters"):
        for number, name in enumerate(dict.fromkeys(row.cluster for row in rows)):
            # As squeue: with -h neither titles nor blank lines.
            title = ("\n" if number else "") + f"CLUSTER: {name}\n" if header else ""
            write(title + render(layout, [row for row in rows if row.cluster == name], now, header))
    else:
        write(render(layout, rows, now, header))
    for fault in layout.faults:
        if words.has("Format"):
            say(call, f"error: Invalid job format specification: {fault}")
        else:
            complain(f"Invalid node format specification: {fault}")
    return _say_silence(call, document)


def _say_silence(call: Invocation, document: dict[str, Any]) -> int:
    """Say which clusters did not answer; 1 where one did not, as sinfo ends."""
    silent = [cluster for cluster in document.get("clusters") or () if cluster.get("message")]
    for cluster in silent:
        say(call, f"error: cluster {cluster.get('name')} does not answer: {cluster['message']}")
    return 1 if silent else 0


def choose_layout(words: Words, default: str, rows: Sequence[NodeRow]) -> Layout:
    """The format of the options; `%#P` and `%#N` are as wide as the longest text of the rows."""
    if words.has("Format"):
        return parse_names(words.last("Format"), sinfo_fields.NAMES)
    return parse_letters(fit_widths(choose_format(words, default), rows), sinfo_fields.LETTERS)


def choose_format(words: Words, default: str = "") -> str:
    """The format text of the options."""
    if words.has("format"):
        return words.last("format")
    if words.has("list-reasons"):
        return sinfo_fields.REASON_LONG_FORMAT if words.has("long") else sinfo_fields.REASON_FORMAT
    if words.has("summarize"):
        return sinfo_fields.SUMMARY_FORMAT
    if words.has("Node"):
        return sinfo_fields.NODE_LONG_FORMAT if words.has("long") else sinfo_fields.NODE_FORMAT
    return sinfo_fields.LONG_FORMAT if words.has("long") else default or sinfo_fields.DEFAULT_FORMAT


def fit_widths(text: str, rows: Sequence[NodeRow]) -> str:
    """Give `%#P` and `%#N` the width of the longest text, 9 at least, as sinfo does."""
    for letter in ("P", "N"):
        column = sinfo_fields.LETTERS[letter]
        width = max([len(column.text(row, 0)) for row in rows], default=0)
        width = max(width, _MIN_AUTO_WIDTH)
        text = text.replace(f"%#{letter}", f"%{width}{letter}").replace(f"%.#{letter}", f"%.{width}{letter}")
    return text


def _fits_terminal(words: Words, environment: Mapping[str, str]) -> bool:
    """Whether a person looks, who has asked for no format: a pipe has Slurm's own table, byte for byte."""
    asked = any(words.has(name) for name in _FORMATS)
    return sys.stdout.isatty() and not asked and not environment.get("SINFO_FORMAT")


def _documents(words: Words) -> bool:
    return words.has("json") or words.has("yaml")


def _in_partition(node: Node, words: Words) -> bool:
    return not words.has("partition") or node.get("partition") in words.listed("partition")


def _choose(nodes: list[Node], words: Words) -> list[Node]:
    if words.has("nodes"):
        from overspan.bridge.model.slurm.hostlists import expand

        try:
            names = set(expand(words.last("nodes")))
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        nodes = [node for node in nodes if node.get("name") in names]
    states = _parse_states(words.listed("states"))
    if states and "all" not in states:
        nodes = [node for node in nodes if str(node.get("state", "")).rstrip("*").startswith(states)]
    if words.has("list-reasons"):
        nodes = [node for node in nodes if node.get("reason")]
    if words.has("dead") != words.has("responding"):
        nodes = [node for node in nodes if str(node.get("state", "")).endswith("*") == words.has("dead")]
    return nodes


def _parse_states(items: Sequence[str]) -> tuple[str, ...]:
    """Node states, long or short, in any case. Raises InvalidRequest as sinfo does."""
    known = _STATES.split()
    states = []
    for item in items:
        text = item.lower()
        text = _SHORT.get(text, text)
        if text != "all" and text not in known:
            raise InvalidRequest(f'Bad state string: "{item}"\nvalid states: {",".join(known)}')
        states.append(text)
    return tuple(states)
