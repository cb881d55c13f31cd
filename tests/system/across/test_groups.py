"""One group over a real Slurm and a real Kubernetes: names both ways, one start, one end."""

from __future__ import annotations

import pytest
from tests.system.across.conftest import Lab
from tests.system.slurm.gates import Gate

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
  for try in 1 2 3 4 5 6 7 8 9 10; do
    python3 -c 'import socket; print(socket.create_connection(("server-0.rl", 7001), 5).recv(99).decode())' && break
    sleep 0.5
  done
  {wait}
---
name: server
cluster: kube
resources: {{cpus: 0.1, image_id: "docker:rig/python:1"}}
run: |
  echo members $OVERSPAN_MEMBERS
  getent hosts trainer-0.rl
  exec python3 -u -c '
  import socket
  server = socket.create_server(("", 7001))
  while True:
      peer, where = server.accept()
      print("asked by", where[0])
      peer.sendall(b"hello from a pod")
      peer.close()
  '
"""


@pytest.mark.usefixtures("joined")
def test_a_trainer_on_slurm_and_a_server_in_a_pod_are_one_group(lab: Lab) -> None:
    """JG22, MX02: each finds the other by its name, and the server ends with its trainer."""
    gate = Gate(lab.site)
    job = lab.submit(GROUP.format(wait=gate.wait))
    lab.until(job, "RUNNING", timeout=90)
    lab.wait_until(lambda: "hello from a pod" in lab.log(job, "trainer"), 20, "the server's answer")
    assert "trainer-0.rl" in lab.log(job, "server")
    gate.open()
    lab.until(job, "COMPLETED", timeout=60)
    assert lab.job(job)["cluster"] == "leo+kube"
