"""Exit status of a job: the code for a shell, and a sentence that explains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overspan.bridge.cli.references import split_ref
from overspan.bridge.client import Client, Outcome
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.signals import signal_name


def exit_code(outcome: Outcome) -> int:
    """The code as if a shell had run the job: its exit code, 128 + signal, 0 for COMPLETED, 1 for other ends."""
    if outcome.state == "COMPLETED":
        return 0
    if outcome.signal:
        # Slurm also puts other codes in the signal's place: 0:53 is a job that could not be launched.
        return 128 + outcome.signal if signal_name(outcome.signal) else 1
    return outcome.exit_code or 1


def explain_end(client: Client, ref: str, outcome: Outcome) -> str:
    """Why a job or task did not end well."""
    try:
        job = client.show(ref)
    except OverspanError:
        # The exit code needs only the outcome, which is known already.
        job = {}
    return describe_end(ref, job, outcome)


def describe_end(ref: str, job: Mapping[str, Any], outcome: Outcome) -> str:
    """A sentence: state, reason, exit code or signal, and what the failed attempts say."""
    tasks = _chosen(ref, job)
    facts = tasks[0] if len(tasks) == 1 else job
    name = f" ({job['name']})" if job.get("name") else ""
    words = [f"job {ref}{name} is {outcome.state}"]
    reason = facts.get("reason")
    words += [f"({reason})"] if reason not in (None, "", "None") else []
    if signal_name(outcome.signal):
        words.append(f"by {signal_name(outcome.signal)}")
    elif outcome.exit_code and not outcome.signal:
        words.append(f"with exit code {outcome.exit_code}")
    details = str(job.get("refusal") or "").splitlines()
    details += [line for task in tasks for line in _details(task, len(job.get("tasks") or ()) > 1)]
    return " ".join(words) + "".join(f"; {line}" for line in details)


def _chosen(ref: str, job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    tasks = list(job.get("tasks") or ())
    number, task = split_ref(ref)
    offset = number.partition("+")[2]
    if task or offset:
        return [each for each in tasks if (task and each.get("name") == task) or str(each.get("offset")) == offset]
    return tasks


def _details(task: Mapping[str, Any], named: bool) -> list[str]:
    """Details of the newest attempt of a failed task."""
    attempts = task.get("attempts") or ()
    last = attempts[-1] if attempts else {}
    if last.get("state") in (None, "COMPLETED", "RUNNING", "CANCELLED"):
        return []
    detail = str(last.get("detail") or "")
    if not named:
        return [detail] if detail else []
    return [f"{task.get('name')}: {detail or last.get('state')}"]
