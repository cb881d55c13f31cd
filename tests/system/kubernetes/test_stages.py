"""Stages on a real Kubernetes: the pods of a stage are made at its turn. Row MJ10 of docs/acceptance.md."""

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


GROUP = f"""
---
name: turns
execution: parallel
primary_tasks: [train]
---
name: prepare
resources: {{cpus: 0.1}}
run: echo $OVERSPAN_MEMBERS; {WAITS}
---
name: train
needs: [ok:prepare]
resources: {{cpus: 0.1}}
run: |
  until wget -q -O /dev/null http://server-0.turns:8000/ 2>/dev/null; do sleep 0.2; done
  echo $OVERSPAN_MEMBERS; {WAITS}
---
name: server
needs: [ok:prepare]
resources: {{cpus: 0.1}}
run: |
  trap 'echo term; exit 0' TERM
  echo up; mkdir -p /tmp/www; echo hello >/tmp/www/index.html
  httpd -f -p 8000 -h /tmp/www & wait
"""


def test_tasks_of_a_group_that_wait_for_an_end_have_no_pods_before_their_turn(kube: KubeSpan) -> None:
    """An auxiliary prepares; a trainer and its server follow. The daemon dies before the change."""
    job = kube.submit(GROUP)
    kube.until(job, "RUNNING", task="prepare")
    (pod,) = kube.pods()
    assert "prepare" in pod
    rows = kube.run("squeue", "-h", "-j", str(job), "-o", "%i %T %r").stdout.splitlines()
    waits = [f"{job}+{place} PENDING Dependency" for place in (1, 2)]
    assert sorted(rows) == [f"{job}+0 RUNNING None", *waits]
    kube.kill_daemon()
    kube.let_go(pod)
    kube.until(job, "RUNNING", task="server")
    kube.until(job, "RUNNING", task="train")
    kube.wait_until(lambda: kube.log(job, "server") == "up\n", 20, "the server to be up")
    (train,) = (name for name in kube.pods() if "train" in name)
    kube.let_go(train)
    shown = kube.until(job, "COMPLETED")
    assert [len(task["attempts"]) for task in shown["tasks"]] == [1, 1, 1]
    assert kube.log(job, "prepare") == "prepare-0.turns\n"
    assert kube.log(job, "train") == "train-0.turns,server-0.turns\n"
    assert kube.log(job, "server") == "up\nterm\n"
    kube.until_empty()


def test_followers_of_a_failed_task_have_no_pods(kube: KubeSpan) -> None:
    text = GROUP.replace(f"run: echo $OVERSPAN_MEMBERS; {WAITS}", "run: exit 3")
    job = kube.submit(text)
    shown = kube.until(job, "FAILED")
    assert shown["reason"] == "AuxiliaryFailed"
    assert [(task["state"], len(task["attempts"])) for task in shown["tasks"]] == [
        ("FAILED", 1),
        ("CANCELLED", 0),
        ("CANCELLED", 0),
    ]
    kube.until_empty()
