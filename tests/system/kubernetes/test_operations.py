"""Keeping order on a real Kubernetes: holds, limits, start timeouts, preemption, lost nodes, and what is left."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from tests.system.kubernetes.conftest import KubeSpan
from tests.system.kubernetes.tolerations import SOON

from overspan.adapters.kubernetes.api.calls import Calls
from overspan.adapters.kubernetes.api.connection import open_connection
from overspan.adapters.kubernetes.launches.abandoned_pods import ABANDONED_SECONDS, free_abandoned
from overspan.adapters.kubernetes.settings import Settings

HALF = """
---
name: half
execution: parallel
start_timeout: TIMEOUT
---
name: fits
resources: {cpus: 0.1}
max_recoveries: 1
backoff: {first: 1s}
run: sleep 600
---
name: never
resources: {cpus: 0.1}
run: sleep 600
kubernetes: {spec: {nodeSelector: {nobody: has}}}
"""
"""One of its pods has a node, and the other never gets one."""


def test_a_held_job_gives_its_pods_back_and_starts_after_its_release(kube: KubeSpan) -> None:
    kube.connect(kube.rig, kube.namespace, gang="soft")
    text = HALF.replace("TIMEOUT", "1h").replace("nobody: has", "kubernetes.io/hostname: NODE")
    job = kube.submit(text)
    kube.wait_until(lambda: any(pod["spec"].get("nodeName") for pod in kube.pods().values()), 60, "a pod with a node")
    kube.run("hold", str(job))
    kube.wait_until(lambda: not kube.pods(), 60, "its pods to go")
    shown = kube.job(job)
    assert (shown["state"], shown["reason"]) == ("PENDING", "JobHeldUser")
    kube.run("release", str(job))
    kube.wait_until(lambda: kube.job(job)["reason"] != "JobHeldUser", 60, "the release")
    # While no node fits it holds nothing; then the label that it waits for comes to be.
    assert not kube.pods()
    kube.rig.kubectl("label", "node", "node1", "--overwrite", "kubernetes.io/hostname=NODE")
    try:
        kube.until(job, "RUNNING", timeout=90)
    finally:
        kube.rig.kubectl("label", "node", "node1", "--overwrite", "kubernetes.io/hostname=node1")
    assert len(kube.task(job, "fits")["attempts"]) == 1


def test_what_does_not_start_in_its_time_is_submitted_again_on_a_budget(kube: KubeSpan) -> None:
    kube.connect(kube.rig, kube.namespace, gang="soft")
    job = kube.submit(HALF.replace("TIMEOUT", "3s"))
    shown = kube.until(job, "FAILED", timeout=120)
    assert shown["reason"] == "StartTimeout"
    text = "not all pods have started within 3 s"
    assert len({row["at"] for row in kube.timeline(job) if text in row["text"]}) == 2
    kube.until_empty(60)


def test_a_limit_grows_as_far_as_the_pods_allow(kube: KubeSpan) -> None:
    job = kube.submit("name: long\ntime: 45s\nresources: {cpus: 0.1}\nrun: sleep 50; echo done\n")
    kube.until(job, "RUNNING", timeout=60)
    refused = kube.run("scontrol", "update", f"JobId={job}", "TimeLimit=2", check=False)
    assert refused.returncode == 1 and "1:30 at most" in refused.stderr and "requeuehold" in refused.stderr
    kube.run("scontrol", "update", f"JobId={job}", "TimeLimit=1:25")
    kube.until(job, "COMPLETED", timeout=90)
    assert kube.log(job) == "done\n"


SAVER = """
name: saver
grace_period: 60s
backoff: {first: 1s}
resources: {cpus: CPUS}
on_preemption: |
  echo saved by $OVERSPAN_TASK of attempt $OVERSPAN_ATTEMPT; sleep 1; echo all of it
run: |
  trap 'echo TERM; exit 1' TERM
  echo ready $OVERSPAN_ATTEMPT
  [ $OVERSPAN_ATTEMPT = 0 ] || exit 0
  while :; do sleep 0.2; done
kubernetes: {spec: {nodeSelector: {kubernetes.io/hostname: node1}}}
"""


def _cpus(kube: KubeSpan) -> float:
    """More than half of what a node has."""
    node = json.loads(kube.rig.kubectl("get", "node", "node1", "-o", "json").stdout)
    text = node["status"]["allocatable"]["cpu"]
    cpus = float(text.removesuffix("m")) / 1000 if text.endswith("m") else float(text)
    return cpus * 0.6


def test_a_preempted_job_runs_its_hook_first_and_is_queued_again(kube: KubeSpan) -> None:
    name = f"urgent-{kube.namespace}"
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000
    }  # fmt: skip
    kube.rig.apply(urgent, namespace=kube.namespace)
    cpus = f"{_cpus(kube):.1f}"
    try:
        job = kube.submit(SAVER.replace("CPUS", cpus))
        kube.wait_until(lambda: "ready 0" in kube.log(job), 60, "its start")
        spec = f"{{priorityClassName: {name}, nodeSelector: {{kubernetes.io/hostname: node1}}}}"
        other = kube.submit(f"name: urgent\nresources: {{cpus: {cpus}}}\nrun: sleep 2\nkubernetes: {{spec: {spec}}}\n")
        kube.until(other, "COMPLETED", timeout=120)
        shown = kube.until(job, "COMPLETED", timeout=120)
    finally:
        kube.rig.kubectl("delete", "priorityclass", name)
    attempts = shown["tasks"][0]["attempts"]
    assert [attempt["state"] for attempt in attempts] == ["PREEMPTED", "COMPLETED"]
    # The shell adds its own word about the `sleep` that TERM ends, too.
    told = [line for line in kube.log(job, "", "--attempt", "0").splitlines() if line != "Terminated"]
    assert told == ["ready 0", "saved by saver of attempt 0", "all of it", "TERM"]


def test_the_hook_does_not_run_when_overspan_ends_the_job(kube: KubeSpan) -> None:
    job = kube.submit(SAVER.replace("CPUS", "0.1"))
    kube.wait_until(lambda: "ready 0" in kube.log(job), 60, "its start")
    kube.run("scancel", str(job))
    kube.until(job, "CANCELLED", timeout=60)
    assert [line for line in kube.log(job).splitlines() if line != "Terminated"] == ["ready 0", "TERM"]


def test_a_pod_of_a_lost_node_stays_until_the_node_is_out_of_the_way(kube: KubeSpan) -> None:
    kube.connect(kube.rig, kube.namespace, tolerations=SOON)
    job = kube.submit(
        "name: lost\ngrace_period: 1s\nresources: {cpus: 0.1}\nbackoff: {first: 1s}\n"
        "run: '[ $OVERSPAN_ATTEMPT = 1 ] || sleep 600'\n"
        "kubernetes: {spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: "
        "[{weight: 100, preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, "
        "values: [node2]}]}}]}}}}\n"
    )
    kube.until(job, "RUNNING", timeout=60)
    (pod,) = kube.pods()
    assert kube.node_of(pod) == 2
    with kube.rig.without_node(2):
        kube.until(job, "COMPLETED", timeout=180)
        assert "stays until that node answers or is removed" in json.dumps(kube.job(job))
        kube.wait_until(
            lambda: not kube.pods()[pod]["metadata"].get("finalizers"), 120, "the finalizer to be taken off"
        )
        # Nobody knows whether it still runs.
        checked = kube.run("fsck", "kube", check=False)
        assert checked.returncode == 1 and "node2 does not answer" in checked.stderr
        assert pod in kube.pods()
        kube.rig.kubectl("delete", "node", "node2")
        kube.wait_until(lambda: not kube.pods(), 120, "the cluster to remove the pod")
    assert kube.run("fsck", "kube").returncode == 0


def test_what_a_lost_store_left_is_found_and_removed(kube: KubeSpan) -> None:
    job = kube.submit("name: orphan\ngrace_period: 1s\nresources: {cpus: 0.1}\nrun: sleep 600\n")
    kube.until(job, "RUNNING", timeout=60)
    kube.kill_daemon()
    for entry in kube.state.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    looked = kube.run("fsck", "kube")
    assert "not known here" in looked.stdout and "--installation ID" in looked.stderr
    (launch,) = json.loads(kube.run("fsck", "kube", "--json").stdout)["launches"]
    assert (launch["job"], launch["standing"], launch["running"]) == (job, "other", 1)
    kube.run("fsck", "kube", "--release")
    assert len(kube.pods()) == 1
    kube.run("fsck", "kube", "--release", "--installation", launch["installation"])
    kube.until_empty(60)


def test_what_is_live_is_left_alone(kube: KubeSpan) -> None:
    job = kube.submit("name: busy\ngrace_period: 1s\nresources: {cpus: 0.1}\nrun: sleep 600\n")
    kube.until(job, "RUNNING", timeout=60)
    checked = kube.run("fsck", "kube", "--release", "--json")
    (launch,) = json.loads(checked.stdout)["launches"]
    assert (launch["standing"], launch["removed"]) == ("live", False)
    assert kube.job(job)["state"] == "RUNNING"


def test_trouble_of_a_later_attempt_is_told(kube: KubeSpan) -> None:
    kube.kubectl("create", "configmap", "words", "--from-literal=word=yes")
    job = kube.submit(
        "name: needs-words\nresources: {cpus: 0.1}\nmax_restarts_on_errors: 1\nbackoff: {first: 1s}\n"
        "run: '[ $OVERSPAN_ATTEMPT = 1 ] || { until [ -e /tmp/go ]; do sleep 0.2; done; exit 1; }'\n"
        "kubernetes: {spec: {volumes: [{name: words, configMap: {name: words}}], "
        "containers: [{volumeMounts: [{name: words, mountPath: /words}]}]}}\n"
    )
    kube.until(job, "RUNNING", timeout=60)
    (pod,) = kube.pods()
    kube.kubectl("delete", "configmap", "words")
    kube.kubectl("exec", pod, "--", "touch", "/tmp/go")
    kube.wait_until(lambda: "words" in kube.job(job)["reason"], 120, "the reason")
    assert kube.job(job)["reason"].startswith("JobLaunchFailure: a volume cannot be mounted")
    kube.kubectl("create", "configmap", "words", "--from-literal=word=yes")
    shown = kube.until(job, "COMPLETED", timeout=150)
    assert shown["reason"] == "None"


def test_what_a_dead_daemon_left_goes_by_the_administrators_command(kube: KubeSpan) -> None:
    """The command of docs/kubernetes-admins.md, as it stands there."""
    page = (Path(__file__).parents[3] / "docs" / "kubernetes-admins.md").read_text()
    (command,) = [block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "finalizers" in block]
    job = kube.submit("name: left\nrun: sleep 1\nresources: {cpus: 0.1}\n")
    kube.until(job, "RUNNING", timeout=60)
    kube.kill_daemon()
    kube.wait_until(lambda: [one["status"]["phase"] for one in kube.pods().values()] == ["Succeeded"], 60, "its end")
    kube.kubectl("delete", "pods", "--all", "--wait=false")
    assert len(kube.pods()) == 1
    path = f"{kube.rig.programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(kube.rig.kubeconfig), "PATH": path}
    words = ["sh", "-c", command.replace("research", kube.namespace)]
    subprocess.run(words, check=True, env=environment, capture_output=True)
    kube.wait_until(lambda: not kube.pods(), 30, "no pod to be left")
    kube.run("scancel", str(job))


def test_another_daemon_lets_go_what_a_drain_has_deleted_and_the_end_is_known_all_the_same(kube: KubeSpan) -> None:
    job = kube.submit("name: left\nrun: sleep 1; exit 3\nresources: {cpus: 0.1}\n")
    kube.until(job, "RUNNING", timeout=60)
    kube.kill_daemon()
    kube.wait_until(lambda: [one["status"]["phase"] for one in kube.pods().values()] == ["Failed"], 60, "its end")
    kube.kubectl("delete", "pods", "--all", "--wait=false")
    connection = open_connection(Settings(kubeconfig=str(kube.rig.kubeconfig), namespace=kube.namespace))

    def free(seconds: float) -> list[str]:
        """What is left after another daemon has looked, so many seconds later."""
        asyncio.run(free_abandoned(Calls(connection, kube.namespace), "other", time.time() + seconds))
        return list(kube.pods())

    try:
        assert len(free(60)) == 1
        kube.wait_until(lambda: not free(ABANDONED_SECONDS + 120), 30, "no pod to be left")
    finally:
        connection.close()
    shown = kube.until(job, "FAILED", timeout=60)
    assert (shown["reason"], shown["exit_code"]) == ("NonZeroExitCode", 3)
    kube.until_empty(60)
