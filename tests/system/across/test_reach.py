"""`span check --across` on a real Slurm and a real Kubernetes: pods that nodes reach, and pods that they do not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.joined import join_networks
from tests.rigs.kube import PYTHON_IMAGE, KubeRig
from tests.system.across.conftest import Lab
from tests.system.slurm.conftest import Site

from overspan.bridge.model.errors import ExitCode

SPAN = (str(Path(sys.executable).with_name("span")),)

GROUP = """\
name: pair
execution: parallel
primary_tasks: [trainer]
---
name: trainer
cluster: leo
resources: {{cpus: 1, memory: 50M}}
run: |
  ask='import socket; print(socket.create_connection(("server-0.pair", 7001), 5).recv(99).decode())'
  until python3 -c "$ask"; do sleep 0.5; done
---
name: server
cluster: kube
ports: 7001
{network}
resources: {{cpus: 0.1, image_id: "docker:rig/python:1"}}
run: |
  exec python3 -u -c '
  import socket
  server = socket.create_server(("", 7001))
  while True:
      peer, where = server.accept()
      peer.sendall(b"hello")
      peer.close()
  '
"""


@pytest.fixture
def nodes_alone(site: Site, kube_rig: KubeRig) -> Iterator[None]:
    """Machines reach each other, and no pod is reached from outside: an overlay network."""
    with join_networks(site.rig, kube_rig, pods=False):
        yield


def check(lab: Lab, *words: str) -> str:
    return lab.run("check", "--across", "leo", "kube", "--image", PYTHON_IMAGE, "--ports", "7001", *words).stdout


@pytest.mark.usefixtures("joined")
def test_both_ways_are_tried_and_plans_show_what_is_known(lab: Lab) -> None:
    """The way from a task to a task is tried, said in words and kept; a trial that is interrupted leaves nothing."""
    group = lab.folder / "group.yaml"
    group.write_text(GROUP.format(network=""))
    before = lab.run("plan", str(group))
    assert "# reach: leo to kube is not known" in before.stdout
    assert "it is tried before the group starts" in before.stderr
    asking = subprocess.Popen(
        [*SPAN, "check", "--across", "leo", "kube", "--image", PYTHON_IMAGE, "--ports", "7001"],
        env=lab.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    lab.wait_until(lambda: "reach-a" in lab.look("squeue", "-h", "-o", "%j"), 30, "a trial")
    asking.send_signal(signal.SIGTERM)
    assert asking.communicate(timeout=60)[0] == "" and asking.returncode == ExitCode.INTERRUPTED
    lab.until(1, "CANCELLED", timeout=60)
    late = lab.run("check", "--across", "leo", "kube", "--image", PYTHON_IMAGE, "--timeout", "1", check=False)
    assert late.returncode == 1 and "the trial, job 3, is " in late.stderr and "after 1 s" in late.stderr
    lab.until(3, "CANCELLED", timeout=60)
    bare = lab.run("check", "--across", "leo", "kube", check=False)
    assert bare.returncode == 1 and "--image IMAGE" in bare.stderr, bare
    lines = check(lab).splitlines()
    assert [line.split("  ")[1:2] for line in lines[:2]] == [[" leo to kube, port 7001"], [" kube to leo, port 7001"]]
    assert lines[2:] == ["Groups over leo and kube reach each other as they are."]
    lab.run("shutdown")
    plan = lab.run("plan", str(group))
    assert "# reach: leo reaches kube on port 7001 (node1 to 10.214." in plan.stdout
    assert "not known" not in plan.stdout + plan.stderr
    lab.until_empty()
    assert not lab.look("squeue", "-h").strip()


@pytest.mark.usefixtures("nodes_alone")
def test_a_group_of_which_nothing_is_known_is_refused_by_the_trial_before_its_start(lab: Lab) -> None:
    """MX05: nobody has asked for a trial; the group waits for one, says so, and is refused with what was tried."""
    job = lab.submit(GROUP.format(network=""))
    lab.wait_until(lambda: "tries it" in lab.look("show", str(job)), 20, "what it waits for")
    lab.until(job, "FAILED", timeout=60)
    shown = lab.run("show", str(job)).stdout
    assert "leo does not reach kube on port 7001 (node" in shown and "No route to host" in shown
    assert lab.job(job)["started_at"] is None
    # The next one is refused at once: it is known.
    group = lab.folder / "next.yaml"
    group.write_text(GROUP.format(network=""))
    done = lab.run("submit", str(group), check=False)
    assert done.returncode and "leo does not reach kube on port 7001" in done.stderr
    # On the host network it is tried too, and runs.
    job = lab.submit(GROUP.format(network="kubernetes: {host_network: true}"))
    lab.until(job, "COMPLETED", timeout=120)
    lab.until_empty()


@pytest.mark.usefixtures("nodes_alone")
def test_pods_that_are_not_reached_are_refused_before_the_start_and_run_on_the_host_network(lab: Lab) -> None:
    """MX05: the trial finds out what works; without that nothing starts, with it the group runs as any other."""
    trials = json.loads(check(lab, "--json"))["trials"]
    assert [(trial["host_network"], trial["works"]) for trial in trials] == [(False, False), (True, True)]
    closed = trials[0]["findings"][0]
    assert closed["source"] == "leo" and "No route to host" in closed["detail"]
    refused = lab.folder / "refused.yaml"
    refused.write_text(GROUP.format(network=""))
    done = lab.run("submit", str(refused), check=False)
    assert done.returncode and "leo does not reach kube on port 7001 (node1 to 10.214." in done.stderr
    assert "write `kubernetes: {host_network: true}` in the tasks on kube" in done.stderr
    assert not lab.look("squeue", "-h").strip()
    job = lab.submit(GROUP.format(network="kubernetes: {host_network: true}"))
    lab.until(job, "COMPLETED", timeout=120)
    assert "hello" in lab.log(job, "trainer")
