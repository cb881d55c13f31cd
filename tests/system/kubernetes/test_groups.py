"""Groups as pods on a real Kubernetes: names, order of ends, losses, gangs, and nothing left behind."""

from __future__ import annotations

import json
import re

import pytest
from tests.system.kubernetes.conftest import WAITS, KubeSpan

GROUP = """
---
name: duo
execution: parallel
primary_tasks: [trainer]
termination_delay: 2s
---
name: server
grace_period: 60s
resources: {cpus: 0.1}
run: |
  trap 'echo got TERM; sleep 1; echo stopped; exit 0' TERM
  echo serving as $(hostname); mkdir -p /tmp/www; echo hello >/tmp/www/index.html
  httpd -f -p 8000 -h /tmp/www & wait
---
name: trainer
resources: {cpus: 0.1}
run: |
  until wget -q -O- http://server-0.duo:8000/ 2>/dev/null; do sleep 0.2; done
  cat $OVERSPAN_RUN_DIR/notice; echo members $OVERSPAN_MEMBERS
"""

WORKERS = """
---
name: NAME
execution: parallel
---
name: worker
num_nodes: 3
resources: {cpus: 1}
run: |
  echo together; sleep 1
"""


def test_a_wrapped_command_runs_as_a_pod(kube: KubeSpan) -> None:
    job = kube.wrap(f"hostname; {WAITS}; echo to stderr >&2")
    # The two come by ways of their own, the later one perhaps first.
    kube.wait_until(lambda: "wrap" in kube.log(job), 30, "its first line")
    (pod,) = kube.pods()
    kube.let_go(pod)
    kube.until(job, "COMPLETED")
    assert kube.log(job) == f"wrap-{job}\nto stderr\n"
    kube.until_empty()
    # The daemon keeps what the pod has printed.
    assert "to stderr" in kube.log(job)


def test_a_group_of_two_finds_each_other_and_ends_in_order(kube: KubeSpan) -> None:
    job = kube.submit(GROUP)
    shown = kube.until(job, "COMPLETED", timeout=60)
    states = {task["name"]: (task["state"], task["exit_code"]) for task in shown["tasks"]}
    assert states == {"server": ("COMPLETED", 0), "trainer": ("COMPLETED", 0)}
    assert kube.log(job, "trainer") == "hello\nmembers server-0.duo,trainer-0.duo\n"
    assert kube.log(job, "server").splitlines()[:3] == ["serving as server-0", "got TERM", "stopped"]
    done = next(task["ended_at"] for task in shown["tasks"] if task["name"] == "trainer")
    # A timeline tells whole milliseconds.
    assert done - 0.001 <= kube.time_of(job, "Notice") < kube.time_of(job, "Terminate")
    assert 1.9 <= kube.time_of(job, "Terminate") - done < 60
    kube.until_empty()


def test_a_second_group_of_a_name_waits_for_the_first_and_says_so(kube: KubeSpan) -> None:
    first = kube.submit(GROUP.replace("wget", "false wget"))
    kube.until(first, "RUNNING")
    second = kube.submit(GROUP)
    kube.wait_until(
        lambda: f"waits for job {first}, which has the name duo" in kube.job(second)["reason"], 30, "what it waits for"
    )
    assert (kube.job(first)["state"], kube.job(second)["state"]) == ("RUNNING", "PENDING")
    kube.run("scancel", str(first))
    kube.until(second, "COMPLETED", timeout=90)


def test_a_cancel_is_term_then_kill_after_the_grace(kube: KubeSpan) -> None:
    text = """
name: stubborn
resources: {cpus: 0.1}
grace_period: 12s
run: |
  trap 'echo got TERM' TERM
  echo ready; while :; do sleep 0.2; done
"""
    job = kube.submit(text)
    kube.until(job, "RUNNING")
    kube.wait_until(lambda: "ready" in kube.log(job), 30, "its trap")
    kube.run("scancel", str(job))
    shown = kube.until(job, "CANCELLED", timeout=60)
    assert "got TERM" in kube.log(job)
    assert shown["tasks"][0]["ended_at"] - kube.time_of(job, "Terminate") >= 11
    kube.until_empty()


def test_a_failure_has_its_code_and_its_retries(kube: KubeSpan) -> None:
    text = """
name: failing
resources: {cpus: 0.1}
max_restarts_on_errors: 1
backoff: {first: 1s}
run: |
  echo attempt $OVERSPAN_ATTEMPT; exit 7
"""
    job = kube.submit(text)
    shown = kube.until(job, "FAILED", timeout=60)
    assert shown["exit_code"] == 7
    assert kube.log(job, "", "--attempt", "0") == "attempt 0\n"
    assert kube.log(job) == "attempt 1\n"
    kube.until_empty()


def test_a_deleted_pod_is_a_loss_and_comes_back_under_its_name(kube: KubeSpan) -> None:
    job = kube.submit(GROUP.replace("until wget", f"{WAITS}; until wget"))
    kube.wait_until(lambda: "serving" in kube.log(job, "server"), 30, "the first server")
    kube.kubectl("delete", "pod", "duo-server-0-a0", "--wait=false")
    kube.wait_until(lambda: "duo-server-0-a1" in kube.pods(), 40, "the successor")
    kube.let_go("duo-trainer-0-a0")
    kube.until(job, "COMPLETED", timeout=60)
    assert "hello" in kube.log(job, "trainer")
    states = [attempt["state"] for attempt in kube.task(job, "server")["attempts"]]
    assert states == ["NODE_FAIL", "COMPLETED"]


def test_an_image_that_is_not_there_is_the_reason_and_can_be_cancelled(kube: KubeSpan) -> None:
    text = GROUP.replace("name: server\n", "name: server\nresources: {image_id: docker:nobody/nothing:1}\n", 1)
    text = text.replace("resources: {cpus: 0.1}\nrun: |\n  trap", "run: |\n  trap")
    job = kube.submit(text)
    shown = kube.wait_until(lambda: _find(kube, job, "ErrImagePull|ImagePullBackOff"), 60, "the reason")
    assert shown["state"] == "PENDING" and shown["reason"].startswith("JobLaunchFailure")
    kube.run("scancel", str(job))
    kube.until(job, "CANCELLED")
    kube.until_empty()


def _find(kube: KubeSpan, job: int, pattern: str) -> dict[str, object] | None:
    shown = kube.job(job)
    return shown if re.search(pattern, shown["reason"]) else None


@pytest.mark.parametrize("gang", ["soft", "auto"])
def test_two_groups_that_want_everything_both_finish(kube: KubeSpan, gang: str) -> None:
    kube.connect(kube.rig, kube.namespace, gang=gang, gang_timeout=15)
    jobs = [kube.submit(WORKERS.replace("NAME", name)) for name in ("left", "right")]
    for job in jobs:
        shown = kube.until(job, "COMPLETED", timeout=150)
        assert [attempt["state"] for attempt in shown["tasks"][0]["attempts"]] == ["COMPLETED"]
    kube.until_empty()


def test_what_does_not_fit_holds_nothing_for_long(kube: KubeSpan) -> None:
    kube.connect(kube.rig, kube.namespace, gang="soft", gang_timeout=3)
    text = WORKERS.replace("NAME", "big").replace("num_nodes: 3", "num_nodes: 6")
    job = kube.submit(text)

    def bound() -> set[str]:
        return {pod["metadata"]["uid"] for pod in kube.pods().values() if pod["spec"].get("nodeName")}

    held = kube.wait_until(bound, 30, "some pods to have a place")
    # New ones may have theirs a moment later.
    kube.wait_until(lambda: not held & bound(), 30, "what was held to be given back")
    shown = kube.job(job)
    assert shown["state"] == "PENDING"
    kube.run("scancel", str(job))
    kube.until(job, "CANCELLED")
    kube.until_empty()


def test_a_daemon_that_was_killed_goes_on(kube: KubeSpan) -> None:
    job = kube.submit(GROUP.replace("until wget", f"{WAITS}; until wget"))
    kube.until(job, "RUNNING")
    kube.kill_daemon()
    kube.let_go("duo-trainer-0-a0")
    kube.until(job, "COMPLETED", timeout=60)
    assert all(len(task["attempts"]) == 1 for task in kube.job(job)["tasks"])
    kube.until_empty()


def test_what_a_dead_daemon_left_is_removed_by_the_next(kube: KubeSpan) -> None:
    job = kube.wrap(WAITS)
    kube.until(job, "RUNNING")
    kube.kill_daemon()
    (pod,) = kube.pods()
    kube.let_go(pod)
    kube.wait_until(lambda: "Succeeded" in json.dumps([pod["status"] for pod in kube.pods().values()]), 60, "its end")
    kube.until(job, "COMPLETED")
    kube.until_empty()
