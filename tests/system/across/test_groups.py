"""One group over a real Slurm and a real Kubernetes: names both ways, one start, one end."""

from __future__ import annotations

import json

import pytest
from tests.rigs.kube import KubeRig
from tests.rigs.reach import find_address
from tests.system.across.conftest import FOLDER, Lab
from tests.system.slurm.gates import Gate
from tests.system.watchers import find_own_address

GROUP = """\
name: rl
execution: parallel
primary_tasks: [trainer]
---
name: trainer
cluster: leo
resources: {{cpus: 1, memory: 50M}}
run: |
  echo members $OVERSPAN_MEMBERS
  getent hosts server-0.rl
  ask='import socket; print(socket.create_connection(("server-0.rl", 7001), 5).recv(99).decode())'
  until {over}; do python3 -c "$ask" 2>/dev/null; sleep 0.5; done
---
name: server
cluster: kube
resources: {{cpus: 0.1, image_id: "docker:rig/python:1"}}
on_failure: restart
run: |
  echo members $OVERSPAN_MEMBERS
  getent hosts trainer-0.rl
  exec python3 -u -c '
  import os, socket
  server = socket.create_server(("", 7001))
  while True:
      peer, where = server.accept()
      peer.sendall(b"hello from attempt " + os.environ["OVERSPAN_ATTEMPT"].encode())
      peer.close()
  '
"""


@pytest.mark.usefixtures("joined")
def test_a_trainer_on_slurm_and_a_server_in_a_pod_are_one_group(lab: Lab) -> None:
    """JG22, JG26, MX02: each finds the other by its name, at its new address too, and both end together."""
    gate = Gate(lab.site)
    job = lab.submit(GROUP.format(over=f"[ -e {gate.path} ]"))
    lab.until(job, "RUNNING", timeout=60)
    assert lab.job(job)["cluster"] == "leo+kube"
    lab.wait_until(lambda: "hello from attempt 0" in lab.log(job, "trainer"), 20, "the server's answer")
    assert "trainer-0.rl" in lab.log(job, "server")
    lab.kill_daemon()
    (pod,) = lab.pods()
    lab.kubectl("delete", "pod", pod, "--wait=false")
    lab.wait_until(lambda: "hello from attempt 1" in lab.log(job, "trainer"), 40, "the next server's answer")
    assert lab.task(job, "trainer")["attempt"] == 0
    gate.open()
    lab.until(job, "COMPLETED", timeout=60)
    lab.until_empty()


def test_a_part_that_never_fits_keeps_the_other_from_running(lab: Lab) -> None:
    """MX01: while pods wait for room nothing runs on Slurm; a cancel leaves nothing on either side."""
    text = GROUP.format(over="false").replace("cpus: 0.1", "cpus: 64", 1)
    job = lab.submit(text)
    lab.wait_until(lambda: "kube" in lab.job(job)["reason"], 60, "a reason that names the cluster")
    assert lab.job(job)["state"] == "PENDING"
    assert "members" not in lab.log(job, "trainer")
    lab.run("scancel", str(job))
    lab.until(job, "CANCELLED", timeout=30)
    lab.until_empty()
    lab.wait_until(lambda: not lab.site.slurm("squeue", "-h", "-t", "PD,R,CF").strip(), 30, "an empty queue")


@pytest.mark.usefixtures("joined")
def test_one_side_that_does_not_answer_leaves_the_other_alone(lab: Lab, kube_rig: KubeRig) -> None:
    """MX04: training goes on and ends while the API server is away; the pod ends when it is back."""
    gate = Gate(lab.site)
    job = lab.submit(GROUP.format(over=f"[ -e {gate.path} ]"))
    lab.wait_until(lambda: "hello from attempt 0" in lab.log(job, "trainer"), 60, "the server's answer")
    with kube_rig.without_api():
        lab.wait_until(lambda: is_stale(lab), 40, "a stale cluster")
        assert lab.task(job, "trainer")["state"] == "RUNNING"
        gate.open()
        lab.until(job, "COMPLETED", task="trainer", timeout=40)
        assert lab.task(job, "server")["state"] != "FAILED"
    lab.until(job, "COMPLETED", timeout=90)
    lab.until_empty()


WATCHED = """\
name: both
execution: parallel
---
name: trainer
cluster: leo
resources: {{cpus: 1, memory: 50M}}
run: {run}
---
name: server
cluster: kube
resources: {{cpus: 0.1, image_id: "docker:rig/python:1"}}
run: {run}
"""


def test_tasks_submit_to_their_own_clusters_and_see_their_own_group_alone(lab: Lab, kube_rig: KubeRig) -> None:
    """CC06, MX01: `span` works in both parts; a job that names no cluster runs where its submitter does."""
    settings = json.loads(lab.config.read_text())
    settings["clusters"]["kube"]["daemon_address"] = find_own_address(kube_rig.find_node_address(1))
    settings["clusters"]["leo"]["daemon_address"] = find_own_address(find_address(lab.site.rig))
    lab.config.write_text(json.dumps(settings))
    before = list_access(lab)
    other = lab.submit("name: other\nrun: sleep 300\n", "-M", "leo")
    run = "|\n  echo 'run: sleep 1' | span submit - --parsable 2>/dev/null\n  span squeue -h -o '%i %j'\n  sleep 2"
    job = lab.submit(WATCHED.format(run=run))
    lab.until(job, "COMPLETED", timeout=120)
    for task, cluster in (("trainer", "leo"), ("server", "kube")):
        said = lab.log(job, task).split()
        assert said[0][:1].isdigit(), (task, lab.log(job, task))
        child = int(said[0].partition(";")[0])
        assert lab.job(child)["cluster"] == cluster, said
        assert lab.job(child)["parent"] == job
        assert str(other) not in said
    lab.run("scancel", str(other))
    # What leads to the daemon goes with the group, on both sides.
    lab.wait_until(
        lambda: print(sorted(list_access(lab) - before)) or list_access(lab) <= before,
        20,
        "the files with the job's token to go",
    )
    lab.until_empty()


def list_access(lab: Lab) -> set[str]:
    """The files on the Slurm cluster that lead jobs to a daemon."""
    found = lab.site.rig.run(["find", f"{FOLDER}/.overspan/runs", "-name", "access.json"], user="root")
    return set(found.stdout.split())


def is_stale(lab: Lab) -> bool:
    """Whether the cluster `kube` is told not to answer."""
    found: list[dict[str, object]] = json.loads(lab.look("clusters", "--json"))["clusters"]
    return any(each["name"] == "kube" and bool(each["since"]) for each in found)
