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
  STAY
"""
STAYS = f'[ "$SLURM_PROCID" != {NODES - 1} ] || until [ -e /tmp/end ]; do sleep 0.2; done'


def enter(kube: KubeSpan, job: int, node: int, *words: str) -> str:
    """What a command says beside the program of a node."""
    path = {"PATH": f"{kube.rig.programs}:{os.environ['PATH']}"}
    return kube.run("shell", str(job), "--node", str(node), "--", *words, environment=path).stdout


def test_many_pods_find_what_few_would_and_each_other(kube: KubeSpan) -> None:
    job = kube.submit(WIDE.replace("STAY", STAYS))
    kube.until(job, "RUNNING", timeout=150)
    last = f"-wide-{NODES - 1}-a0"

    def others() -> list[str]:
        return [name for name, pod in kube.pods().items() if pod["status"]["phase"] != "Succeeded"]

    # The last one stays for as long as another one wants to find it.
    kube.wait_until(lambda: [name.endswith(last) for name in others()] == [True], 150, "all others to be done")
    enter(kube, job, NODES - 1, "touch", "/tmp/end")
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
    job = kube.submit(WIDE.replace("STAY", "sleep 600"))
    kube.until(job, "RUNNING", timeout=120)
    (shared,) = [name for name in kube.left() if "-env-" in name]
    assert json.loads(kube.kubectl("get", *shared.split(), "-o", "json"))["immutable"]
    told = enter(kube, job, 3, "sh", "-c", "echo $SLURM_NODEID $SLURM_NNODES $COST")
    assert told == f"3 {NODES} $(HOME) $$ $5\n"
    kube.run("scancel", str(job))
    kube.until_empty(90)
