"""`span show`: a job in full: its facts, tasks, attempts and what happened."""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import paint, say, use_colour, write, write_json
from overspan.bridge.cli.references import find_job, split_ref
from overspan.bridge.client import Client, JobFilter, SentForm, Variable
from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.listings.array_summary import describe_summaries, summarize_elements, write_summaries
from overspan.bridge.listings.job_facts import (
    TASK_HEADER,
    attempt_lines,
    list_facts,
    list_task_reasons,
    task_cells,
)
from overspan.bridge.model.errors import NotFound

_COLOURS = {
    "RUNNING": "green",
    "COMPLETED": "green",
    "PENDING": "yellow",
    "CONFIGURING": "yellow",
    "COMPLETING": "cyan",
}


def run(call: Invocation) -> int:
    """Print one job."""
    examples = "  span show 42\n  span show rlhf --json\n  span show 42 --sent\n"
    parser = make_parser(call, "Show a job: its tasks, attempts and ends.", examples)
    parser.add_argument("job", metavar="JOB", help="id, N+k, N.TASK or name")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument(
        "--sent", action="store_true", help="only what its cluster was sent: a script, manifests, a plan"
    )
    parts.add_argument("--env", action="store_true", help="only its variables, without the values of secrets")
    parser.add_argument("--json", action="store_true", help="everything as one JSON document")
    chosen = parser.parse_args(call.words)
    with call.client() as client:
        ref, task = split_ref(find_job(client, chosen.job))
        if chosen.sent:
            return _show_sent(call, client.sent(ref), chosen.json)
        if chosen.env:
            return _show_variables(client.variables(f"{ref}.{task}" if task else ref), chosen.json)
        if "[" in ref:
            return _show_elements(call, client, ref, chosen.json)
        job = client.show(ref)
        names = [str(known["name"]) for known in job["tasks"]]
        if task and task not in names:
            raise NotFound(f"job {ref} has no task {task}", remedy=f"its tasks: {', '.join(names)}")
        if job.get("array"):
            listing = client.history(JobFilter(ids=(ref,)))
            job["array"]["elements"] = summarize_elements(listing.rows, listing.now)
    if chosen.json:
        write_json({"format": 1, "job": _document(job)})
    else:
        write(job_text(job, use_colour(sys.stdout, call.environment)))
    return 0


def _show_sent(call: Invocation, sent: SentForm, as_json: bool) -> int:
    """Show what the cluster was sent; where that is known from goes to stderr."""
    if as_json:
        write_json({"format": 1, **sent._asdict()})
        return 0
    say(call, sent.source)
    text = clean_text(sent.text, keep="\n\t") if sys.stdout.isatty() else sent.text
    write(text if text.endswith("\n") else text + "\n")
    return 0


def _show_variables(variables: Sequence[Variable], as_json: bool) -> int:
    if as_json:
        write_json({"format": 1, "variables": [variable._asdict() for variable in variables]})
    else:
        write("".join(f"{line}\n" for line in write_variables(variables)))
    return 0


def write_variables(variables: Sequence[Variable]) -> Iterator[str]:
    """Write variables as sh(1) reads them, below a comment with where they are from."""
    for (task, submitted), found in itertools.groupby(variables, lambda each: (each.task, each.origin == "submission")):
        yield "# of the submitter's environment" if submitted else f"# of the task {task}" if task else "# of the job"
        for each in found:
            value = shlex.quote(each.value)
            yield f"{each.name}={value}" + ("  # hidden" if each.hidden else "")


def _show_elements(call: Invocation, client: Client, ref: str, as_json: bool) -> int:
    """Show some elements of an array: each that is a job, and how many wait."""
    rows = client.history(JobFilter(ids=(ref,))).rows
    if not rows:
        raise NotFound(f"no job {ref}", remedy="`span squeue` and `span sacct` list the jobs")
    jobs = [client.show(row.ref) for row in rows if row.array_index is not None]
    rest = [f"{row.ref} {row.state}" for row in rows if row.array_waiting]
    if as_json:
        write_json({"format": 1, "jobs": jobs, "waiting": [row.ref for row in rows if row.array_waiting]})
        return 0
    texts = [job_text(job, use_colour(sys.stdout, call.environment)) for job in jobs]
    write("\n".join([*texts, *(f"{line}\n" for line in rest)]))
    return 0


def _document(job: Mapping[str, Any]) -> Mapping[str, Any]:
    array = job.get("array")
    return job if not array else {**job, "array": {**array, "elements": describe_summaries(array["elements"])}}


def job_text(job: Mapping[str, Any], colour: bool = False) -> str:
    """Write a job for people: facts, a line for each task, and a line for each attempt that is worth one."""
    now, state = float(job.get("now") or 0), str(job.get("state"))
    painted = paint(state, _COLOURS.get(state, "red"), colour)
    facts = ((name, painted + text.removeprefix(state) if name == "State" else text) for name, text in list_facts(job))
    lines = [f"{name + ':':<12} {value}" for name, value in facts]
    array = job.get("array") or {}
    if array.get("elements"):
        return "\n".join([*lines, "", *write_summaries(job.get("id"), array["elements"])]) + "\n"
    tasks = job.get("tasks") or []
    rows = [TASK_HEADER, *(task_cells(job, task, now) for task in tasks)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(TASK_HEADER))]
    lines += [f"{'Waits:':<12} {text}" for text in list_task_reasons(job)]
    lines.append("")
    lines += ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() for row in rows]
    ends = [line for task in tasks for line in attempt_lines(task)]
    lines += ["", *ends] if ends else []
    return "\n".join(lines) + "\n"
