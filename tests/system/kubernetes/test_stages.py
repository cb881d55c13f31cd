"""Pipelines on a real Kubernetes: the pods of a stage are made at its turn. Row MJ10 of docs/acceptance.md."""

from __future__ import annotations

from tests.system.kubernetes.conftest import WAITS, KubeSpan

PIPELINE = f"""
---
name: stages
---
name: fit
resources: {{cpus: 0.1}}
run: echo fitted; {WAITS}
---
name: judge
num_nodes: 2
resources: {{cpus: 0.1}}
run: echo judged $OVERSPAN_MEMBERS
---
name: report
resources: {{cpus: 0.1}}
run: echo reported
"""


def test_a_stage_has_no_pods_before_its_turn(kube: KubeSpan) -> None:
    job = kube.submit(PIPELINE)
    kube.until(job, "RUNNING", task="fit")
    (pod,) = kube.pods()
    assert "fit" in pod
    rows = kube.run("squeue", "-h", "-j", str(job), "-o", "%i %T %r").stdout.splitlines()
    waits = [f"{job}+{place} PENDING Dependency" for place in (1, 2)]
    assert sorted(rows) == [f"{job}+0 RUNNING None", *waits]
    kube.kill_daemon()
    kube.let_go(pod)
    shown = kube.until(job, "COMPLETED")
    assert [len(task["attempts"]) for task in shown["tasks"]] == [1, 1, 1]
    ends = [task["ended_at"] for task in shown["tasks"]]
    assert ends == sorted(ends)
    kube.until_empty()
    names = ",".join(f"judge-{node}.stages-{job}" for node in (0, 1))
    assert kube.log(job, "judge", "--node", "0") == f"judged {names}\n"
    assert [kube.log(job, name) for name in ("fit", "report")] == ["fitted\n", "reported\n"]
