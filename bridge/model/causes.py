"""Causes: why an attempt ended, and what follows from it; one row for each cause.

`charge` says whose budget pays for another attempt: the user's (`errors`), the infrastructure's (`recoveries`),
none, because the operator asked (`operator`), or that no attempt follows (`final`).
"""

from __future__ import annotations

from enum import Enum
from typing import Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.states import State


class Charge(str, Enum):
    """Which budget another attempt is taken from."""

    NONE = "none"
    ERRORS = "errors"
    RECOVERIES = "recoveries"
    OPERATOR = "operator"
    FINAL = "final"


class Cause(str, Enum):
    """Why an attempt, or the whole job, ended."""

    SUCCESS = "success"
    EXIT = "exit"
    SIGNAL = "signal"
    SETUP = "setup"
    LAUNCH = "launch"
    NOT_READY = "not_ready"
    MEMORY = "memory"
    NODE = "node"
    PREEMPTION = "preemption"
    BOOT = "boot"
    TIME = "time"
    DEADLINE = "deadline"
    CANCEL = "cancel"
    REQUEUE = "requeue"
    RESTART = "restart"
    GROUP_RESTART = "group_restart"
    PRIMARIES_DONE = "primaries_done"
    PRIMARY_FAILED = "primary_failed"
    AUXILIARY_FAILED = "auxiliary_failed"
    DEPENDENCY = "dependency"
    REFUSED = "refused"
    NEVER_STARTED = "never_started"
    FAILOVER = "failover"
    FLUSH = "flush"
    SYSTEM = "system"


class Consequence(NamedTuple):
    """The state and Slurm reason of an end that nothing follows, and the budget of one that something may."""

    state: State
    reason: str
    charge: Charge


_STOPPING = (15, 9)


def is_stopped(exit_code: int, signal: int) -> bool:
    """Whether an end looks as TERM or KILL make it; a shell adds 128 to the signal of its child."""
    return signal in _STOPPING or exit_code - 128 in _STOPPING


def find_cause(name: str) -> Optional[Cause]:
    """The cause of that name; None when this version knows none."""
    return _BY_NAME.get(name)


CONSEQUENCES: dict[Cause, Consequence] = {
    Cause.SUCCESS: Consequence(State.COMPLETED, "None", Charge.NONE),
    Cause.EXIT: Consequence(State.FAILED, "NonZeroExitCode", Charge.ERRORS),
    Cause.SIGNAL: Consequence(State.FAILED, "RaisedSignal", Charge.ERRORS),
    Cause.SETUP: Consequence(State.FAILED, "SetupFailed", Charge.ERRORS),
    Cause.LAUNCH: Consequence(State.FAILED, "JobLaunchFailure", Charge.ERRORS),
    Cause.NOT_READY: Consequence(State.FAILED, "NotReady", Charge.ERRORS),
    Cause.MEMORY: Consequence(State.OUT_OF_MEMORY, "OutOfMemory", Charge.ERRORS),
    Cause.NODE: Consequence(State.NODE_FAIL, "NodeDown", Charge.RECOVERIES),
    Cause.PREEMPTION: Consequence(State.PREEMPTED, "Preempted", Charge.RECOVERIES),
    Cause.BOOT: Consequence(State.BOOT_FAIL, "BootFail", Charge.RECOVERIES),
    Cause.TIME: Consequence(State.TIMEOUT, "TimeLimit", Charge.FINAL),
    Cause.DEADLINE: Consequence(State.DEADLINE, "DeadLine", Charge.FINAL),
    Cause.CANCEL: Consequence(State.CANCELLED, "None", Charge.FINAL),
    Cause.REQUEUE: Consequence(State.CANCELLED, "Requeued", Charge.OPERATOR),
    Cause.RESTART: Consequence(State.CANCELLED, "Restarted", Charge.OPERATOR),
    Cause.GROUP_RESTART: Consequence(State.CANCELLED, "GroupRestart", Charge.OPERATOR),
    Cause.PRIMARIES_DONE: Consequence(State.COMPLETED, "PrimariesDone", Charge.FINAL),
    Cause.PRIMARY_FAILED: Consequence(State.CANCELLED, "PrimaryFailed", Charge.FINAL),
    Cause.AUXILIARY_FAILED: Consequence(State.CANCELLED, "AuxiliaryFailed", Charge.FINAL),
    Cause.DEPENDENCY: Consequence(State.CANCELLED, "DependencyNeverSatisfied", Charge.FINAL),
    Cause.REFUSED: Consequence(State.FAILED, "BadConstraints", Charge.FINAL),
    Cause.NEVER_STARTED: Consequence(State.FAILED, "StartTimeout", Charge.RECOVERIES),
    Cause.FAILOVER: Consequence(State.CANCELLED, "FailedOver", Charge.OPERATOR),
    Cause.FLUSH: Consequence(State.FAILED, "FlushFailed", Charge.FINAL),
    Cause.SYSTEM: Consequence(State.FAILED, "SystemFailure", Charge.FINAL),
}

_BY_NAME: dict[str, Cause] = {cause.value: cause for cause in Cause}
