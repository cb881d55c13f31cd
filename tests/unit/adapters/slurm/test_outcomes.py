from __future__ import annotations

import pytest

from overspan.adapters.slurm.commands.listings import ExitStatus
from overspan.adapters.slurm.commands.states import BASES as BASE_NAMES
from overspan.adapters.slurm.commands.states import FLAGS as FLAG_NAMES
from overspan.adapters.slurm.commands.states import NativeState, read_state
from overspan.adapters.slurm.observation.outcomes import (
    BASES,
    FLAGS,
    REASONS,
    NativeAttempt,
    NativeOutcome,
    Phase,
    end_events,
    judge,
    queue_event,
    restart_cause,
)
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.causes import CONSEQUENCES, Cause
from overspan.bridge.model.events import Event, Granted, Launch, LaunchLost, NodeEnded, NodeStarted, Queued
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import Form, JobSpec, TaskSpec
from overspan.bridge.model.states import State


def test_the_table_has_every_state_of_slurm() -> None:
    assert set(BASES) == set(BASE_NAMES) and set(FLAGS) == set(FLAG_NAMES)


@pytest.mark.parametrize(
    ("state", "reason", "status", "phase", "cause"),
    [
        ("PENDING", "Priority", None, Phase.QUEUED, None),
        ("CONFIGURING", "None", None, Phase.STARTING, None),
        ("RUNNING", "None", None, Phase.RUNNING, None),
        ("RESIZING", "None", None, Phase.RUNNING, None),
        ("SIGNALING", "None", None, Phase.RUNNING, None),
        ("SUSPENDED", "None", None, Phase.SUSPENDED, None),
        ("STOPPED", "None", None, Phase.SUSPENDED, None),
        ("COMPLETING", "None", None, Phase.ENDING, None),
        ("FAILED+COMPLETING", "NonZeroExitCode", (3, 0), Phase.ENDING, Cause.EXIT),
        ("STAGE_OUT", "None", None, Phase.ENDING, None),
        ("COMPLETED", "None", (0, 0), Phase.ENDED, Cause.SUCCESS),
        ("FAILED", "NonZeroExitCode", (3, 0), Phase.ENDED, Cause.EXIT),
        ("FAILED", "None", (3, 0), Phase.ENDED, Cause.EXIT),
        ("FAILED", "RaisedSignal", (0, 9), Phase.ENDED, Cause.SIGNAL),
        ("FAILED", "JobLaunchFailure", (0, 9), Phase.ENDED, Cause.SIGNAL),
        ("FAILED", "JobLaunchFailure", (0, 53), Phase.ENDED, Cause.LAUNCH),
        ("FAILED", "None", (0, 53), Phase.ENDED, Cause.LAUNCH),
        ("FAILED", "JobLaunchFailure", None, Phase.ENDED, Cause.LAUNCH),
        ("FAILED", "SystemFailure", (0, 0), Phase.ENDED, Cause.NODE),
        ("CANCELLED by 1000", "None", (0, 0), Phase.ENDED, Cause.CANCEL),
        ("CANCELLED", "DependencyNeverSatisfied", (0, 0), Phase.ENDED, Cause.DEPENDENCY),
        ("TIMEOUT", "TimeLimit", (0, 15), Phase.ENDED, Cause.TIME),
        ("NODE_FAIL", "NodeDown", (0, 0), Phase.ENDED, Cause.NODE),
        ("PREEMPTED", "None", (0, 15), Phase.ENDED, Cause.PREEMPTION),
        ("OUT_OF_MEMORY", "OutOfMemory", (0, 125), Phase.ENDED, Cause.MEMORY),
        ("BOOT_FAIL", "None", None, Phase.ENDED, Cause.BOOT),
        ("DEADLINE", "DeadLine", None, Phase.ENDED, Cause.DEADLINE),
        ("REVOKED", "None", None, Phase.ENDED, Cause.CANCEL),
        ("LAUNCH_FAILED", "None", None, Phase.ENDED, Cause.LAUNCH),
        ("REQUEUED", "None", None, Phase.REQUEUED, Cause.REQUEUE),
        ("PENDING,REQUEUED", "BeginTime", None, Phase.REQUEUED, Cause.REQUEUE),
        ("REQUEUE_HOLD", "JobHeldUser", None, Phase.REQUEUED, Cause.REQUEUE),
        ("SPECIAL_EXIT", "JobHeldUser", None, Phase.REQUEUED, Cause.REQUEUE),
        ("RESV_DEL_HOLD", "None", None, Phase.QUEUED, None),
        ("HIBERNATING", "None", None, Phase.RUNNING, None),
        # The accounting keeps the last reason for waiting.
        ("CANCELLED by 0", "JobArrayTaskLimit", (0, 0), Phase.ENDED, Cause.CANCEL),
        ("FAILED", "Priority", (1, 0), Phase.ENDED, Cause.EXIT),
    ],
)
def test_states_reasons_and_codes(
    state: str, reason: str, status: tuple[int, int] | None, phase: Phase, cause: Cause | None
) -> None:
    outcome = judge(read_state(state), reason, None if status is None else ExitStatus(*status))
    assert (outcome.phase, outcome.cause) == (phase, cause)


def test_an_end_gives_slurms_own_state_back() -> None:
    for name, meaning in BASES.items():
        if meaning.cause is not None:
            assert CONSEQUENCES[meaning.cause].state.value == name
    assert set(REASONS.values()) <= set(CONSEQUENCES)


def test_unknown_is_not_failed() -> None:
    assert judge(read_state("HIBERNATING")) == NativeOutcome(Phase.RUNNING, detail="unknown state HIBERNATING")


def test_who_cancelled_is_told() -> None:
    assert judge(read_state("CANCELLED by 1000")).detail == "CANCELLED by 1000"


def test_events_of_waiting_and_ends() -> None:
    ran = NativeAttempt("batch", 1, 2, nodes=2)
    assert queue_event(judge(read_state("PD"), "Priority"), "Priority", 5.0, 9.0) == Queued(5.0, "Priority", 9.0)
    assert queue_event(judge(read_state("R")), "None", 5.0) is None
    failed = judge(read_state("F"), "NonZeroExitCode", ExitStatus(3, 0))
    assert end_events(failed, ran, 5.0) == tuple(
        NodeEnded(5.0, "batch", 1, node, exit_code=3, cause="exit", detail="FAILED (NonZeroExitCode)")
        for node in (0, 1)
    )
    lost = judge(read_state("NF"), "NodeDown")
    assert end_events(lost, ran, 5.0) == (LaunchLost(5.0, 2, "node", "NODE_FAIL (NodeDown)"),)
    assert end_events(judge(read_state("RQ")), ran, 5.0) == (LaunchLost(5.0, 2, "requeue", ""),)
    assert end_events(judge(read_state("CG")), ran, 5.0) == ()


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        ("CD", "0:0", State.COMPLETED),
        ("F", "3:0", State.FAILED),
        ("OOM", "0:125", State.OUT_OF_MEMORY),
        ("TO", "0:0", State.TIMEOUT),
        ("CA", "0:0", State.CANCELLED),
        ("DL", "0:0", State.DEADLINE),
    ],
)
def test_the_lifecycle_ends_jobs_as_slurm_did(state: str, status: str, expected: State) -> None:
    job = new_job(1, JobSpec("x", (TaskSpec("batch", form=Form.BATCH, run="#!/bin/sh\n"),)), 0.0)
    started: list[Event] = [Granted(1.0, (("batch", 0, "n1", "", ()),)), Launch(1.0, "batch", 0)]
    code, signal = map(int, status.split(":"))
    outcome = judge(read_state(state), "None", ExitStatus(code, signal))
    ends = end_events(outcome, NativeAttempt("batch", 0, 0), 9.0)
    for event in (*started, NodeStarted(1.0, "batch", 0, 0), *ends):
        job = reduce(job, event)
    assert job.tasks[0].state is expected


def test_why_a_job_was_requeued() -> None:
    assert restart_cause(NativeState("NODE_FAIL")) is Cause.NODE
    assert restart_cause(NativeState("PREEMPTED")) is Cause.PREEMPTION
    assert restart_cause(NativeState("", frozenset({"REQUEUED"}))) is Cause.REQUEUE
    assert restart_cause(None) is Cause.REQUEUE
