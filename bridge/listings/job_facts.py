"""What is told of one job: the words for the document of `Client.show`, for `span show` and the terminal UI. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overspan.bridge.listings.texts import first_word
from overspan.bridge.model.durations import format_elapsed, format_limit, format_timestamp

TASK_HEADER = ("ID", "TASK", "STATE", "REASON", "NODES", "TIME", "LIMIT", "ATTEMPT", "EXIT", "NODELIST")
_WELL = ("COMPLETED", "RUNNING", "CONFIGURING")
_NO_END = ("PENDING", "CONFIGURING", "RUNNING")


def list_facts(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is known of the job as a whole: names and values, none of them empty. State's value begins with the state.

    A name stands several times where there are several values.
    """
    state = str(job.get("state"))
    reason = f" ({job['reason']})" if job.get("reason") not in (None, "", "None") else ""
    place = str(job.get("cluster") or "") + ("" if job.get("configured", True) else " (not configured)")
    array = job.get("array") or {}
    throttle = f", {array['throttle']} at once" if array.get("throttle") else ""
    facts = [
        ("Job", f"{job.get('id')}  {job.get('name')}"),
        ("State", state + reason),
        *(("Refused", line) for line in str(job.get("refusal") or "").splitlines()),
        ("Exit", exit_text(job) if state not in _NO_END else ""),
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
        *(("Elastic", _word_elastic(task)) for task in job.get("tasks") or () if task.get("elastic")),
        *(
            ("Storage", _word_storage(task, row))
            for task in job.get("tasks") or ()
            for row in task.get("storage") or ()
        ),
        ("Depends on", str(job.get("dependency") or "")),
        ("Begins", format_timestamp(job.get("begin"), "")),
        ("Expected", format_timestamp(job.get("expected_start"), "") if state == "PENDING" else ""),
        ("Started", format_timestamp(job.get("started_at"), "")),
        ("Ended", format_timestamp(job.get("ended_at"), "")),
        ("Stale since", " ".join(filter(None, (format_timestamp(job.get("stale_since"), ""), job.get("stale_why"))))),
        ("Command", str(job.get("command") or "")),
        ("Directory", str(job.get("work_dir") or "")),
        ("Comment", str(job.get("comment") or "")),
        *(("Note", str(note)) for note in job.get("notes") or ()),
    ]
    return [(name, value) for name, value in facts if value]


def _word_elastic(task: Mapping[str, Any]) -> str:
    """The bounds of an elastic task, and how many members are wanted."""
    elastic = task["elastic"]
    more = ", more with room" if elastic["grows"] else ""
    return f"{task.get('name')}: {elastic['min']} to {elastic['max']} members, {elastic['wanted']} wanted{more}"


def _word_storage(task: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """A folder of an object store, its mode, and how it is seen by which nodes of a task, and why."""
    state = f", {row['state']}" if row["state"] else ""
    nodes = f" on {', '.join(row['nodes'])}" if row["nodes"] else ""
    why = f": {row['why']}" if row["why"] else ""
    return f"{task.get('name')}: {row['target']} is {row['url']} ({row['mode']}{state}{nodes}{why})"


def list_task_reasons(job: Mapping[str, Any]) -> list[str]:
    """The reasons of tasks that have words which are not the job's."""
    tasks = job.get("tasks") or ()
    return [f"{task.get('name')}: {task.get('reason')}" for task in tasks if _says_more(task, job)]


def _says_more(task: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    reason = str(task.get("reason") or "")
    return first_word(reason) != reason and reason != job.get("reason")


def _bid_text(bid: Mapping[str, Any]) -> str:
    """Another cluster that a job waits on at the same time: what it is called there, and why it waits."""
    reason = "" if bid.get("reason") in (None, "", "None") else f"({bid['reason']})"
    return " ".join(filter(None, (str(bid.get("cluster")), str(bid.get("native_id") or ""), reason)))


def task_cells(job: Mapping[str, Any], task: Mapping[str, Any], now: float) -> tuple[str, ...]:
    """A task's line below TASK_HEADER."""
    many = len(job.get("tasks") or ()) > 1
    kind = "" if task.get("primary", True) else " (aux)"
    return (
        f"{job.get('id')}+{task.get('offset')}" if many else str(job.get("id")),
        f"{task.get('name')}{kind}",
        str(task.get("state")),
        first_word(str(task.get("reason") or "None")),
        str(task.get("nodes", 1)),
        format_elapsed(seconds_run(job, task, now)),
        format_limit(task.get("time_limit")),
        str(task.get("attempt") or 0),
        exit_text(task),
        str(task.get("node_list") or ""),
    )


def seconds_run(job: Mapping[str, Any], task: Mapping[str, Any], now: float) -> float:
    """Wall seconds of the task's newest attempt, without those for which it was suspended; 0 before its start."""
    started, ended = task.get("started_at"), task.get("ended_at")
    if started is None:
        return 0
    if task.get("state") == "SUSPENDED":
        now = job.get("suspended_at") or now
    return float((now if ended is None else ended) - started - (task.get("suspended") or 0))


def attempt_lines(task: Mapping[str, Any]) -> list[str]:
    """Attempts that ended otherwise than well, with why; what the task waits for, and when the next one is due."""
    lines = []
    for attempt in task.get("attempts") or ():
        detail = str(attempt.get("detail") or "")
        if attempt.get("state") in _WELL and not detail:
            continue
        when = format_timestamp(attempt.get("ended_at"), "")
        words = [f"{task.get('name')} attempt {attempt.get('number')}:", str(attempt.get("state"))]
        words += [str(attempt.get("cause") or ""), exit_text(attempt), when, detail]
        lines.append(" ".join(filter(None, words)))
    if task.get("waits"):
        lines.append(str(task["waits"]))
    if task.get("next_start"):
        lines.append(f"{task.get('name')}: next attempt at {format_timestamp(task['next_start'])}")
    return lines


def exit_text(facts: Mapping[str, Any]) -> str:
    """The exit code and the signal as Slurm writes them: `1:0`."""
    return f"{facts.get('exit_code') or 0}:{facts.get('signal') or 0}"
