"""What the first process of a pod does beside the user's program: the barrier before it, and the word of its end."""

from __future__ import annotations

import contextlib
import os
import signal

from tests.system.kubernetes.conftest import KubeSpan, list_processes

GROUP = """
name: heard
execution: parallel
primary_tasks: [trainer]
---
name: trainer
resources: {cpus: 0.1}
run: |
  echo begun; sleep 2; printf 'no end of line' >&2
---
name: server
resources: {cpus: 0.1}
run: |
  trap 'echo term; exit 0' TERM
  while :; do sleep 0.05; done
"""


def test_the_log_tells_the_end_and_does_not_show_that(kube: KubeSpan) -> None:
    job = kube.submit(GROUP)
    kube.until(job, "COMPLETED", timeout=60)
    assert kube.log(job, "trainer") == "begun\nno end of line"
    assert "term\n" in kube.log(job, "server")
    assert "pod heard-trainer-0-a0: its log tells its end" in (kube.state / "daemon.log").read_text()
    (attempt,) = next(task for task in kube.job(job)["tasks"] if task["name"] == "trainer")["attempts"]
    assert attempt["ended_at"] - attempt["started_at"] >= 2
    kube.until_empty()


def test_a_pod_that_somebody_deletes_at_its_barrier_is_no_error_of_the_user(kube: KubeSpan) -> None:
    kube.connect(kube.rig, kube.namespace, gang="soft")
    text = GROUP.replace("resources: {cpus: 0.1}\nrun: |\n  trap", "resources: {cpus: 100}\nrun: |\n  trap")
    job = kube.submit(text)
    pod = "heard-trainer-0-a0"
    kube.wait_until(lambda: "running" in str(kube.pods().get(pod, {}).get("status")), 30, "the trainer to wait")
    kube.kubectl("delete", "pod", pod, "--wait=false")
    message = "ended before its start"
    kube.wait_until(lambda: message in str(kube.pods().get(pod, {}).get("status")), 30, "its word")
    shown = kube.job(job)
    assert shown["state"] == "PENDING"
    kube.run("scancel", str(job))
    kube.until(job, "CANCELLED")
    assert kube.run("logs", str(job), check=False).stdout == ""


def test_a_container_killed_at_its_barrier_is_no_error_of_the_user(kube: KubeSpan) -> None:
    kube.connect(kube.rig, kube.namespace, gang="soft", gang_timeout="10m")
    later = "resources: {cpus: 0.1}\nkubernetes: {spec: {nodeSelector: {overspan-test/later: 'yes'}}}\nrun: |\n  trap"
    job = kube.submit(GROUP.replace("resources: {cpus: 0.1}\nrun: |\n  trap", later))
    pod = "heard-trainer-0-a0"
    kube.wait_until(lambda: "running" in str(kube.pods().get(pod, {}).get("status")), 30, "the trainer to wait")
    kube.wait_until(lambda: kube.pods()[pod]["status"]["phase"] == "Running", 30, "its container")
    for process in list_processes(kube.pods()[pod]):
        # Beside the first one there is now and then a `sleep`.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    kube.wait_until(lambda: kube.pods()[pod]["status"]["phase"] == "Failed", 30, "its end")
    label = ("label", "node", "node1", "--overwrite")
    kube.kubectl(*label, "overspan-test/later=yes")
    try:
        shown = kube.until(job, "COMPLETED", timeout=60)
    finally:
        kube.kubectl(*label, "overspan-test/later-")
    (trainer,) = (task for task in shown["tasks"] if task["name"] == "trainer")
    assert [attempt["state"] for attempt in trainer["attempts"]] == ["NODE_FAIL", "COMPLETED"]
    assert trainer["attempts"][0]["started_at"] is None
    assert kube.log(job, "trainer") == "begun\nno end of line"
    kube.until_empty()
