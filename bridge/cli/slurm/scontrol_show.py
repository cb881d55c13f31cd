"""`scontrol show`: jobs, steps, nodes, partitions, the configuration and host lists."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, tell_missing, write
from overspan.bridge.cli.references import is_ref
from overspan.bridge.cli.slurm import scontrol_records
from overspan.bridge.cli.usage import complain
from overspan.bridge.client import JobFilter, JobRow, Listing
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.getopt import Words
from overspan.bridge.model.slurm.words import INVALID_JOB

_EMPTY = {
    "reservations": "No reservations in the system",
    "licenses": "No licenses configured in Slurm.",
    "burstbuffer": "No burst buffer records",
    "federation": "No federation configured",
}
_NO_JOB = f"slurm_load_jobs error: {INVALID_JOB}"


def show(call: Invocation, words: Words, rest: Sequence[str]) -> int:
    """Carry out `show ENTITY [NAME...]`; an entity's name may be shortened, and its object stand behind `=`."""
    if not rest:
        return complain("too few arguments for keyword:show")
    entity, _, attached = rest[0].partition("=")
    names = (attached, *rest[1:]) if attached else tuple(rest[1:])
    for known, carry_out in _ENTITIES.items():
        if entity and (known.startswith(entity.lower()) or f"{known}s" == entity.lower()):
            return carry_out(call, words, names)
    for known, text in _EMPTY.items():
        if known.startswith(entity.lower()):
            write(f"{known.capitalize().rstrip('s')} {names[0]} not found\n" if names else text + "\n")
            return 1 if names else 0
    return complain(f"invalid entity:{rest[0]} for keyword:show ")


def _show_hosts(kind: str) -> Callable[[Invocation, Words, Sequence[str]], int]:
    def run(call: Invocation, words: Words, names: Sequence[str]) -> int:
        from overspan.bridge.model.slurm.answers import answer_hosts

        answer = answer_hosts(kind, names, call.environment)
        write(answer.text)
        return complain(answer.error, answer.code) if answer.error else answer.code

    return run


def _show_jobs(call: Invocation, words: Words, names: Sequence[str]) -> int:
    names = tuple(name for word in names for name in word.split(",") if name)
    for name in names:
        if not is_ref(name):
            return complain(f"scontrol_print_job error: {INVALID_JOB}")
    listing = _find_jobs(call, names)
    tell_missing(call, listing)
    rows = _elements_named(listing.rows, names)
    if names and not rows:
        base = re.split("[_+]", names[0])[0]
        if base != names[0] and _find_jobs(call, (base,)).rows:
            write(f"Job {names[0]} not found\n")
            return 1
        return complain(_NO_JOB)
    if words.has("json") or words.has("yaml"):
        from overspan.bridge.cli.tables.slurm_json import write_jobs

        write_jobs(call, rows, listing.now)
    elif not rows:
        write("No jobs in the system\n")
    else:
        records = [scontrol_records.job_record(row, listing.now, words.has("details")) for row in rows]
        write(scontrol_records.write_records(records, words.has("oneliner")))
    return 0


def _find_jobs(call: Invocation, names: Sequence[str], steps: bool = False) -> Listing:
    wanted = JobFilter(states=("all",), ids=tuple(names), tasks=True, steps=steps)
    with call.client() as client:
        # Jobs that ended long ago have left the queue, but are still found by id.
        return client.history(wanted) if names else client.queue(wanted)


def _elements_named(rows: list[JobRow], names: Sequence[str]) -> list[JobRow]:
    """Rows in the order of Slurm: what waits of an array first; elements that are named stand alone."""
    if any("_" in name for name in names):
        from overspan.bridge.cli.tables.array_elements import split_elements

        rows = split_elements(rows)
    return sorted(rows, key=lambda row: (row.array_id or row.id, not row.array_waiting, row.raw_id))


def _show_steps(call: Invocation, words: Words, names: Sequence[str]) -> int:
    from overspan.bridge.cli.tables.steps import choose_steps, gather_steps, running_steps

    listing = _find_jobs(call, [name.partition(".")[0] for name in names], steps=True)
    steps = choose_steps(running_steps(listing.rows, gather_steps(listing.steps)), names)
    if names and not listing.rows:
        return complain(f"slurm_get_job_steps error: {INVALID_JOB}")
    if names and not steps:
        job, _, step = names[0].partition(".")
        write(f"Job step {job}.{step} not found\n")
        return 1
    if not steps:
        write("No job steps in the system\n")
        return 0
    write(scontrol_records.write_records([scontrol_records.step_record(step) for step in steps], words.has("oneliner")))
    return 0


def _show_nodes(call: Invocation, words: Words, names: Sequence[str]) -> int:
    from overspan.bridge.model.slurm.hostlists import expand

    document = _nodes(call)
    by_name: dict[str, list[dict[str, Any]]] = {}
    for node in document.get("nodes") or ():
        by_name.setdefault(str(node.get("name")), []).append(node)
    try:
        asked = [name for text in names for name in expand(text)]
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    for name in asked:
        if name not in by_name:
            write(f"Node {name} not found\n")
            return 1
    chosen = [by_name[name] for name in asked] or list(by_name.values())
    if words.has("json") or words.has("yaml"):
        from overspan.bridge.cli.tables.node_json import write_nodes

        write_nodes(call, chosen)
        return 0
    now = float(document.get("now") or time.time())
    records = [scontrol_records.node_record(nodes, now) for nodes in chosen]
    write(scontrol_records.write_records(records, words.has("oneliner")) if records else "No nodes in the system\n")
    return 0


def _show_partitions(call: Invocation, words: Words, names: Sequence[str]) -> int:
    by_name: dict[str, list[dict[str, Any]]] = {}
    for node in _nodes(call).get("nodes") or ():
        by_name.setdefault(str(node.get("partition")), []).append(node)
    for name in names:
        if name not in by_name:
            write(f"Partition {name} not found\n")
            return 1
    chosen = {name: nodes for name, nodes in by_name.items() if not names or name in names}
    if words.has("json") or words.has("yaml"):
        from overspan.bridge.cli.tables.node_json import write_partitions

        write_partitions(call, chosen)
        return 0
    records = [scontrol_records.partition_record(name, nodes) for name, nodes in chosen.items()]
    write(
        scontrol_records.write_records(records, words.has("oneliner")) if records else "No partitions in the system\n"
    )
    return 0


def _nodes(call: Invocation) -> dict[str, Any]:
    with call.client() as client:
        document = client.nodes()
    for cluster in document.get("clusters") or ():
        if cluster.get("message"):
            say(call, f"cluster {cluster.get('name')}: {cluster['message']}")
    return document


def _show_configuration(call: Invocation, words: Words, names: Sequence[str]) -> int:
    from overspan.bridge.cli.service.version import SLURM_VERSION
    from overspan.bridge.cli.slurm.scontrol_config import configuration_text

    with call.client() as client:
        ping, clusters = client.ping(), client.clusters()
    write(configuration_text(ping, clusters, time.time(), SLURM_VERSION))
    return 0


def _show_daemons(call: Invocation, words: Words, names: Sequence[str]) -> int:
    write("slurmctld \n")
    return 0


def _show_topology(call: Invocation, words: Words, names: Sequence[str]) -> int:
    return complain("scontrol: error: No topology information available", 0)


_ENTITIES: dict[str, Callable[[Invocation, Words, Sequence[str]], int]] = {
    "config": _show_configuration,
    "daemons": _show_daemons,
    "hostnames": _show_hosts("hostnames"),
    "hostlist": _show_hosts("hostlist"),
    "hostlistsorted": _show_hosts("hostlistsorted"),
    "jobs": _show_jobs,
    "nodes": _show_nodes,
    "partitions": _show_partitions,
    "steps": _show_steps,
    "topology": _show_topology,
}
"""Entities to show. A word means the first one that begins with it."""
