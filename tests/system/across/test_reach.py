"""`span check --across` on a real Slurm and a real Kubernetes: pods that nodes reach, and pods that they do not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.rigs.joined import join_networks
from tests.rigs.kube import PYTHON_IMAGE, KubeRig
from tests.system.across.conftest import Lab
from tests.system.slurm.conftest import Site

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


def check(lab: Lab, *words: str, rc: int = 0) -> dict[str, object]:
    done = lab.run("check", "--across", "leo", "kube", "--image", PYTHON_IMAGE, "--json", *words, check=False)
    assert done.returncode == rc, done
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.usefixtures("joined")
def test_both_ways_are_tried_and_the_plan_shows_what_is_known(lab: Lab) -> None:
    found = check(lab, "--ports", "7001")
    assert found["works"] is True
    print(found)
    lab.until_empty()


@pytest.mark.usefixtures("nodes_alone")
def test_pods_that_are_not_reached_are_refused_before_anything_starts_and_run_on_the_host_network(lab: Lab) -> None:
    """MX05."""
    found = check(lab, "--ports", "7001")
    print(json.dumps(found, indent=1))
    assert found["works"] is True
