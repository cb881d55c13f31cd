"""`span show`: a job in full: its facts, tasks, attempts and what happened."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.jobs.array_summary import describe_summaries, summarize_elements, write_summaries
from overspan.bridge.cli.output import paint, use_colour, write, write_json
from overspan.bridge.cli.references import find_job, split_ref
from overspan.bridge.client import Client, JobFilter
from overspan.bridge.listings.texts import first_word
from overspan.bridge.model.durations import format_elapsed, format_limit, format_timestamp
from overspan.bridge.model.errors import NotFound

_COLOURS = {
    "RUNNING": "green",
    "COMPLETED": "green",
    "PENDING": "yellow",
    "CONFIGURING": "yellow",
    "COMPLETING": "cyan",
}
_HEADER = ("ID", "TASK", "STATE", "REASON", "NODES", "TIME", "LIMIT", "ATTEMPT", "EXIT", "NODELIST")


def run(call: Invocation) -> int:
    """Print one job."""
    parser = make_parser(call, "Show a job: its tasks, attempts and ends.", "  span show 42\n  span show rlhf --json\n")
    parser.add_argument("job", metavar="JOB", help="id, N+k, N.TASK or name")
    parser.add_argument("--json", action="store_true", help="everything as one JSON document")
    chosen = parser.parse_args(call.words)
    with call.client() as client:
        ref, task = split_ref(find_job(client, chosen.job))
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
    now = float(job.get("now") or 0)
    state = str(job.get("state"))
    reason = f" ({job['reason']})" if job.get("reason") not in (None, "", "None") else ""
    place = str(job.get("cluster") or "") + ("" if job.get("configured", True) else " (not configured)")
    array = job.get("array") or {}
    throttle = f", {array['throttle']} at once" if array.get("throttle") else ""
    facts = [
        ("Job", f"{job.get('id')}  {job.get('name')}"),
        ("State", paint(state, _COLOURS.get(state, "red"), colour) + reason),
        *(("Refused", line) for line in str(job.get("refusal") or "").splitlines()),
        ("Exit", _exit(job) if state not in ("PENDING", "CONFIGURING", "RUNNING") else ""),
        ("User", f"{job.get('user')}"),
        ("Cluster", " ".join(filter(None, (place, str(job.get("native_id") or ""))))),
        ("Hindered", str(job.get("obstacle") or "") if job.get("obstacle") != place else ""),
        ("Waits too", ", ".join(_bid_text(bid) for bid in job.get("bids") or ())),
        ("Submitted", format_timestamp(job.get("submitted_at"), "")),
        ("Element", str(job.get("element") or "")),
        ("Waiting", f"{array['waiting']}{throttle}" if array.get("waiting") else ""),
        ("Cancelled", str(array.get("cancelled") or "")),
        ("In group", str(job.get("parent") or "")),
        ("Joined by", " ".join(map(str, job.get("joined") or ()))),
        ("Depends on", str(job.get("dependency") or "")),
        ("Begins", format_timestamp(job.get("begin"), "")),
        ("Expected", format_timestamp(job.get("expected_start"), "") if state == "PENDING" else ""),
        ("Started", format_timestamp(job.get("started_at"), "")),
        ("Ended", format_timestamp(job.get("ended_at"), "")),
        ("Stale since", " ".join(filter(None, (format_timestamp(job.get("stale_since"), ""), job.get("stale_why"))))),
        ("Command", str(job.get("command") or "")),
        ("Directory", str(job.get("work_dir") or "")),
        ("Comment", str(job.get("comment") or "")),
    ]
    lines = [f"{name + ':':<12} {value}" for name, value in facts if value]
    lines += [f"{'Note:':<12} {note}" for note in job.get("notes") or ()]
    if array.get("elements"):
        return "\n".join([*lines, "", *write_summaries(job.get("id"), array["elements"])]) + "\n"
    tasks = job.get("tasks") or []
    rows = [_HEADER, *(_task_cells(job, task, now) for task in tasks)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADER))]
    words = (f"{task.get('name')}: {task.get('reason')}" for task in tasks if _says_more(task, job))
    lines += [f"{'Waits:':<12} {text}" for text in words]
    lines.append("")
    lines += ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    ends = [line for task in tasks for line in _attempt_lines(task)]
    lines += ["", *ends] if ends else []
    return "\n".join(lines) + "\n"


def _says_more(task: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Whether a task's reason has words that are not the job's."""
    reason = str(task.get("reason") or "")
    return first_word(reason) != reason and reason != job.get("reason")


def _bid_text(bid: Mapping[str, Any]) -> str:
    """Another cluster that a job waits on at the same time: what it is called there, and why it waits."""
    reason = "" if bid.get("reason") in (None, "", "None") else f"({bid['reason']})"
    return " ".join(filter(None, (str(bid.get("cluster")), str(bid.get("native_id") or ""), reason)))


def _task_cells(job: Mapping[str, Any], task: Mapping[str, Any], now: float) -> tuple[str, ...]:
    many = len(job.get("tasks") or ()) > 1
    started, ended = task.get("started_at"), task.get("ended_at")
    if task.get("state") == "SUSPENDED":
        now = job.get("suspended_at") or now
    used = 0 if started is None else (now if ended is None else ended) - started - (task.get("suspended") or 0)
    kind = "" if task.get("primary", True) else " (aux)"
    return (
        f"{job.get('id')}+{task.get('offset')}" if many else str(job.get("id")),
        f"{task.get('name')}{kind}",
        str(task.get("state")),
        first_word(str(task.get("reason") or "None")),
        str(task.get("nodes", 1)),
        format_elapsed(used),
        format_limit(task.get("time_limit")),
        str(task.get("attempt") or 0),
        _exit(task),
        str(task.get("node_list") or ""),
    )


def _attempt_lines(task: Mapping[str, Any]) -> list[str]:
    """Attempts that ended otherwise than well, with why; what the task waits for, and when the next one is due."""
    lines = []
    for attempt in task.get("attempts") or ():
        detail = str(attempt.get("detail") or "")
        if attempt.get("state") in ("COMPLETED", "RUNNING", "CONFIGURING") and not detail:
            continue
        when = format_timestamp(attempt.get("ended_at"), "")
        words = [f"{task.get('name')} attempt {attempt.get('number')}:", str(attempt.get("state"))]
        words += [str(attempt.get("cause") or ""), _exit(attempt), when, detail]
        lines.append(" ".join(filter(None, words)))
    if task.get("waits"):
        lines.append(str(task["waits"]))
    if task.get("next_start"):
        lines.append(f"{task.get('name')}: next attempt at {format_timestamp(task['next_start'])}")
    return lines


def _exit(facts: Mapping[str, Any]) -> str:
    return f"{facts.get('exit_code') or 0}:{facts.get('signal') or 0}"
