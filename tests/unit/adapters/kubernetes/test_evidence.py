"""Causes of ends, and why pods do not run."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.adapters.kubernetes.kubernetes_pods import RUNNING, condition, ended, make_record, waiting

from overspan.adapters.kubernetes.observation.evidence import (
    NOT_BEGUN,
    explain_waiting,
    has_begun,
    is_slow,
    judge_end,
    judge_gone,
    read_trouble,
)
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.causes import Cause


def disrupted(why: str, code: int = 143, **status: Any) -> PodRecord:
    """A pod that ended with a true DisruptionTarget."""
    return make_record(ended(code), phase="Failed", conditions=[condition("DisruptionTarget", reason=why)], **status)


def failed(code: int, reason: str = "", deleted: bool = False, **status: Any) -> PodRecord:
    """A pod whose program failed."""
    return make_record(ended(code, reason), deleted=deleted, phase="Failed", **status)


def unstarted(code: int = 143, reason: str = "", deleted: bool = False) -> PodRecord:
    """A pod that ended at its start gate."""
    return make_record(ended(code, reason, message=f"{NOT_BEGUN}\n"), deleted=deleted, phase="Failed")


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("PreemptionByScheduler", Cause.PREEMPTION),
        ("DeletionByTaintManager", Cause.NODE),
        ("EvictionByEvictionAPI", Cause.NODE),
        ("DeletionByPodGC", Cause.NODE),
        ("TerminationByKubelet", Cause.NODE),
        ("SomethingNew", Cause.PREEMPTION),
    ],
)
@pytest.mark.parametrize("code", [143, 137, 1])
def test_a_disruption_is_never_the_users_error(reason: str, cause: Cause, code: int) -> None:
    found, detail = judge_end(disrupted(reason, code), False)
    assert found is cause
    assert detail


def test_a_disruption_counts_before_our_own_order() -> None:
    assert judge_end(disrupted("PreemptionByScheduler"), True)[0] is Cause.PREEMPTION


def test_a_removal_that_we_ordered_is_no_loss() -> None:
    assert judge_end(disrupted("DeletionByPodGC"), True)[0] is None


def test_a_preemption_by_the_kubelet() -> None:
    record = disrupted("TerminationByKubelet", reason="Preempting")
    assert judge_end(record, False)[0] is Cause.PREEMPTION


def test_kueue_tells_by_a_condition_of_its_own() -> None:
    stopped = condition("TerminationTarget", reason="Preempted", message="Preempted to accommodate a workload")
    assert judge_end(make_record(ended(143), phase="Failed", conditions=[stopped]), False)[0] is Cause.PREEMPTION


def test_success_is_success_whatever_came_after() -> None:
    record = make_record(
        ended(0), phase="Succeeded", deleted=True, conditions=[condition("DisruptionTarget", reason="DeletionByPodGC")]
    )
    assert judge_end(record, False) == (None, "")


@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [
        ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline", Cause.TIME),
        ("Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi", Cause.NODE),
        ("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.", Cause.EXIT),
        ("Evicted", 'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi".', Cause.EXIT),
        ("Evicted", 'Container main exceeded its local ephemeral storage limit "1Gi".', Cause.EXIT),
        ("Preempting", "Preempted in order to admit critical pod", Cause.PREEMPTION),
        ("NodeLost", "Node node-1 which was running pod is unresponsive", Cause.NODE),
        ("Terminated", "Pod was terminated in response to imminent node shutdown.", Cause.NODE),
        ("NodeShutdown", "Pod was rejected as the node is shutting down.", Cause.NODE),
        ("UnexpectedAdmissionError", "Allocate failed", Cause.NODE),
        ("OutOfcpu", "Node didn't have enough resource: cpu", Cause.NODE),
        ("OutOfnvidia.com/gpu", "", Cause.NODE),
    ],
)
def test_the_pods_own_reason(reason: str, message: str, cause: Cause) -> None:
    record = make_record(ended(137), phase="Failed", reason=reason, message=message)
    found, detail = judge_end(record, False)
    assert found is cause
    assert cause is Cause.TIME or message in detail


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        (failed(1), None),
        (failed(139), None),
        (failed(137), None),
        (failed(137, "OOMKilled"), Cause.MEMORY),
        (failed(1, "OOMKilled"), Cause.MEMORY),
        (failed(255, "Unknown"), Cause.NODE),
        (failed(255), None),
        (failed(137, "ContainerStatusUnknown"), Cause.NODE),
        (make_record(ended(1, message="setup failed\n"), phase="Failed"), Cause.SETUP),
        (make_record(ended(1, message="not setup failed"), phase="Failed"), None),
        (make_record(ended(1, message="not started: cannot enter /x\n"), phase="Failed"), Cause.LAUNCH),
        (make_record(waiting("PodInitializing"), ended(1), phase="Failed"), Cause.NODE),
        (unstarted(), Cause.NODE),
        (unstarted(137), Cause.NODE),
        (unstarted(137, "OOMKilled"), Cause.NODE),
        (unstarted(deleted=True), Cause.NODE),
        (make_record(phase="Failed"), Cause.NODE),
        (failed(143, deleted=True), Cause.NODE),
        (failed(137, deleted=True), Cause.NODE),
        (failed(1, deleted=True), None),
    ],
)
def test_the_container(record: PodRecord, cause: Cause | None) -> None:
    assert judge_end(record, False)[0] is cause


RUNC = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("context deadline exceeded", Cause.NODE),
        ("failed to create containerd task: context deadline exceeded: unknown", Cause.NODE),
        ("rpc error: code = DeadlineExceeded desc = failed to exec: timed out", Cause.NODE),
        (
            "failed to create containerd task: failed to start shim: fork/exec: resource temporarily unavailable",
            Cause.NODE,
        ),
        (
            RUNC + "unable to start container process: unable to apply cgroup configuration: device or resource busy",
            Cause.NODE,
        ),
        ("failed to create containerd task: ttrpc: closed: unknown", Cause.NODE),
        ("", Cause.NODE),
        (
            RUNC + 'unable to start container process: exec: "/bin/sh": stat /bin/sh: no such file or directory',
            Cause.LAUNCH,
        ),
        (RUNC + 'unable to start container process: exec: "run": executable file not found in $PATH', Cause.LAUNCH),
        (
            RUNC
            + 'unable to start container process: chdir to cwd ("/x") set in config.json failed: permission denied',
            Cause.LAUNCH,
        ),
        (
            RUNC + "unable to start container process: container init was OOM-killed (memory limit too low?)",
            Cause.LAUNCH,
        ),
        (
            RUNC + "unable to start container process: error during container init: exec /bin/sh: exec format error",
            Cause.LAUNCH,
        ),
    ],
)
@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_a_container_that_did_not_start(reason: str, message: str, cause: Cause) -> None:
    state = ended(128, reason, message)
    state["terminated"]["startedAt"] = "1970-01-01T00:00:00Z"
    record = make_record(state, phase="Failed")
    found, detail = judge_end(record, False)
    assert (found, message in detail) == (cause, True)
    assert not has_begun(record)
    assert judge_end(record, True)[0] in (None, Cause.LAUNCH)


@pytest.mark.parametrize(
    "record",
    [
        failed(143, deleted=True),
        failed(137, deleted=True),
        failed(137, "ContainerStatusUnknown", deleted=True),
        unstarted(deleted=True),
        unstarted(137, "OOMKilled", deleted=True),
        make_record(deleted=True, phase="Failed"),
    ],
)
def test_what_we_ended_ourselves_says_nothing(record: PodRecord) -> None:
    assert judge_end(record, True) == (None, "")


def test_memory_counts_though_we_ended_it() -> None:
    assert judge_end(failed(137, "OOMKilled", deleted=True), True)[0] is Cause.MEMORY


def test_a_pod_that_vanished() -> None:
    assert judge_gone(make_record(RUNNING, phase="Running"), False)[0] is Cause.NODE
    assert judge_gone(make_record(RUNNING, deleted=True, phase="Running"), True) == (None, "")
    preempted = make_record(RUNNING, conditions=[condition("DisruptionTarget", reason="PreemptionByScheduler")])
    assert judge_gone(preempted, False)[0] is Cause.PREEMPTION
    assert judge_gone(failed(7), False) == (None, "")
    assert judge_gone(failed(137, "OOMKilled"), False)[0] is Cause.MEMORY


VICTIMS = " preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."


def unscheduled(message: str, reason: str = "Unschedulable") -> PodRecord:
    record = make_record(conditions=[condition("PodScheduled", "False", reason, message)])
    return record._replace(scheduled=False, node="")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (f"0/2 nodes are available: 2 Insufficient cpu.{VICTIMS}", "Resources"),
        (f'0/2 nodes are available: persistentvolumeclaim "data" not found.{VICTIMS}', "BadConstraints"),
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 Insufficient nvidia.com/gpu.",
            "Resources",
        ),
        ("0/2 nodes are available: 2 Too many pods.", "Resources"),
        ("0/1 nodes are available: 1 node(s) were unschedulable.", "ReqNodeNotAvail"),
        (
            "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }.",
            "ReqNodeNotAvail",
        ),
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", "BadConstraints"),
        ("0/2 nodes are available: 2 node(s) had untolerated taint {team: x}.", "BadConstraints"),
        ('0/2 nodes are available: persistentvolumeclaim "data" not found.', "BadConstraints"),
        ("gang is not complete yet", "Resources"),
        ("pod group is unschedulable, waiting for minCount pods", "Resources"),
        ("0/2 nodes are available: 1 node(s) were unschedulable, 1 Insufficient cpu.", "Resources"),
    ],
)
def test_unschedulable_in_slurms_words(message: str, reason: str) -> None:
    assert explain_waiting(unscheduled(message)) == (reason, message.removesuffix(VICTIMS))


def test_gates_wait_for_resources() -> None:
    assert explain_waiting(unscheduled("", "SchedulingGated"))[0] == "Resources"


@pytest.mark.parametrize(
    "reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"]
)
def test_trouble_of_a_bound_pod_is_told(reason: str) -> None:
    slurm, detail = explain_waiting(make_record(waiting(reason, "no such\nthing")))
    assert slurm == "JobLaunchFailure"
    assert reason in detail and "no such thing" in detail


def test_a_pod_that_only_starts_has_no_trouble() -> None:
    assert explain_waiting(make_record(waiting("ContainerCreating"))) == ("None", "")
    assert explain_waiting(make_record(conditions=[])._replace(scheduled=False)) == ("None", "")


def test_slow_pods() -> None:
    record = make_record(waiting("ContainerCreating"), podIP="")
    assert is_slow(record, record.created_at + 16)
    assert not is_slow(record, record.created_at + 14)
    assert not is_slow(make_record(waiting("ErrImagePull"), podIP=""), record.created_at + 100)
    assert not is_slow(make_record(RUNNING), record.created_at + 100)
    assert not is_slow(record._replace(scheduled=False), record.created_at + 100)


def test_the_newest_trouble_of_each_pod() -> None:
    def event(uid: str, reason: str, at: str, message: str = "m") -> dict[str, Any]:
        return {"involvedObject": {"uid": uid}, "reason": reason, "lastTimestamp": at, "message": message}

    found = read_trouble(
        [
            event("a", "FailedMount", "2026-11-21T22:00:02Z", "no such\nclaim"),
            event("a", "FailedMount", "2026-11-21T22:00:01Z", "older"),
            event("b", "FailedCreatePodSandBox", "2026-11-21T22:00:01Z"),
            event("c", "Unhealthy", "2026-11-21T22:00:01Z"),
            {"reason": "FailedMount"},
        ]
    )
    assert found == {
        "a": "a volume cannot be mounted (FailedMount): no such claim",
        "b": "its network cannot be made (FailedCreatePodSandBox): m",
    }


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"),
        ("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."),
    ],
)
def test_what_waits_at_its_barrier_uses_up_nothing_of_the_user_s(reason: str, message: str) -> None:
    last = ended(137, message=f"{NOT_BEGUN}\n")
    record = make_record(last, phase="Failed", reason=reason, message=message)
    cause, detail = judge_end(record, ordered=False)
    assert cause is Cause.NODE and reason in detail and message in detail
    assert not has_begun(record)
    assert judge_end(record, ordered=True) == (None, "")
    # Its program had begun, and took the mark back.
    assert (
        judge_end(make_record(ended(137), phase="Failed", reason=reason, message=message), False)[0] is not Cause.NODE
    )
