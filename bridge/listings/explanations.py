"""Sentences about Slurm's words: what a reason means, what an exit code tells, and whose doing an end was. Pure."""

from __future__ import annotations

from collections import Counter

from overspan.bridge.model.causes import CONSEQUENCES, Charge, find_cause
from overspan.bridge.model.signals import signal_name

WAITS = {
    "AssocMaxJobsLimit": "as many jobs run as the limit lets run at once",
    "AssocMaxSubmitJobLimit": "as many jobs are there as the limit lets be there at once",
    "BadConstraints": "no node can ever be what it asks for",
    "BeginTime": "its time to begin has not come",
    "Cleaning": "its last run is being cleaned up",
    "Dependency": "other jobs or tasks come first",
    "DependencyNeverSatisfied": "a job that it waits for did not end as needed, so it can never start",
    "JobArrayTaskLimit": "as many elements of its array run as may run at once",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "it is held; a release lets it go",
    "Licenses": "the licences that it needs are in use",
    "NodeDown": "a node that it needs is down",
    "PartitionDown": "its partition takes no jobs to run",
    "PartitionInactive": "its partition takes no jobs",
    "PartitionNodeLimit": "it asks for more nodes than its partition gives a job",
    "PartitionTimeLimit": "it asks for more time than its partition gives a job",
    "Priority": "jobs with a higher priority come first",
    "QOSMaxCpuPerUserLimit": "its user has as many CPUs as the QOS gives",
    "QOSMaxJobsPerUserLimit": "its user has as many running jobs as the QOS gives",
    "ReqNodeNotAvail": "a node that it names is not available",
    "Reservation": "its reservation has not begun",
    "Resources": "what it asks for is not free",
    "WorkerVersion": "the workers of its pool are of a version that cannot run it",
}
"""Why a job waits, by Slurm's reason."""

_ENDS = {
    "success": "",
    "exit": "its program failed",
    "signal": "a signal ended its program",
    "setup": "its setup failed",
    "launch": "its program could not be started",
    "not_ready": "it did not become ready in time",
    "memory": "it used more memory than it had asked for",
    "node": "a node was lost",
    "preemption": "its resources were taken away for another job",
    "boot": "a node could not be made ready",
    "time": "it reached its time limit",
    "deadline": "it could not be over by its deadline",
    "cancel": "it was cancelled",
    "requeue": "it was requeued",
    "restart": "it was restarted by order",
    "group_restart": "its group was restarted",
    "primaries_done": "the primary tasks were done",
    "primary_failed": "a primary task failed",
    "auxiliary_failed": "an auxiliary task failed",
    "dependency": "a job that it waited for did not end as needed",
    "refused": "its cluster refused it",
    "never_started": "it did not start in time",
    "failover": "another cluster had it next",
    "system": "the scheduler could not go on with it",
}
_LEADING = Counter(consequence.state for consequence in CONSEQUENCES.values())
_BY_STATE = {
    "CANCELLED": "cancel",
    **{one.state.value: cause.value for cause, one in CONSEQUENCES.items() if _LEADING[one.state] == 1},
}
"""The cause that a state tells where no attempt does."""
_OWN = ("time", "deadline", "refused", "dependency")
_EXITS = {
    2: "often: wrong usage",
    126: "the shell could not execute the program",
    127: "the shell did not find the program",
}


def explain_reason(reason: str) -> str:
    """Why a job with this reason waits: `Resources: 2 of 4 nodes` has words of its own; empty where none are known."""
    word, _, message = reason.partition(": ")
    known = WAITS.get(word, "")
    return ": ".join(filter(None, (known, message))) if known or message else ""


def explain_cause(cause: str, state: str = "") -> str:
    """Why an attempt ended, by its cause, else by its state; empty for a good end."""
    return _ENDS.get(cause or _BY_STATE.get(state, ""), cause)


def name_fault(cause: str, state: str = "") -> str:
    """Whose doing the end was: the job's, the cluster's, an order's; empty where it is none or not known."""
    name = cause or _BY_STATE.get(state, "")
    found = find_cause(name)
    charge = Charge.NONE if found is None else CONSEQUENCES[found].charge
    if name == "cancel" or charge is Charge.OPERATOR:
        return "by order"
    if name in _OWN or charge is Charge.ERRORS:
        return "the job's own"
    return "the cluster's" if name == "system" or charge is Charge.RECOVERIES else ""


def explain_exit(code: int, number: int) -> str:
    """An exit code and a signal in words: `exit code 127: the shell did not find the program`; empty for 0 and 0."""
    if number:
        name = signal_name(number)
        # Slurm also puts other codes in the signal's place: 0:53 is a job that could not be launched.
        return f"killed by {name}" if name else f"status {code}:{number}"
    if not code:
        return ""
    shell = signal_name(code - 128) if code > 128 else ""
    words = f"as a shell tells of {shell}" if shell else _EXITS.get(code, "")
    return f"exit code {code}" + (f" ({words})" if words else "")
