"""`span scontrol`: show and change jobs in Slurm's words."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from overspan.bridge.cli import records_text
from overspan.bridge.cli.call import Call
from overspan.bridge.cli.getopt import OPTIONAL, Option, Words, help_text, parse
from overspan.bridge.cli.output import write, write_json
from overspan.bridge.cli.references import is_ref
from overspan.bridge.client import Client, JobFilter
from overspan.bridge.model.durations import parse_time_limit, parse_when
from overspan.bridge.model.errors import InvalidRequest, NotFound, OverspanError

OPTIONS = (
    Option("all", "a"),
    Option("details", "d"),
    Option("help", "h", help="this text"),
    Option("json", "", OPTIONAL, "one JSON document"),
    Option("oneliner", "o", help="one line a record"),
    Option("quiet", "Q"),
    Option("verbose", "v"),
    Option("version", "V"),
)
_USAGE = "usage: span scontrol [OPTION...] COMMAND [ARGUMENT...]"
_COMMANDS = """\
  show job [ID], show node [NAME], show partition [NAME], show config
  show hostnames LIST, show hostlist NAMES
  hold ID..., release ID..., requeue ID..., requeuehold ID...
  update JobId=ID TimeLimit=.. Priority=.. JobName=.. Comment=.. Partition=.. StartTime=.. Nice=..
  ping"""
_ORDERS = ("hold", "uhold", "release", "requeue", "requeuehold")
_UPDATES = {"jobname": "name", "name": "name", "comment": "comment", "partition": "partition"}


def run(call: Call) -> int:
    """Carry out one scontrol command."""
    words = parse(call.words, OPTIONS)
    if words.has("help") or not words.rest:
        write(help_text(_USAGE, OPTIONS, _COMMANDS))
        return 0 if words.has("help") else 1
    if words.has("version"):
        from overspan.bridge.cli.commands.version import slurm_version

        write(slurm_version())
        return 0
    verb, rest = words.rest[0].lower(), words.rest[1:]
    with call.client() as client:
        if verb == "show":
            return _show(client, words, rest)
        if verb in _ORDERS:
            return _order(client, verb, rest)
        if verb == "update":
            return _update(client, rest)
        if verb == "ping":
            host = client.ping().get("host", "localhost")
            write(f"Slurmctld(primary) at {host} is UP\n")
            return 0
    raise InvalidRequest(f"invalid keyword: {words.rest[0]}", remedy="`span scontrol --help` lists the commands")


def parse_update(words: Sequence[str], now: float) -> tuple[str, dict[str, Any]]:
    """Read `JobId=42 TimeLimit=10 ...`: the id, and the changes as the API names them. Raises InvalidRequest."""
    ref, changes = "", dict[str, Any]()
    for word in words:
        key, equals, value = word.partition("=")
        name = key.lower()
        if not equals:
            raise InvalidRequest(f"Invalid input: {word}  Request aborted")
        try:
            if name in ("jobid", "job"):
                ref = value
            elif name == "timelimit":
                changes["time_limit"] = parse_time_limit(value)
            elif name in ("priority", "nice"):
                changes[name] = int(value)
            elif name == "starttime":
                changes["begin"] = parse_when(value, now)
            elif name in _UPDATES:
                changes[_UPDATES[name]] = value
            else:
                raise InvalidRequest(f"Update of this parameter is not supported: {word}  Request aborted")
        except ValueError as error:
            raise InvalidRequest(f"Invalid {key} value: {error}") from None
    if not is_ref(ref):
        raise InvalidRequest(f"Invalid job id specified: {ref}" if ref else "No JobId= given to update")
    return ref, changes


def _show(client: Client, words: Words, rest: Sequence[str]) -> int:
    entity, names = (rest[0].lower(), rest[1:]) if rest else ("", ())
    one_line = words.has("oneliner")
    if entity in ("job", "jobs"):
        return _show_jobs(client, words, names)
    if entity in ("node", "nodes", "partition", "partitions"):
        nodes = client.nodes().get("nodes") or []
        records = _node_records(nodes, names) if entity.startswith("node") else _partition_records(nodes, names)
        if words.has("json"):
            write_json({"format": 1, "nodes": nodes})
        else:
            write(records_text.write_records(records, one_line))
        return 0
    if entity == "config":
        facts = client.ping()
        write("".join(f"{key:<24}= {value}\n" for key, value in sorted(facts.items()) if key != "format"))
        return 0
    if entity in ("hostnames", "hostname", "hostlist"):
        return _show_hosts(entity, names)
    raise InvalidRequest(f"invalid entity: {rest[0] if rest else ''} for keyword: show")


def _show_hosts(entity: str, names: Sequence[str]) -> int:
    import os

    from overspan.bridge.model.hostlists import compress, expand

    text = ",".join(names) or os.environ.get("SLURM_JOB_NODELIST", "")
    try:
        hosts = expand(text)
    except ValueError as error:
        raise InvalidRequest(f"Invalid hostlist: {error}") from None
    write(f"{compress(hosts)}\n" if entity == "hostlist" else "".join(f"{host}\n" for host in hosts))
    return 0


def _show_jobs(client: Client, words: Words, names: Sequence[str]) -> int:
    for name in names:
        if not is_ref(name):
            raise InvalidRequest(f"Invalid job id specified: {name}")
    wanted = JobFilter(ids=tuple(names), tasks=True)
    listing = client.history(wanted) if names else client.queue(wanted)
    if names and not listing.rows:
        print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
        return 1
    if words.has("json"):
        from overspan.bridge.cli.commands.squeue import row_document

        write_json({"format": 1, "jobs": [row_document(row) for row in listing.rows]})
    elif not listing.rows:
        write("No jobs in the system\n")
    else:
        records = [records_text.job_record(row, listing.now) for row in listing.rows]
        write(records_text.write_records(records, words.has("oneliner")))
    return 0


def _node_records(nodes: Sequence[dict[str, Any]], names: Sequence[str]) -> list[list[str]]:
    chosen = [node for node in nodes if not names or node.get("name") in names]
    if not chosen and names:
        raise NotFound(f"Node {names[0]} not found")
    return [records_text.node_record(node) for node in chosen]


def _partition_records(nodes: Sequence[dict[str, Any]], names: Sequence[str]) -> list[list[str]]:
    by_name: dict[str, list[dict[str, Any]]] = {}
    for node in nodes:
        if not names or node.get("partition") in names:
            by_name.setdefault(str(node.get("partition")), []).append(node)
    if not by_name and names:
        raise NotFound(f"Partition {names[0]} not found")
    return [records_text.partition_record(name, members) for name, members in by_name.items()]


def _order(client: Client, verb: str, refs: Sequence[str]) -> int:
    if not refs:
        raise InvalidRequest(f"too few arguments for keyword:{verb}")
    code = 0
    for ref in (part for word in refs for part in word.split(",") if part):
        try:
            if not is_ref(ref):
                raise NotFound("Invalid job id specified")
            if verb in ("hold", "uhold"):
                client.hold(ref)
            elif verb == "release":
                client.release(ref)
            else:
                client.requeue(ref, hold=verb == "requeuehold")
        except OverspanError as error:
            if error.transient:
                raise
            text = "Invalid job id specified" if isinstance(error, NotFound) else error.message
            print(f"{text} for job {ref}", file=sys.stderr)
            code = 1
    return code


def _update(client: Client, words: Sequence[str]) -> int:
    ref, changes = parse_update(words, time.time())
    try:
        client.update(ref, changes)
    except NotFound:
        print(f"Invalid job id specified for job {ref}", file=sys.stderr)
        return 1
    return 0
