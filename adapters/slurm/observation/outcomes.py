"""What a native state means for the job's lifecycle: one table, and the events that follow from a record.

Sources: squeue(1) and sacct(1), JOB STATE CODES; how exit codes go with them was measured on Slurm 22.05.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from overspan.adapters.slurm.commands.listings import ExitStatus
from overspan.adapters.slurm.commands.states import NativeState
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event, LaunchLost, NodeEnded, Queued

LAUNCH_SIGNAL = 53
"""`0:53`: the batch script could not be started, most often because its output folder is missing."""


NO_OUTPUT = "Slurm could not open the job's output or start its script: is the folder of its output there, with room?"


class Phase(StrEnum):
    """Where a native job stands."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    ENDING = "ending"
    """The outcome is fixed, the nodes are not given back yet."""
    ENDED = "ended"
    REQUEUED = "requeued"
    """It has ended and waits again under its own id, or is about to."""


class Meaning(NamedTuple):
    """A row of the table: the phase, and the cause where it is an end that exit codes do not tell more of."""

    phase: Phase
    cause: Cause | None = None


BASES: dict[str, Meaning] = {
    "PENDING": Meaning(Phase.QUEUED),
    "RUNNING": Meaning(Phase.RUNNING),
    "SUSPENDED": Meaning(Phase.SUSPENDED),
    "COMPLETED": Meaning(Phase.ENDED, Cause.SUCCESS),
    "CANCELLED": Meaning(Phase.ENDED, Cause.CANCEL),
    "FAILED": Meaning(Phase.ENDED, Cause.EXIT),
    "TIMEOUT": Meaning(Phase.ENDED, Cause.TIME),
    "NODE_FAIL": Meaning(Phase.ENDED, Cause.NODE),
    "PREEMPTED": Meaning(Phase.ENDED, Cause.PREEMPTION),
    "BOOT_FAIL": Meaning(Phase.ENDED, Cause.BOOT),
    "DEADLINE": Meaning(Phase.ENDED, Cause.DEADLINE),
    "OUT_OF_MEMORY": Meaning(Phase.ENDED, Cause.MEMORY),
}

FLAGS: dict[str, Meaning] = {
    "COMPLETING": Meaning(Phase.ENDING),
    "STAGE_OUT": Meaning(Phase.ENDING),
    "CONFIGURING": Meaning(Phase.STARTING),
    "POWER_UP_NODE": Meaning(Phase.STARTING),
    "RESIZING": Meaning(Phase.RUNNING),
    "SIGNALING": Meaning(Phase.RUNNING),
    "UPDATE_DB": Meaning(Phase.RUNNING),
    "EXPEDITING": Meaning(Phase.QUEUED),
    "STOPPED": Meaning(Phase.SUSPENDED),
    "REQUEUED": Meaning(Phase.REQUEUED, Cause.REQUEUE),
    "REQUEUE_FED": Meaning(Phase.REQUEUED, Cause.REQUEUE),
    "REQUEUE_HOLD": Meaning(Phase.REQUEUED, Cause.REQUEUE),
    "SPECIAL_EXIT": Meaning(Phase.REQUEUED, Cause.REQUEUE),
    "RESV_DEL_HOLD": Meaning(Phase.QUEUED),
    "REVOKED": Meaning(Phase.ENDED, Cause.CANCEL),
    "LAUNCH_FAILED": Meaning(Phase.ENDED, Cause.LAUNCH),
    "RECONFIG_FAIL": Meaning(Phase.ENDED, Cause.BOOT),
}
"""Flags in Slurm's place of the base; several at once are taken in the order of `_PRECEDENCE`."""

_PRECEDENCE = (
    Phase.REQUEUED,
    Phase.ENDED,
    Phase.ENDING,
    Phase.SUSPENDED,
    Phase.STARTING,
    Phase.QUEUED,
    Phase.RUNNING,
)

REASONS: dict[str, Cause] = {
    "NonZeroExitCode": Cause.EXIT,
    "RaisedSignal": Cause.SIGNAL,
    "TimeLimit": Cause.TIME,
    "NodeDown": Cause.NODE,
    "OutOfMemory": Cause.MEMORY,
    "JobLaunchFailure": Cause.LAUNCH,
    "SystemFailure": Cause.NODE,
    "BootFailed": Cause.BOOT,
    "BootFail": Cause.BOOT,
    "DeadLine": Cause.DEADLINE,
    "Preempted": Cause.PREEMPTION,
    "InactiveLimit": Cause.TIME,
    "DependencyNeverSatisfied": Cause.DEPENDENCY,
}
"""Reasons that say more of a FAILED or CANCELLED job than its state.

The accounting keeps the last reason for waiting of a job that has ended (measured on 22.05): none of those may be here.
"""
_TOLD_BY_REASON = ("FAILED", "CANCELLED")


@dataclass(frozen=True)
class NativeOutcome:
    """Where a job stands, and for an end its cause, exit code and signal. `detail` is in Slurm's words."""

    phase: Phase
    cause: Cause | None = None
    exit_code: int = 0
    signal: int = 0
    detail: str = ""


def judge(state: NativeState, reason: str = "None", status: ExitStatus | None = None) -> NativeOutcome:
    """What a record's state, reason and exit code mean.

    A state that nobody knows leaves the job where it is: RUNNING, with the word in `detail`. Slurm's states change
    over the years, and unknown is not failed.
    """
    meaning = _mean(state)
    if meaning is None:
        return NativeOutcome(Phase.RUNNING, detail=f"unknown state {state.unknown}" if state.unknown else "")
    if meaning.phase not in (Phase.ENDED, Phase.ENDING):
        return NativeOutcome(meaning.phase, meaning.cause, detail="" if reason == "None" else reason)
    cause = _refine(meaning.cause, state, reason, status)
    code, signal = status or ExitStatus()
    if cause in (Cause.TIME, Cause.CANCEL, Cause.SUCCESS):
        # Their codes are those of Slurm's own TERM and KILL.
        code, signal = (0, 0) if cause is Cause.SUCCESS else (0, signal)
    detail = _describe(state, reason)
    if cause is Cause.LAUNCH and status == (0, LAUNCH_SIGNAL):
        detail = f"{detail}: {NO_OUTPUT}" if detail else NO_OUTPUT
    return NativeOutcome(meaning.phase, cause, code, signal, detail)


def _mean(state: NativeState) -> Meaning | None:
    base = BASES.get(state.base)
    flags = [FLAGS[flag] for flag in state.flags]
    if not flags:
        return base
    first = min(flags, key=lambda meaning: _PRECEDENCE.index(meaning.phase))
    if base is not None and base.phase is Phase.ENDED and first.phase in (Phase.ENDING, Phase.RUNNING):
        return Meaning(Phase.ENDING, base.cause)
    return first


def _refine(cause: Cause | None, state: NativeState, reason: str, status: ExitStatus | None) -> Cause | None:
    if state.base not in _TOLD_BY_REASON:
        return cause
    reported = REASONS.get(reason)
    if state.base == "FAILED" and reported in (None, Cause.EXIT, Cause.SIGNAL, Cause.LAUNCH):
        # A script that a signal ended has the reason JobLaunchFailure too (measured on 22.05); its codes tell.
        return _read_codes(status, Cause.EXIT if reported is None else reported)
    return reported or cause


def _read_codes(status: ExitStatus | None, reported: Cause) -> Cause:
    if status is None or status == (0, 0):
        return reported
    if status == (0, LAUNCH_SIGNAL):
        return Cause.LAUNCH
    return Cause.SIGNAL if status.signal else Cause.EXIT


def _describe(state: NativeState, reason: str) -> str:
    words = [state.base] if state.base not in ("", "COMPLETED") else []
    if state.by is not None:
        words.append(f"by {state.by}")
    if reason in REASONS:
        words.append(f"({reason})")
    return " ".join(words)


class NativeAttempt(NamedTuple):
    """Which attempt a native job runs: its task, attempt, launch, and how many nodes it has."""

    task: str
    attempt: int
    launch: int
    nodes: int = 1


def queue_event(outcome: NativeOutcome, reason: str, at: float, until: float | None = None) -> Queued | None:
    """The event of a job that waits; None for one that does not."""
    return Queued(at, reason, until) if outcome.phase is Phase.QUEUED else None


def end_events(outcome: NativeOutcome, ran: NativeAttempt, at: float) -> tuple[Event, ...]:
    """The events of an end: each node's for work that ran, the launch's loss for what Slurm took or gave up.

    Every node of the attempt gets the same end, since Slurm tells one for all of a batch job. Ends that are fixed but
    still hold their nodes give none.
    """
    if outcome.phase is Phase.REQUEUED:
        return (LaunchLost(at, ran.launch, (outcome.cause or Cause.REQUEUE).value, outcome.detail),)
    if outcome.phase is not Phase.ENDED or outcome.cause is None:
        return ()
    if outcome.cause in _LOSSES:
        return (LaunchLost(at, ran.launch, outcome.cause.value, outcome.detail),)
    return tuple(
        NodeEnded(
            at=at,
            task=ran.task,
            attempt=ran.attempt,
            node=node,
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            cause=outcome.cause.value,
            detail=outcome.detail,
        )
        for node in range(ran.nodes)
    )


_LOSSES = frozenset(
    {
        Cause.NODE,
        Cause.PREEMPTION,
        Cause.BOOT,
        Cause.TIME,
        Cause.DEADLINE,
        Cause.CANCEL,
        Cause.DEPENDENCY,
        Cause.REQUEUE,
    }
)


def restart_cause(earlier: NativeState | None) -> Cause:
    """Why a job was requeued, from the state that the accounting keeps of its earlier run (sacct --duplicates)."""
    base = "" if earlier is None else earlier.base
    meaning = BASES.get(base)
    if meaning is not None and meaning.cause in (Cause.NODE, Cause.PREEMPTION, Cause.BOOT):
        return meaning.cause
    return Cause.REQUEUE
