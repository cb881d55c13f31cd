"""Groups across while one of their clusters is in trouble: the other side goes on, and what is wrong is said."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.rigs.kube import KubeRig
from tests.system.across.conftest import FOLDER, MOUNTED, Lab
from tests.system.kubernetes.conftest import log_in
from tests.system.slurm.gates import Gate

GROUP = """\
name: pair
execution: parallel
primary_tasks: [trainer]
---
name: trainer
cluster: leo
resources: {{cpus: 1, memory: 50M}}
run: |
  echo begun
  {wait}
---
name: server
cluster: kube
resources: {{cpus: 0.1}}
run: |
  echo begun
  sleep 3600
"""


@pytest.mark.parametrize("renamed", [False, True], ids=["removed", "renamed"])
@pytest.mark.parametrize("removed", ["kube", "leo"])
def test_a_cluster_that_the_configuration_loses_leaves_the_whole_group_alone(
    lab: Lab, removed: str, renamed: bool
) -> None:
    """CS07 across: neither part ends, what is asked waits, the missing cluster is named, and put back all goes on.

    By its other name the same place is used, and what is let go of there is the other job's alone.
    """
    gate = Gate(lab.site)
    job = lab.submit(GROUP.format(wait=gate.wait))
    lab.wait_until(lambda: all("begun" in lab.log(job, task) for task in ("trainer", "server")), 60, "both sides")
    (pod,) = lab.pods().items()
    settings = json.loads(lab.config.read_text())
    entry = settings["clusters"].pop(removed)
    (settings["default_cluster"],) = settings["clusters"]
    if renamed:
        settings["clusters"]["other"], settings["default_cluster"] = entry, "other"
    lab.run("shutdown")
    lab.config.write_text(json.dumps(settings))
    # A job on the cluster that is left ends, and what it had there is let go of, and nothing else.
    other = lab.submit(json.dumps({"name": "other", "run": "true", "resources": {"cpus": 1, "memory": "50M"}}))
    lab.until(other, "COMPLETED", timeout=60)
    lab.wait_until(lambda: [*lab.pods()] == [pod[0]], 30, "the other job's pod to go")
    words = f"does not name the cluster {removed}, which was "
    for text in (lab.run("ping", check=False).stdout, lab.run("clusters").stdout, lab.run("show", str(job)).stdout):
        assert words in text and "1 live job of leo+kube is left as it is" in text, text
    asked = lab.run("scancel", str(job)).stderr
    assert "what was asked waits" in asked and f"name it {removed} again" in asked
    assert lab.pods()[pod[0]]["metadata"]["uid"] == pod[1]["metadata"]["uid"]
    lab.wait_until(lambda: lab.site.slurm("squeue", "-h", "-o", "%T").split() == ["RUNNING"], 30, "the other job to go")
    assert lab.job(job)["state"] == "RUNNING"
    lab.run("shutdown")
    settings["clusters"].pop("other", None)
    settings["clusters"][removed], settings["default_cluster"] = entry, removed
    lab.config.write_text(json.dumps(settings))
    lab.until(job, "CANCELLED", timeout=60)
    lab.until_empty()


def test_an_api_server_that_hangs_during_the_submission_is_said_and_delays_nobody_else(
    lab: Lab, kube_rig: KubeRig
) -> None:
    """MX01, MX04: nothing of the group runs meanwhile, others on Slurm do, and it starts when there is an answer."""
    settings = json.loads(lab.config.read_text())
    settings["clusters"]["kube"]["request_timeout"] = 4
    lab.config.write_text(json.dumps(settings))
    gate = Gate(lab.site)
    warm = lab.submit(json.dumps({"name": "warm", "run": "true", "resources": {"cpus": 0.1}}))
    lab.until(warm, "COMPLETED", timeout=60)
    with kube_rig.frozen("apiserver"):
        job = lab.submit(GROUP.format(wait=gate.wait))
        other = lab.submit(json.dumps({"name": "other", "run": "true", "resources": {"cpus": 1}}), "-M", "leo")
        lab.wait_until(lambda: "kube: context rig" in lab.look("show", str(job)), 10, "what hinders it")
        assert "took longer than 4 s to answer" in lab.look("show", str(job))
        lab.until(other, "COMPLETED", timeout=60)
        assert lab.job(job)["state"] == "PENDING"
        assert "begun" not in lab.log(job, "trainer")
    lab.until(job, "RUNNING", timeout=60)
    gate.open()
    lab.until(job, "COMPLETED", timeout=60)
    assert [lab.task(job, name)["attempt"] for name in ("trainer", "server")] == [0, 0]
    lab.until_empty()
    lab.wait_until(lambda: not lab.site.slurm("squeue", "-h", "-t", "PD,R,CF").strip(), 30, "an empty queue")


def test_a_side_whose_link_is_cut_in_the_middle_keeps_running_and_the_other_recovers(lab: Lab) -> None:
    """MX04 the other way: a pod that is lost meanwhile comes back; the trainer's end is heard when the link is back."""
    gate = Gate(lab.site)
    text = GROUP.format(wait=gate.wait).replace("cluster: kube\n", "cluster: kube\non_failure: restart\n")
    job = lab.submit(text)
    lab.wait_until(lambda: all("begun" in lab.log(job, task) for task in ("trainer", "server")), 60, "both sides")
    for task in ("trainer", "server"):
        lab.until(job, "RUNNING", task=task)
    with without_login(lab):
        lab.wait_until(lambda: "cluster leo has not answered since" in lab.look("show", str(job)), 20, "a stale part")
        (pod,) = lab.pods()
        lab.kubectl("delete", "pod", pod, "--wait=false")
        lab.wait_until(lambda: lab.task(job, "server")["attempt"] == 1, 40, "the next attempt")
        lab.until(job, "RUNNING", task="server", timeout=40)
        assert lab.task(job, "trainer")["state"] == "RUNNING"
        gate.open()
    lab.until(job, "COMPLETED", timeout=60)
    assert lab.task(job, "trainer")["attempt"] == 0
    lab.until_empty()


LOST = """\
name: pair
execution: parallel
---
name: trainer
cluster: leo
resources: {{cpus: 1, memory: 50M}}
grace_period: 20
max_recoveries: 3
backoff: {{first: 0s}}
run: |
  note() {{ echo "$1" >> {folder}.notes; }}
  umask 0; note "trainer begins"
  trap 'note "trainer stops"; sleep 2; note "trainer has ended"; exit 1' TERM
  until [ -e {folder} ]; do sleep 0.1; done
---
name: server
cluster: kube
resources: {{cpus: 0.1}}
workdir: {mounted}
grace_period: 20
run: |
  note() {{ echo "$1" >> {seen}.notes; }}
  umask 0; note "server begins"
  trap 'note "server stops"; sleep 4; note "server has ended"; exit 1' TERM
  until [ -e {seen} ]; do sleep 0.1; done
"""


@pytest.mark.parametrize("killed", [False, True])
def test_a_lost_launch_is_followed_by_the_next_when_all_its_parts_have_ended(lab: Lab, killed: bool) -> None:
    """MX04: somebody removes what Kubernetes knows of the group; no program of it runs beside its next attempt.

    Its pods are there without the launch that they belong to, and are ended like the part on Slurm.
    """
    gate = Gate(lab.site)
    seen = MOUNTED + gate.path.removeprefix(FOLDER)
    job = lab.submit(LOST.format(folder=gate.path, seen=seen, mounted=MOUNTED))
    lab.wait_until(lambda: len(list_notes(lab, gate)) == 2, 60, "both sides")
    lab.until(job, "RUNNING")
    lab.kill_daemon()
    lab.kubectl("delete", "configmap", "--all", "--cascade=orphan")
    lab.run("squeue")
    lab.wait_until(lambda: "trainer stops" in list_notes(lab, gate), 30, "TERM on the other side")
    if killed:
        lab.kill_daemon()
    lab.wait_until(
        lambda: "the launch before is being ended, since " in lab.look("show", str(job)), 5, "what it waits for"
    )
    lab.wait_until(lambda: sum("begins" in note for note in list_notes(lab, gate)) == 4, 60, "the next launch")
    notes = list_notes(lab, gate)
    begun = [number for number, note in enumerate(notes) if "begins" in note]
    # TERM may come twice: from Slurm, which cancels the job, and from the supervisor in it.
    assert set(notes[2 : begun[2]]) == {
        f"{task} {fact}" for task in ("trainer", "server") for fact in ("stops", "has ended")
    }, notes
    gate.open()
    lab.until(job, "COMPLETED", timeout=60)
    lab.until_empty()


def test_without_the_right_to_name_members_elsewhere_nothing_runs_and_it_is_said(lab: Lab) -> None:
    """MX02: EndpointSlices are a right of their own; the group ends with its words, and neither side ran a program."""
    kinds = "--resource=pods,pods/log,pods/exec,configmaps,secrets,services,events,podgroups.scheduling.k8s.io"
    lab.kubectl("create", "role", "poor", "--verb=*", kinds)
    lab.kubectl("create", "rolebinding", "poor", "--role=poor", f"--serviceaccount={lab.namespace}:default")
    settings = json.loads(lab.config.read_text())
    settings["clusters"]["kube"]["kubeconfig"] = str(log_in(lab, "default"))
    lab.config.write_text(json.dumps(settings))
    job = lab.submit(GROUP.format(wait="sleep 600"))
    lab.wait_until(lambda: "endpointslices" in lab.look("show", str(job)), 60, "the right that is missing")
    assert all("begun" not in lab.log(job, task) for task in ("trainer", "server"))
    lab.until(job, "FAILED", timeout=30)
    lab.until_empty()
    lab.wait_until(lambda: not lab.site.slurm("squeue", "-h", "-t", "PD,R,CF").strip(), 30, "an empty queue")


GRACE = 10
"""Seconds; the work there takes 5 of them."""
LATE = """\
name: pair
execution: parallel
primary_tasks: [first]
termination_delay: 0
---
name: first
cluster: {primary}
resources: {{cpus: {cpus[0]}, memory: 50M}}
workdir: {folders[0]}
run: until [ -e {folders[0]}/{gate} ]; do sleep 0.2; done
---
name: second
cluster: {cut}
resources: {{cpus: {cpus[1]}, memory: 50M}}
workdir: {folders[1]}
grace_period: {grace}
run: |
  umask 0
  note() {{ echo "$1" >> {folders[1]}/{gate}.notes; }}
  trap 'note told; sleep 5; note saved; exit 0' TERM
  note begun
  while :; do sleep 0.1; done
"""


@pytest.mark.parametrize("cut", ["kube", "leo"])
def test_a_term_that_comes_late_leaves_the_whole_grace_period(lab: Lab, kube_rig: KubeRig, cut: str) -> None:
    """MX04: a side is out of reach when the primary ends, for longer than its grace; then a new daemon tells it."""
    gate = Gate(lab.site)
    cpus: tuple[float, ...]
    primary, cpus, folders = "leo", (1, 0.1), (FOLDER, MOUNTED)
    if cut == "leo":
        primary, cpus, folders = "kube", (0.1, 1), (MOUNTED, FOLDER)
    name = gate.path.removeprefix(f"{FOLDER}/")
    job = lab.submit(LATE.format(primary=primary, cut=cut, cpus=cpus, folders=folders, gate=name, grace=GRACE))
    lab.wait_until(lambda: list_notes(lab, gate) == ["begun"], 60, "the other side")
    for task in ("first", "second"):
        lab.until(job, "RUNNING", task=task)
    with kube_rig.without_api() if cut == "kube" else without_login(lab):
        lab.wait_until(lambda: f"cluster {cut} has not answered since" in lab.look("show", str(job)), 40, "silence")
        gate.open()
        lab.until(job, "COMPLETED", task="first", timeout=40)
        ended_at = time.monotonic()
        lab.kill_daemon()
        lab.wait_until(lambda: time.monotonic() > ended_at + GRACE + 4, 20, "more than the grace period")
        assert lab.task(job, "second")["state"] == "COMPLETING"
    lab.until(job, "COMPLETED", timeout=90)
    # A kubelet that finds its API server again later than the daemon does is not waited for.
    lab.wait_until(lambda: len(list_notes(lab, gate)) == 3, 60, "the end of the work")
    assert list_notes(lab, gate) == ["begun", "told", "saved"]
    lab.until_empty()


def list_notes(lab: Lab, gate: Gate) -> list[str]:
    """What programs have noted beside a gate."""
    found = lab.site.rig.run(["cat", f"{gate.path}.notes"], user="root")
    return found.stdout.splitlines() if found.rc == 0 else []


@contextmanager
def without_login(lab: Lab) -> Iterator[None]:
    """Nobody reaches the login node of the Slurm cluster."""
    lab.site.rig.run(["pkill", "sshd"], user="root")
    try:
        yield
    finally:
        assert lab.site.rig.run(["/usr/sbin/sshd"], user="root").rc == 0
