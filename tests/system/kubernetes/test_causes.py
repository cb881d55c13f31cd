"""Every cause of an end has its own state and reason on a real Kubernetes. Row MJ02 of docs/acceptance.md."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.system.kubernetes.conftest import WAITS, KubeSpan
from tests.system.kubernetes.priorities import priority_class

HOG = "x=0123456789abcdef; while :; do x=$x$x; done"
LOOP = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"


def write_job(**keys: object) -> str:
    """A job file of one small task that is not tried again."""
    return str(yaml.safe_dump({"name": "ends", "resources": {"cpus": 0.1}, "max_recoveries": 0, **keys}))


@pytest.mark.parametrize(
    ("keys", "state", "reason", "code"),
    [
        ({"run": "exit 7"}, "FAILED", "NonZeroExitCode", 7),
        ({"setup": "exit 5", "run": "true"}, "FAILED", "SetupFailed", 5),
        ({"run": "sleep 600", "time": "2s", "grace_period": "1s"}, "TIMEOUT", "TimeLimit", 0),
        ({"run": HOG, "resources": {"cpus": 0.1, "memory": "24M"}}, "OUT_OF_MEMORY", "OutOfMemory", 0),
    ],
    ids=["error", "setup", "time", "memory"],
)
def test_an_end_of_the_programs_own_has_its_state_and_reason(
    kube: KubeSpan, keys: dict[str, object], state: str, reason: str, code: int
) -> None:
    job = kube.submit(write_job(**keys))
    shown = kube.until(job, "COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "CANCELLED", timeout=60)
    assert (shown["state"], shown["reason"], shown["exit_code"]) == (state, reason, code)
    kube.until_empty()


def test_what_somebody_does_to_a_pod_has_its_state_and_reason(kube: KubeSpan) -> None:
    deleted, cancelled = (kube.submit(write_job(run=LOOP, grace_period="5s")) for _ in range(2))
    for job in (deleted, cancelled):
        kube.wait_until(lambda job=job: "up" in kube.log(job), 30, "its start")
    pod = next(name for name in kube.pods() if f"-{deleted}-" in name)
    kube.kubectl("delete", "pod", pod, "--wait=false")
    kube.run("scancel", str(cancelled))
    assert kube.until(deleted, "NODE_FAIL")["reason"] == "NodeDown"
    kube.until(cancelled, "CANCELLED")
    kube.until_empty()


def test_a_pod_of_higher_priority_takes_the_place_of_a_lower_one(kube: KubeSpan) -> None:
    # Two processors a node: one such pod fits on each.
    wide = {"cpus": 1.5}
    with priority_class(kube, 1000) as high:
        final = kube.submit(write_job(name="low", run=LOOP, resources=wide, grace_period="1s"))
        again = kube.submit(
            write_job(
                name="back", run=LOOP, resources=wide, grace_period="1s", max_recoveries=3, backoff={"first": 0.1}
            )
        )
        for job in (final, again):
            kube.wait_until(lambda job=job: "up" in kube.log(job), 30, "its start")
        # Each keeps its place until the other one has one, too.
        first = kube.submit(write_job(name="one", run=WAITS, resources={**wide, "priority_class": high}))
        second = kube.submit(write_job(name="two", run=WAITS, resources={**wide, "priority_class": high}))
        for job in (first, second):
            kube.until(job, "RUNNING", timeout=60)
        for pod in kube.pods():
            if pod.startswith((f"one-{first}-", f"two-{second}-")):
                kube.let_go(pod)
        assert kube.until(final, "PREEMPTED", timeout=60)["reason"] == "Preempted"
        for job in (first, second):
            kube.until(job, "COMPLETED", timeout=60)

        def find_second() -> list[dict[str, Any]] | None:
            shown = kube.job(again)
            attempts: list[dict[str, Any]] = shown["tasks"][0]["attempts"]
            return attempts if shown["state"] == "RUNNING" and len(attempts) >= 2 else None

        attempts = kube.wait_until(find_second, 60, "its second attempt to run")
        assert attempts[0]["state"] == "PREEMPTED"
        kube.run("scancel", str(again))
        kube.until_empty(60)
