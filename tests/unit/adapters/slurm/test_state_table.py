"""Every word that Slurm has for a job's state (squeue(1), JOB STATE CODES), in full and as a code: what it comes to."""

from __future__ import annotations

import pytest

from overspan.adapters.slurm.commands.listings import ExitStatus
from overspan.adapters.slurm.commands.states import BASES, FLAGS, read_state
from overspan.adapters.slurm.observation.outcomes import NativeAttempt, Phase, end_events, judge
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event, Granted, Launch, NodeStarted
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, RetryPolicy, TaskSpec
from overspan.bridge.model.states import State

ENDS = [
    ("COMPLETED", "CD", "None", "0:0", Cause.SUCCESS, State.COMPLETED, (0, 0)),
    ("FAILED", "F", "NonZeroExitCode", "3:0", Cause.EXIT, State.FAILED, (3, 0)),
    ("FAILED", "F", "RaisedSignal", "0:11", Cause.SIGNAL, State.FAILED, (0, 11)),
    ("FAILED", "F", "JobLaunchFailure", "0:53", Cause.LAUNCH, State.FAILED, (0, 53)),
    ("CANCELLED", "CA", "None", "0:15", Cause.CANCEL, State.CANCELLED, (0, 0)),
    ("TIMEOUT", "TO", "TimeLimit", "0:0", Cause.TIME, State.TIMEOUT, (0, 0)),
    ("OUT_OF_MEMORY", "OOM", "OutOfMemory", "0:125", Cause.MEMORY, State.OUT_OF_MEMORY, (0, 125)),
    ("PREEMPTED", "PR", "None", "0:15", Cause.PREEMPTION, State.PREEMPTED, (0, 0)),
    ("NODE_FAIL", "NF", "NodeDown", "0:0", Cause.NODE, State.NODE_FAIL, (0, 0)),
    ("BOOT_FAIL", "BF", "None", "0:0", Cause.BOOT, State.BOOT_FAIL, (0, 0)),
    ("DEADLINE", "DL", "DeadLine", "0:0", Cause.DEADLINE, State.DEADLINE, (0, 0)),
    ("REVOKED", "RV", "None", "0:0", Cause.CANCEL, State.CANCELLED, (0, 0)),
    ("LAUNCH_FAILED", "LF", "None", "0:53", Cause.LAUNCH, State.FAILED, (0, 53)),
    ("RECONFIG_FAIL", "RC", "None", "0:0", Cause.BOOT, State.BOOT_FAIL, (0, 0)),
]
OTHERS = [
    ("PENDING", "PD", Phase.QUEUED),
    ("RUNNING", "R", Phase.RUNNING),
    ("SUSPENDED", "S", Phase.SUSPENDED),
    ("COMPLETING", "CG", Phase.ENDING),
    ("STAGE_OUT", "SO", Phase.ENDING),
    ("CONFIGURING", "CF", Phase.STARTING),
    ("POWER_UP_NODE", "PU", Phase.STARTING),
    ("RESIZING", "RS", Phase.RUNNING),
    ("SIGNALING", "SI", Phase.RUNNING),
    ("UPDATE_DB", "UD", Phase.RUNNING),
    ("STOPPED", "ST", Phase.SUSPENDED),
    ("EXPEDITING", "EX", Phase.QUEUED),
    ("RESV_DEL_HOLD", "RD", Phase.QUEUED),
    ("REQUEUED", "RQ", Phase.REQUEUED),
    ("REQUEUE_FED", "RF", Phase.REQUEUED),
    ("REQUEUE_HOLD", "RH", Phase.REQUEUED),
    ("SPECIAL_EXIT", "SE", Phase.REQUEUED),
]


def test_no_word_is_left_out() -> None:
    words = {name: code for name, code, *_ in [*ENDS, *OTHERS]}
    assert words == {**BASES, **FLAGS}


@pytest.mark.parametrize(("name", "code", "phase"), OTHERS)
def test_a_job_that_goes_on(name: str, code: str, phase: Phase) -> None:
    for word in (name, code, name.lower(), f"{name}+"):
        assert judge(read_state(word)).phase is phase
    assert not read_state(name).unknown


@pytest.mark.parametrize(("name", "code", "reason", "status", "cause", "state", "told"), ENDS)
def test_an_end_has_its_own_outcome_and_words(
    name: str, code: str, reason: str, status: str, cause: Cause, state: State, told: tuple[int, int]
) -> None:
    exit_status = ExitStatus(*map(int, status.split(":")))
    for word in (name, code):
        outcome = judge(read_state(word), reason, exit_status)
        assert (outcome.phase, outcome.cause) == (Phase.ENDED, cause)
        job = end_job(end_events(outcome, NativeAttempt("main", 0, 0), 9.0))
        attempt = job.tasks[0].attempts[0]
        assert (job.state, attempt.cause) == (state, cause)
        assert (attempt.exit_code, attempt.signal) == told
        assert name in attempt.detail or name in (*FLAGS, "COMPLETED")


def end_job(ends: tuple[Event, ...]) -> Job:
    """A running job after its end, with no budget for another run."""
    task = TaskSpec("main", run="x", retry=RetryPolicy(max_recoveries=0))
    job = new_job(1, JobSpec("x", (task,)), 0.0)
    granted = Granted(1.0, (("main", 0, "n1", "", ()),))
    for event in (granted, Launch(1.0, "main", 0), NodeStarted(1.0, "main", 0, 0), *ends):
        job = reduce(job, event)
    return job
