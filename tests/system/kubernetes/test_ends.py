"""What the first process of a pod does beside the user's program: the start gate before it, and the word of its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator

from tests.system.kubernetes.conftest import WAITS, KubeSpan, list_processes

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
grace_period: 120
resources: {cpus: 0.1}
run: |
  trap 'echo term; exit 0' TERM
  while :; do sleep 0.05; done
"""


WATCHED = GROUP.replace("sleep 2", WAITS).replace("echo term; exit 0", f"echo term; {WAITS}; echo gone; exit 0")
TOLD = {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 0}}}]}


@contextlib.contextmanager
def untold_end(kube: KubeSpan, pod: str) -> Iterator[None]:
    """The API server takes no status from a node that says that this pod's program has ended."""
    name = f"untold-{kube.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}
    ended = "object.status.?containerStatuses.orValue([]).exists(one, has(one.state.terminated))"
    spec = {
        "matchConstraints": {
            "resourceRules": [{**rule, "resourceNames": [pod]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": kube.namespace}},
        },
        "validations": [{"expression": f"!{ended}", "message": "nobody is to know"}],
    }
    api = "admissionregistration.k8s.io/v1"
    policy = {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    binding = {**policy, "kind": "ValidatingAdmissionPolicyBinding"}
    binding["spec"] = {"policyName": name, "validationActions": ["Deny"]}
    kube.rig.apply(policy, binding, namespace=kube.namespace)
    try:
        words = ("patch", "pod", pod, "--subresource=status", "--type=merge", "--dry-run=server")
        patch = json.dumps({"status": TOLD})

        def refuses() -> bool:
            return "nobody is to know" in kube.rig.kubectl(*words, "-p", patch, namespace=kube.namespace).stderr

        kube.wait_until(refuses, 60, "the policy")
        yield
    finally:
        kube.rig.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)


def let_end(kube: KubeSpan, pod: str) -> None:
    """Have a program end that waits for it, when the daemon follows its log."""
    followed = f"pod {pod}: its log is followed"
    kube.wait_until(lambda: followed in (kube.state / "daemon.log").read_text(), 60, followed)
    kube.let_go(pod)


def until_begun(kube: KubeSpan, job: int) -> None:
    """Wait for the trainer's first line: its next one goes another way, and could come before it."""
    kube.wait_until(lambda: "begun" in kube.log(job, "trainer"), 60, "its first line")


def until_at_barrier(kube: KubeSpan, pod: str) -> None:
    """Wait until the first process of a pod has said that nothing has begun."""
    kube.wait_until(lambda: "running" in str(kube.pods().get(pod, {}).get("status")), 30, "the trainer to wait")
    words = ("exec", pod, "-c", "main", "--", "cat", "/dev/termination-log")
    kube.wait_until(
        lambda: "ended before" in kube.rig.kubectl(*words, namespace=kube.namespace).stdout, 30, "its word before"
    )


def test_the_log_tells_the_end_and_does_not_show_that(kube: KubeSpan) -> None:
    job = kube.submit(WATCHED)
    trainer, server = "heard-trainer-0-a0", "heard-server-0-a0"
    kube.until(job, "RUNNING", timeout=60)
    until_begun(kube, job)
    with untold_end(kube, trainer):
        let_end(kube, trainer)
        # TERM is for all that runs in its pod.
        kube.wait_until(lambda: "term" in kube.log(job, "server"), 60, "the server's TERM")
        let_end(kube, server)
        kube.until(job, "COMPLETED", timeout=60)
        assert f"pod {trainer}: its log tells its end" in (kube.state / "daemon.log").read_text()
        assert "terminated" not in json.dumps(kube.pods()[trainer]["status"])
    kube.until_empty(60)
    assert kube.log(job, "trainer") == "begun\nno end of line"
    # Between them a shell may tell of its `sleep`, which the signal ended too.
    assert [line for line in kube.log(job, "server").splitlines() if line in ("term", "gone")] == ["term", "gone"]


def test_an_attempt_has_its_time(kube: KubeSpan) -> None:
    job = kube.submit(GROUP)
    kube.until(job, "COMPLETED", timeout=60)
    (attempt,) = next(task for task in kube.job(job)["tasks"] if task["name"] == "trainer")["attempts"]
    assert attempt["ended_at"] - attempt["started_at"] >= 2
    kube.until_empty()


def test_a_pod_that_somebody_deletes_at_its_barrier_is_no_error_of_the_user(kube: KubeSpan) -> None:
    kube.connect(kube.rig, kube.namespace, gang="soft", gang_timeout="10m")
    text = GROUP.replace("resources: {cpus: 0.1}\nrun: |\n  trap", "resources: {cpus: 100}\nrun: |\n  trap")
    job = kube.submit(text)
    pod = "heard-trainer-0-a0"
    until_at_barrier(kube, pod)
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
    text = GROUP.replace("sleep 2", WAITS)
    job = kube.submit(text.replace("resources: {cpus: 0.1}\nrun: |\n  trap", later))
    pod = "heard-trainer-0-a0"
    until_at_barrier(kube, pod)
    kube.wait_until(lambda: kube.pods()[pod]["status"]["phase"] == "Running", 30, "its container")
    for process in list_processes(kube.pods()[pod]):
        # Beside the first one there is now and then a `sleep`.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    kube.wait_until(lambda: kube.pods()[pod]["status"]["phase"] == "Failed", 30, "its end")
    label = ("label", "node", "node1", "--overwrite")
    kube.kubectl(*label, "overspan-test/later=yes")
    try:
        until_begun(kube, job)
        kube.let_go("heard-trainer-0-a1")
        shown = kube.until(job, "COMPLETED", timeout=60)
    finally:
        kube.kubectl(*label, "overspan-test/later-")
    (trainer,) = (task for task in shown["tasks"] if task["name"] == "trainer")
    assert [attempt["state"] for attempt in trainer["attempts"]] == ["NODE_FAIL", "COMPLETED"]
    assert trainer["attempts"][0]["started_at"] is None
    assert kube.log(job, "trainer") == "begun\nno end of line"
    kube.until_empty()
