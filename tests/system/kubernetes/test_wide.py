"""A task of many pods on a real Kubernetes: what its pods take from one object, and their names."""

from __future__ import annotations

import json
import os

from tests.system.kubernetes.conftest import KubeSpan

NODES = 18
WIDE = f"""
name: wide
num_nodes: {NODES}
envs: {{COST: "$(HOME) $$ $5"}}
secrets: {{KEY: hush}}
run: |
  echo "$SLURM_PROCID of $SLURM_NNODES, $(hostname), attempt $OVERSPAN_ATTEMPT, $COST, $KEY"
  echo "$OVERSPAN_MEMBERS" | tr , '\\n' | wc -l
  mkdir -p /tmp/www; hostname >/tmp/www/index.html; httpd -p 8000 -h /tmp/www
  until wget -q -O- "http://wide-{NODES - 1}:8000/" 2>/dev/null; do sleep 0.2; done
  sleep 15
"""


def test_many_pods_find_what_few_would_and_each_other(kube: KubeSpan) -> None:
    job = kube.submit(WIDE)
    shown = kube.until(job, "COMPLETED", timeout=150)
    assert [task["exit_code"] for task in shown["tasks"]] == [0]
    for index in (0, NODES - 1):
        lines = kube.run("logs", str(job), "--node", str(index)).stdout.splitlines()
        assert lines == [
            f"{index} of {NODES}, wide-{index}, attempt 0, $(HOME) $$ $5, hush",
            str(NODES),
            f"wide-{NODES - 1}",
        ]
    kube.until_empty(60)


def test_a_shell_beside_them_finds_it_too(kube: KubeSpan) -> None:
    job = kube.submit(WIDE.replace("sleep 15", "sleep 600"))
    kube.until(job, "RUNNING", timeout=120)
    (shared,) = [name for name in kube.left() if "-env-" in name]
    assert json.loads(kube.kubectl("get", *shared.split(), "-o", "json"))["immutable"]
    words = ("shell", str(job), "--node", "3", "--", "sh", "-c", "echo $SLURM_NODEID $SLURM_NNODES $COST")
    path = {"PATH": f"{kube.rig.programs}:{os.environ['PATH']}"}
    told = kube.run(*words, environment=path).stdout
    assert told == f"3 {NODES} $(HOME) $$ $5\n"
    kube.run("scancel", str(job))
    kube.until_empty(90)
