"""Pods with their nodes' addresses: who asks for them, their ports, and what looks whether these are taken."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.kubernetes_pods import make_record
from tests.unit.adapters.kubernetes.samples import configure, read_file, render_job

from overspan.adapters.kubernetes.manifests.overlay import has_host_network, lay_over
from overspan.adapters.kubernetes.manifests.scripts import CHECK_PORTS
from overspan.adapters.kubernetes.observation.evidence import judge_end
from overspan.adapters.kubernetes.observation.records import read_pod
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.errors import InvalidRequest

FILE = """\
name: serve
ports: [8000, 9000-9002]
{network}
resources: {{image_id: "docker:busybox"}}
run: echo
"""
HOST = "kubernetes: {host_network: true}"
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]


def render(network: str, **settings: Any) -> dict[str, Any]:
    (pod,) = render_job(read_file(FILE.format(network=network)), configure(**settings)).pods
    spec: dict[str, Any] = pod["spec"]
    return spec


@pytest.mark.parametrize(
    ("network", "settings", "wanted"),
    [
        ("", {}, False),
        (HOST, {}, True),
        ("", {"host_network": True}, True),
        ("kubernetes: {host_network: false}", {"host_network": True}, False),
        ("kubernetes: {spec: {hostNetwork: true}}", {}, True),
    ],
)
def test_the_cluster_and_then_the_job_say_whether_pods_have_their_nodes_addresses(
    network: str, settings: dict[str, Any], wanted: bool
) -> None:
    job = read_file(FILE.format(network=network))
    assert has_host_network(job, configure(**settings), job.spec.tasks[0]) is wanted
    spec = render(network, **settings)
    assert bool(spec.get("hostNetwork")) is wanted
    assert ("ports" in spec["containers"][0]) is wanted


def test_ports_are_the_hosts_so_that_the_scheduler_keeps_them_apart() -> None:
    spec = render(HOST)
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    ports = [(each["containerPort"], each["hostPort"]) for each in spec["containers"][0]["ports"]]
    assert ports == [(8000, 8000), (9000, 9000), (9001, 9001), (9002, 9002)]
    (look,) = spec["initContainers"]
    assert (look["name"], look["image"]) == ("ports", "busybox")
    assert look["args"] == ["1F40=8000", "2328=9000", "2329=9001", "232A=9002"]


def test_a_port_that_the_overlay_has_is_not_declared_twice() -> None:
    spec = render("kubernetes: {host_network: true, spec: {containers: [{ports: [{containerPort: 8000, name: web}]}]}}")
    assert [each["containerPort"] for each in spec["containers"][0]["ports"]] == [8000, 9000, 9001, 9002]


def test_what_cannot_be_is_refused_in_words() -> None:
    with pytest.raises(InvalidRequest, match="host_network is 'yes'"):
        lay_over({"metadata": {}, "spec": {}}, {"host_network": "yes"}, "kubernetes")
    with pytest.raises(InvalidRequest, match="no restricted namespace allows"):
        render(HOST, security="restricted")
    with pytest.raises(InvalidRequest, match="more than 100 `ports`"):
        render_job(read_file(FILE.format(network=HOST).replace("9000-9002", "9000-9999")), configure())


@pytest.mark.parametrize("shell", SHELLS)
def test_a_port_that_a_program_listens_on_is_found(shell: str, tmp_path: Path) -> None:
    program = CHECK_PORTS.replace("/dev/termination-log", str(tmp_path / "message"))
    command = [shell, *(["sh"] if shell == "busybox" else []), "-c", program, "overspan"]
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        taken, free = server.getsockname()[1], bound.getsockname()[1]
        assert subprocess.run([*command, f"{free:04X}={free}"], check=False).returncode == 0
        done = subprocess.run([*command, f"{free:04X}={free}", f"{taken:04X}={taken}"], check=False, text=True)
    assert done.returncode == 1
    assert (tmp_path / "message").read_text() == f"{taken}\n"


def test_a_taken_port_ends_the_attempt_before_it_has_begun_with_a_sentence() -> None:
    state = {"terminated": {"exitCode": 1, "message": "8000\n", "reason": "Error"}}
    pod = {
        "spec": {"nodeName": "node7"},
        "status": {"phase": "Failed", "initContainerStatuses": [{"name": "ports", "state": state}]},
    }
    record = read_pod(pod)
    assert judge_end(record, False) == (
        Cause.LAUNCH,
        "port 8000 of node7 is taken by another program there, and its pod is on the host network",
    )
    assert judge_end(record, True) == (None, "")
    assert make_record(phase="Running").taken_port == ""
