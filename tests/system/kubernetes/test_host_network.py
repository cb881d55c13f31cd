"""Pods with their nodes' addresses on a real cluster: names lead to nodes, clashing ports are said before the start."""

from __future__ import annotations

from tests.system.kubernetes.conftest import KubeSpan

GROUP = """\
name: hosts
execution: parallel
kubernetes: {host_network: true}
---
name: server
ports: 7301
resources: {image_id: "docker:rig/python:1"}
run: |
  exec python3 -u -c '
  import socket
  socket.create_server(("", 7301)).accept()[0].sendall(b"hello")
  '
---
name: client
kubernetes: {host_network: false}
resources: {image_id: "docker:rig/python:1"}
run: |
  ask='import socket; print(socket.create_connection(("server-0.hosts", 7301), 5).recv(99).decode())'
  until python3 -c "$ask"; do sleep 0.2; done
"""

SERVER = """\
name: {name}
kubernetes: {{host_network: true, spec: {{nodeSelector: {{kubernetes.io/hostname: node1}}}}}}
{ports}
resources: {{image_id: "docker:rig/python:1"}}
run: |
  exec python3 -u -c '
  import socket, time
  server = socket.create_server(("", 7302))
  print("listens")
  time.sleep(600)
  '
"""


def test_the_name_of_a_pod_on_the_host_network_leads_to_its_node(kube: KubeSpan) -> None:
    job = kube.submit(GROUP)
    kube.until(job, "COMPLETED", timeout=60)
    assert "hello" in kube.log(job, "client")


def test_a_port_that_is_taken_is_told_before_the_program_starts(kube: KubeSpan) -> None:
    """A pod's port keeps another pod waiting; one of a program that the scheduler does not know ends the attempt."""
    first = kube.submit(SERVER.format(name="first", ports="ports: 7302"))
    kube.wait_until(lambda: "listens" in kube.log(first), 60, "a server")
    second = kube.submit(SERVER.format(name="second", ports="ports: 7302"))
    kube.wait_until(lambda: "free ports" in kube.run("show", str(second)).stdout, 60, "the scheduler's words")
    kube.run("scancel", str(first), str(second))
    kube.until(second, "CANCELLED")
    # One that does not name its port is to the scheduler as any program of the node.
    silent = kube.submit(SERVER.format(name="silent", ports=""))
    kube.wait_until(lambda: "listens" in kube.log(silent), 60, "a server")
    third = kube.submit(SERVER.format(name="third", ports="ports: 7302"))
    kube.until(third, "FAILED", timeout=60)
    assert "port 7302 of node1 is taken by another program there" in kube.run("show", str(third)).stdout
    assert "listens" not in kube.log(third)
    kube.run("scancel", str(silent))
