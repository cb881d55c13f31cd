"""MJ23, CC06 and K17 on a real Kubernetes: commands in pods reach the daemon, and a watcher launches evaluations."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.rigs.kube import KubeRig
from tests.system.kubernetes.conftest import KubeSpan
from tests.system.scaling_trainers import scale_from_inside
from tests.system.watchers import find_own_address, open_for_jobs, train_and_evaluate, write_programs

PYTHON = "rig/python:1"


@pytest.fixture
def span(kube: KubeSpan, kube_rig: KubeRig, kube_namespace: str, tmp_path: Path) -> KubeSpan:
    """A cluster whose pods reach the daemon, with a folder for checkpoints."""
    folder = tmp_path / "checkpoints"
    write_programs(folder)
    volume = {"hostPath": {"path": str(folder)}, "path": "/checkpoints"}
    kube.connect(kube_rig, kube_namespace, image=PYTHON, cpus=0.1, volumes={"checkpoints": volume})
    nodes = json.loads(kube.kubectl("get", "nodes", "-o", "json"))["items"]
    address = next(each["address"] for each in nodes[0]["status"]["addresses"] if each["type"] == "InternalIP")
    open_for_jobs(kube, find_own_address(address))
    return kube


def test_a_watcher_in_a_pod_launches_an_evaluation_for_each_checkpoint(span: KubeSpan) -> None:
    train_and_evaluate(span, "/checkpoints")


RUN = """
name: one
resources: {cpus: 0.1}
run: |
  exec 2>&1
  squeue -h -o %i; echo code $?
  sbatch --parsable --wrap 'echo from inside' 2>/dev/null; echo code $?
  scancel OTHER; echo code $?
  scontrol show job $SLURM_JOB_ID | head -1; echo code $?
  srun -n 2 echo step; scontrol show hostnames 'n[1-2]'
  sinfo; echo code $?
  echo '{name: late, cron: "* * * * *", run: "true"}' | span submit -; echo code $?
  env | grep "$(sed 's/.*"token":"//; s/".*//' /overspan/key/access)"; echo leak code $?
"""


def test_commands_in_a_pod_reach_their_own_jobs_alone(span: KubeSpan) -> None:
    other = span.wrap("sleep 3600")
    job = span.submit(RUN.replace("OTHER", str(other)))
    span.until(job, "COMPLETED", "FAILED", timeout=90)
    told = span.log(job).splitlines()
    assert told[:2] == [str(job), "code 0"], told
    inner = int(told[2].partition(";")[0])
    assert told[3] == "code 0"
    assert "Access/permission denied" in told[4] and told[5] == "code 1"
    assert told[6].startswith(f"JobId={job} ") and told[7] == "code 0"
    assert told[8:12] == ["step", "step", "n1", "n2"]
    assert "denied" in told[12] and "a schedule outlives the job" in "\n".join(told), told
    ended = span.until(inner, "COMPLETED", timeout=60)
    assert ended["cluster"] == "kube" and span.log(inner) == "from inside\n"
    # The token is in the Secret and nowhere else.
    assert told[-1] == "leak code 1"
    token = re.compile(rf"\b{other}\.[0-9a-f]{{64}}|\b{job}\.[0-9a-f]{{64}}")
    shown = json.dumps(span.pods()) + span.kubectl("get", "configmaps", "-o", "json")
    assert not token.search(shown + span.log(job) + Path(span.state, "daemon.log").read_text())
    assert span.job(other)["state"] == "RUNNING"


def test_a_trainer_in_a_pod_has_its_own_group_grow(span: KubeSpan) -> None:
    """JG41: `span scale` by the daemon's port for jobs, for the job's own group alone."""
    scale_from_inside(span)
