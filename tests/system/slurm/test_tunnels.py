"""Jobs reach a daemon behind NAT on a real Slurm: by a tunnel in its own ssh connection to the login node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.reach import find_address
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.gates import Gate
from tests.system.watchers import find_own_address, list_programs, open_for_jobs, train_and_evaluate
from tests.waiting import WaitUntil

FOLDER = "/home/researcher/checkpoints"
PORT = 7433
_GROUP = """\
name: asks
execution: parallel
---
name: asker
resources: {{cpus: 0.1, memory: 0.05}}
run: |
  {wait}
  span squeue --noheader --format '%j'
---
name: other
resources: {{cpus: 0.1, memory: 0.05}}
run: "true"
"""


@pytest.fixture
def span(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    """A daemon that listens for jobs on its own machine alone; its jobs are told the login node's port."""
    span = Span(tmp_path, wait_until)
    settings = {"kind": "slurm", "tick": 0.5, "shared": False, "daemon_tunnel": True, **site.access.settings}
    span.config.write_text(json.dumps({"default_cluster": "rig", "clusters": {"rig": settings}}))
    open_for_jobs(span, f"ctl:{PORT}")
    yield span
    span.close()


def find_tunnel(span: Span) -> dict[str, object]:
    """What `span check` says of it."""
    answer = json.loads(span.look("check", "--json", "rig", check=False))
    (found,) = (finding for finding in answer["findings"] if finding["what"] == "tunnel for jobs")
    return dict(found)


def test_a_watcher_on_a_node_launches_evaluations_by_the_tunnel(span: Span, site: Site) -> None:
    for name, text in list_programs().items():
        done = site.rig.run(["sh", "-c", f"rm -rf {FOLDER}.old; mkdir -p {FOLDER}; cat >{FOLDER}/{name}"], stdin=text)
        assert done.rc == 0, done.stderr
    try:
        train_and_evaluate(span, FOLDER)
        assert find_tunnel(span)["works"]
        kept = (Path(span.folder) / "state" / "job-access" / "port").read_text().strip()
        own = find_own_address(find_address(site.rig))
        knock = f"exec 3<>/dev/tcp/{own}/{kept}"
        assert site.rig.run(["bash", "-c", knock]).rc != 0, "the daemon's port is open for the cluster's side"
    finally:
        site.rig.run(["rm", "-rf", FOLDER])


def test_a_job_outlives_the_ends_of_tunnel_and_daemon(span: Span, site: Site) -> None:
    gate = Gate(site)
    group = span.submit(_GROUP.format(wait=gate.wait))
    span.until(group, "RUNNING", timeout=60)
    span.wait_until(lambda: find_tunnel(span)["works"], 30, "the tunnel to be open")
    span.kill_daemon()
    span.wait_until(lambda: find_tunnel(span)["works"], 60, "the next daemon's tunnel to be open")
    site.rig.run(["pkill", "sshd"], user="root")
    span.wait_until(lambda: not find_tunnel(span)["works"], 60, "the cut to be seen")
    assert site.rig.run(["/usr/sbin/sshd"], user="root").rc == 0
    span.wait_until(lambda: find_tunnel(span)["works"], 90, "the tunnel to be open again")
    gate.open()
    span.until(group, "COMPLETED", timeout=60)
    assert "asker" in span.log(group, "asker")


def test_a_port_that_is_taken_on_the_login_node_is_said(span: Span, site: Site) -> None:
    script = f"import socket,time;s=socket.create_server(('',{PORT}));print('taken',flush=True);time.sleep(600)"
    site.rig.run(["sh", "-c", f'nohup python3 -c "{script}" >/tmp/taken 2>&1 &'])
    try:
        span.wait_until(lambda: site.rig.run(["cat", "/tmp/taken"]).stdout, 20, "the port to be taken")
        span.wait_until(lambda: "in use" in str(find_tunnel(span)["seen"]), 60, "the reason")
        assert not find_tunnel(span)["works"]
    finally:
        site.rig.run(["pkill", "-f", "create_server"])
    span.wait_until(lambda: find_tunnel(span)["works"], 90, "the tunnel to be open")
