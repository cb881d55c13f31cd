"""Groups with a part on this machine: beside a real Slurm, and beside a real Kubernetes."""

from __future__ import annotations

import json
import os
import signal

import pytest
from tests.rigs.kube import KubeRig
from tests.rigs.reach import find_address
from tests.system.across.conftest import Lab
from tests.system.local.machine import list_supervisors
from tests.system.watchers import find_own_address

ASK = 'import socket; print(socket.create_connection(("{name}", {port}), 5).recv(99).decode())'
SERVE = """exec python3 -u -c '
  import os, socket
  server = socket.create_server(("", {port}))
  while True:
      peer, where = server.accept()
      peer.sendall(b"{who} attempt " + os.environ["OVERSPAN_ATTEMPT"].encode())
      peer.close()
  '"""
GROUP = """\
name: rl
execution: parallel
primary_tasks: [trainer]
---
name: trainer
cluster: local
resources: {{cpus: 0.1, memory: 50M}}
grace_period: 5
run: |
  echo members $OVERSPAN_MEMBERS
  getent hosts server-0.rl store-0.rl
  until [ -e {gate} ]; do python3 -c '{ask}' 2>/dev/null; sleep 0.5; done
---
name: store
cluster: local
resources: {{cpus: 0.1, memory: 50M}}
on_failure: restart
run: |
  {store}
ports: 17002
---
name: server
cluster: {cluster}
resources: {resources}
run: |
  getent hosts trainer-0.rl
  until python3 -c '{ask_store}'; do sleep 0.5; done
  {server}
ports: 7001
"""
RESOURCES = {"leo": "{cpus: 1, memory: 50M}", "kube": '{cpus: 0.1, image_id: "docker:rig/python:1"}'}


def write_group(cluster: str, gate: str) -> str:
    """A trainer and a store here, and a server on another cluster that asks the store."""
    return GROUP.format(
        cluster=cluster,
        resources=RESOURCES[cluster],
        gate=gate,
        ask=ASK.format(name="server-0.rl", port=7001),
        ask_store=ASK.format(name="store-0.rl", port=17002),
        server=SERVE.format(port=7001, who="server"),
        store=SERVE.format(port=17002, who="store"),
    )


@pytest.fixture
def open_lab(lab: Lab, kube_rig: KubeRig) -> Lab:
    """The lab with this machine as a cluster that the others reach."""
    settings = json.loads(lab.config.read_text())
    settings["clusters"]["local"] = {
        "kind": "local",
        "cpus": 1,
        "address": find_own_address(kube_rig.find_node_address(1)),
    }
    lab.config.write_text(json.dumps(settings))
    return lab


@pytest.mark.parametrize("cluster", ["leo", "kube"])
def test_names_hold_both_ways_and_both_sides_end_together(open_lab: Lab, cluster: str) -> None:
    """JG22, MX02 with local members: the machine's own address, a restart, a daemon that dies, and the end."""
    lab = open_lab
    if cluster == "leo":
        settings = json.loads(lab.config.read_text())
        settings["clusters"]["local"]["address"] = find_own_address(find_address(lab.site.rig))
        lab.config.write_text(json.dumps(settings))
    gate = lab.config.parent / "gate"
    job = lab.submit(write_group(cluster, str(gate)))
    lab.wait_until(lambda: "server attempt 0" in lab.log(job, "trainer"), 90, "the server's answer")
    assert lab.job(job)["cluster"] == f"local+{cluster}"
    assert "store attempt 0" in lab.log(job, "server")
    assert "trainer-0.rl" in lab.log(job, "server") and "store-0.rl" in lab.log(job, "trainer")
    lab.run("restart", f"{job}.store")
    lab.wait_until(lambda: lab.task(job, "store")["attempt"] == 1, 30, "the store's next attempt")
    lab.until(job, "RUNNING", task="store", timeout=30)
    lab.kill_daemon()
    assert lab.task(job, "trainer")["attempt"] == 0
    gate.touch()
    lab.until(job, "COMPLETED", timeout=60)
    lab.until_empty()
    # Nothing of it is booked here any more.
    after = lab.submit("name: after\nresources: {cpus: 1}\nrun: exit 0\n", "-M", "local")
    lab.until(after, "COMPLETED", timeout=30)


@pytest.mark.parametrize("cluster", ["leo", "kube"])
def test_a_part_that_waits_here_keeps_the_other_waiting_and_a_cancel_leaves_nothing(
    open_lab: Lab, cluster: str
) -> None:
    """MX01 with local members: whatever becomes of the daemon, no program of either side runs before both can."""
    lab = open_lab
    first = lab.submit("name: first\nresources: {cpus: 1}\nrun: sleep 600\n", "-M", "local")
    lab.until(first, "RUNNING", timeout=30)
    job = lab.submit(write_group(cluster, "/nowhere/gate"))
    lab.wait_until(lambda: "Resources: local" in lab.job(job)["reason"], 60, "a reason that names this machine")
    lab.kill_daemon()
    lab.wait_until(lambda: "Resources: local" in lab.job(job)["reason"], 60, "the next daemon to know why it waits")
    assert lab.job(job)["state"] == "PENDING" and not lab.log(job, "server")
    lab.run("scancel", str(first))
    lab.wait_until(lambda: "server attempt 0" in lab.log(job, "trainer"), 90, "the server's answer")
    lab.run("scancel", str(job))
    lab.until(job, "CANCELLED", timeout=60)
    lab.until_empty()
    after = lab.submit("name: after\nresources: {cpus: 1}\nrun: exit 0\n", "-M", "local")
    lab.until(after, "COMPLETED", timeout=30)


LOST = """\
name: pair
execution: parallel
---
name: trainer
cluster: local
resources: {{cpus: 0.1, memory: 50M}}
grace_period: 20
max_recoveries: 3
backoff: {{first: 0s}}
run: |
  note() {{ echo "$1" >> {notes}; }}
  note begins
  trap 'note stops; sleep 3; note ended; exit 1' TERM
  until [ -e {gate} ]; do sleep 0.1; done
---
name: server
cluster: kube
resources: {{cpus: 0.1}}
run: sleep 600
"""


@pytest.mark.parametrize("killed", [False, True])
def test_a_launch_that_is_lost_elsewhere_has_ended_here_before_the_next(open_lab: Lab, killed: bool) -> None:
    """MX04 with local members: supervisor and daemon may die meanwhile; no program runs twice or beside its next."""
    lab = open_lab
    gate, file = lab.config.parent / "gate", lab.config.parent / "notes"
    text = LOST.format(gate=gate, notes=file).replace("parallel\n", "parallel\nprimary_tasks: [trainer]\n", 1)
    job = lab.submit(text)
    lab.until(job, "RUNNING", task="server", timeout=90)
    lab.until(job, "RUNNING", task="trainer")
    root = lab.config.parent / "state" / "clusters" / "local"
    supervisors = list_supervisors(root)
    assert supervisors
    for process in supervisors:
        os.kill(process.pid, signal.SIGKILL)
    lab.kill_daemon()
    lab.kubectl("delete", "configmap", "--all", "--cascade=orphan")
    lab.run("squeue")
    lab.wait_until(lambda: "stops" in file.read_text(), 40, "TERM here")
    if killed:
        lab.kill_daemon()
        lab.run("squeue")
    lab.wait_until(lambda: file.read_text().count("begins") == 2, 60, "the next launch")
    assert file.read_text().split() == ["begins", "stops", "ended", "begins"]
    gate.touch()
    lab.until(job, "COMPLETED", timeout=60)
    lab.until_empty()
