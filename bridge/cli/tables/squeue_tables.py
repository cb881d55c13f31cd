"""squeue's tables and documents made of rows: what is not the daemon's own table."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import DATE, find_width, say, tell_missing, tell_stale, write
from overspan.bridge.cli.usage import complain
from overspan.bridge.client import Client, JobFilter, Listing
from overspan.bridge.listings.fields import DEFAULT_FORMAT, LETTERS, LONG_FORMAT, START_FORMAT, long_names
from overspan.bridge.listings.layout import Layout, parse_letters, parse_names, render, write_header
from overspan.bridge.listings.rows import WHOLE, JobRow, join_extents
from overspan.bridge.listings.sorting import DEFAULT_SORT, parse_sort, sort_extent, sort_rows
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.getopt import Words
from overspan.bridge.model.slurm.words import INVALID_JOB

_MIN_JOB_AGE = 300
"""Seconds for which Slurm's squeue knows a finished job (MinJobAge)."""


def print_rows(call: Invocation, client: Client, words: Words, wanted: JobFilter) -> int:
    """Print the queue, by the options that change its lines."""
    layout = choose_layout(words, call.environment)
    sort = words.last("sort") or call.environment.get("SQUEUE_SORT") or DEFAULT_SORT
    documents = words.has("json") or words.has("yaml")
    try:
        keys = parse_sort(sort)
    except InvalidRequest:
        write("" if words.has("noheader") or documents else write_header(layout) + "\n")
        raise
    extents = [WHOLE] if documents or words.has("steps") else [layout.extent, sort_extent(keys)]
    listing = client.queue(wanted._replace(extent=join_extents(extents), steps=words.has("steps")))
    names = words.listed("nodelist") + words.listed("nodes") + words.listed("node")
    rows = _on_nodes(client, listing.rows, names)
    if not rows and len(words.listed("jobs")) == 1 and not _is_known(client, wanted.ids, listing.now):
        return complain(f"slurm_load_jobs error: {INVALID_JOB}")
    if words.has("array") or any("_" in ref for ref in wanted.ids):
        from overspan.bridge.cli.tables.array_elements import name_elements, split_elements

        rows = split_elements(rows) if words.has("array") else name_elements(rows)
    rows = sort_rows(rows, sort, listing.now)
    if documents:
        from overspan.bridge.cli.tables.slurm_json import write_jobs

        write_jobs(call, rows, listing.now)
    elif words.has("steps"):
        _write_steps(call, words, rows, listing)
    else:
        if _fits_terminal(words, call.environment):
            from overspan.bridge.listings.fitting import fit_queue

            layout = fit_queue(rows, listing.now, find_width(call.environment))
        _write_tables(words, layout, rows, listing)
        for fault in layout.faults:
            say(call, f"error: Invalid job format specification: {fault}")
        tell_stale(call, listing)
    tell_missing(call, listing)
    return 0


def _fits_terminal(words: Words, environment: Mapping[str, str]) -> bool:
    """Whether a person looks, who has asked for no format: a pipe has Slurm's own table, byte for byte."""
    asked = any(words.has(name) for name in ("Format", "format", "long", "start"))
    named = environment.get("SQUEUE_FORMAT") or environment.get("SQUEUE_FORMAT2")
    return sys.stdout.isatty() and not asked and not named


def choose_layout(words: Words, environment: Mapping[str, str]) -> Layout:
    """The format: -o or -O, then -l and --start, SQUEUE_FORMAT, SQUEUE_FORMAT2, Slurm's default."""
    given = [name for name, _ in words.options if name in ("Format", "format")]
    if len(set(given)) > 1:
        both = ("-O (--Format)", "-o (--format)") if given[0] == "format" else ("-o (--format)", "-O (--Format)")
        raise InvalidRequest(" is incompatible with ".join(both))
    if words.has("Format"):
        return _parse_names(words.last("Format"))
    if words.has("format"):
        return parse_letters(words.last("format"), LETTERS)
    if words.has("long"):
        return parse_letters(LONG_FORMAT, LETTERS)
    if words.has("start"):
        return parse_letters(START_FORMAT, LETTERS)
    if not environment.get("SQUEUE_FORMAT") and environment.get("SQUEUE_FORMAT2"):
        return _parse_names(environment["SQUEUE_FORMAT2"])
    return parse_letters(environment.get("SQUEUE_FORMAT") or DEFAULT_FORMAT, LETTERS)


def _parse_names(text: str) -> Layout:
    return parse_names(text, long_names())


def _write_tables(words: Words, layout: Layout, rows: list[JobRow], listing: Listing) -> None:
    if words.has("long") and not words.has("iterate") and not words.has("noheader"):
        write(time.strftime(DATE, time.localtime(listing.now)) + "\n")
    header = not words.has("noheader")
    if words.has("clusters"):
        named = [name for name in words.listed("clusters") if name != "all"]
        _write_by_cluster(layout, rows, listing, named, header)
    else:
        write(render(layout, rows, listing.now, header))


def _write_steps(call: Invocation, words: Words, rows: list[JobRow], listing: Listing) -> None:
    """Print the steps that run; -s names steps, -j jobs."""
    from overspan.bridge.cli.tables import steps

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


def _write_by_cluster(layout: Layout, rows: list[JobRow], listing: Listing, named: Sequence[str], header: bool) -> None:
    """Slurm's form for -M: each cluster's name before its table, of those without jobs too; nothing of it with -h."""
    by_cluster: dict[str, list[JobRow]] = {name: [] for name in named}
    for row in rows:
        by_cluster.setdefault(row.cluster, []).append(row)
    for number, name in enumerate(by_cluster if named else sorted(by_cluster)):
        title = ("\n" if number else "") + f"CLUSTER: {name}\n" if header else ""
        write(title + render(layout, by_cluster[name], listing.now, header))


def _is_known(client: Client, ids: tuple[str, ...], now: float) -> bool:
    rows = client.history(JobFilter(ids=tuple(ref.partition("_")[0] for ref in ids), limit=1)).rows
    return any(row.ended_at is None or now - row.ended_at < _MIN_JOB_AGE for row in rows)


def _on_nodes(client: Client, rows: list[JobRow], names: Sequence[str]) -> list[JobRow]:
    if not names:
        return rows
    from overspan.bridge.model.slurm.hostlists import expand

    try:
        asked = set(expand(",".join(names)))
    except ValueError:
        raise InvalidRequest(f"'{','.join(names)}' invalid entry for --nodelist") from None
    known = {str(node.get("name")) for node in client.nodes().get("nodes") or ()}
    for name in sorted(asked - known):
        raise InvalidRequest(f"Invalid node name {name}")
    return [row for row in rows if asked.intersection(expand(row.node_list))]
