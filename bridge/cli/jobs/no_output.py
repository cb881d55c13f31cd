"""Explains why a job has no output: it waits, it could not start, or its output goes nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.errors import NotFound

_WAITING = ("PENDING", "CONFIGURING")


def explain_silence(ref: str, job: Mapping[str, Any], task: str, clusters: list[dict[str, Any]]) -> NotFound:
    """The error for a job, or one task of it, that has no logs; `clusters` are as the daemon tells of them."""
    stale = next(
        (each for each in clusters if each["name"] == job.get("cluster") and each.get("since") is not None), None
    )
    if stale is not None:
        why = f": {stale['message']}" if stale.get("message") else ""
        since = format_timestamp(stale["since"])
        return NotFound(
            f"job {ref} has no output yet: {stale['name']} has not answered since {since}{why}",
            remedy=f"`span check {stale['name']}` says what is wrong",
        )
    tasks = [known for known in job.get("tasks") or () if task in ("", known.get("name"))]
    facts = tasks[0] if task and tasks else job
    state = str(facts.get("state"))
    who = f"task {task} of job {ref}" if task else f"job {ref}"
    if state in _WAITING:
        waits = [str(known["waits"]) for known in tasks if known.get("waits")]
        return NotFound(
            f"{who} has not started: " + "; ".join([f"{state}{_reason(facts)}", *waits]),
            remedy=f"`span logs -f {ref}` waits for it",
        )
    failed = str(job.get("refusal") or "").splitlines()
    failed += [text for known in tasks for text in _refusals(known, len(tasks) > 1)]
    if failed:
        return NotFound(f"{who} did not start: " + "; ".join(failed), remedy=f"`span show {ref}` shows it in full")
    if tasks and all(known.get("stdout") == known.get("stderr") == "/dev/null" for known in tasks):
        return NotFound(f"{who} has no output: it goes to /dev/null", remedy="submit it with another --output")
    if state != "RUNNING" and not any(known.get("started_at") for known in tasks):
        return NotFound(f"{who} did not start: {state}{_reason(facts)}", remedy=f"`span timeline {ref}` tells it all")
    return NotFound(f"{who} has no such log", remedy=f"`span show {ref}` lists its tasks and attempts")


def _reason(job: Mapping[str, Any]) -> str:
    return "" if job.get("reason") in (None, "", "None") else f" ({job['reason']})"


def _refusals(task: Mapping[str, Any], named: bool) -> list[str]:
    """Why the newest attempt of a task could not start."""
    attempts = task.get("attempts") or ()
    last = attempts[-1] if attempts else {}
    if last.get("started_at") or not last.get("detail"):
        return []
    return [f"{task.get('name')}: {last['detail']}" if named else str(last["detail"])]
