"""Training on Slurm whose checkpoints are evaluated by pods: one job file, each checkpoint exactly once."""

from __future__ import annotations

from tests.system.across.conftest import FOLDER, MOUNTED, Lab
from tests.system.slurm.gates import Gate

TRAIN = """\
name: train
execution: parallel
primary_tasks: [trainer]
on_checkpoint:
  name: quality
  path: {folder}
  pattern: "step_{{step:int}}"
  ready: {{marker: DONE}}
  cluster: kube
  max_parallel: 2
  result: {{file: result.json, score: accuracy}}
  task:
    resources: {{cpus: 0.1}}
    run: |
      [ "$(cat {{checkpoint}}/weights)" = {{step}} ] || exit 1
      echo "$OVERSPAN_CHECKPOINT" >> {seen}.evaluated
      echo "{{\\"accuracy\\": 0.{{step}}}}" > "$OVERSPAN_RESULT"
---
name: trainer
cluster: leo
resources: {{cpus: 1, memory: 50M}}
run: |
  umask 0
  touch {folder}.evaluated
  save() {{ mkdir -p {folder}/step_$1; echo $1 > {folder}/step_$1/weights; touch {folder}/step_$1/DONE; }}
  save 1; save 2
  mkdir -p {folder}/step_9; touch {folder}/step_9/weights
  {wait}
  save 3
---
name: helper
cluster: leo
resources: {{cpus: 1, memory: 50M}}
run: sleep 3600
"""


def test_a_group_on_slurm_is_evaluated_by_pods_whatever_becomes_of_the_daemon(lab: Lab) -> None:
    """JG35, JG36 across: while it trains, after a daemon's death, and after its end; an incomplete one never."""
    gate = Gate(lab.site)
    folder = f"{gate.path}.checkpoints"
    seen = MOUNTED + folder.removeprefix(FOLDER)
    job = lab.submit(TRAIN.format(folder=folder, seen=seen, wait=gate.wait))

    def count_ended() -> int:
        return sum(each["ended_at"] is not None for each in lab.list_evaluations(job))

    lab.wait_until(lambda: count_ended() == 2, 90, "two evaluations")
    assert lab.job(job)["state"] == "RUNNING"
    lab.kill_daemon()
    gate.open()
    lab.until(job, "COMPLETED", timeout=60)
    lab.wait_until(lambda: count_ended() == 3, 90, "the last evaluation")
    found = [(each["checkpoint"], each["state"], each["score"]) for each in lab.list_evaluations(job)]
    assert found == [(f"step_{step}", "COMPLETED", step / 10) for step in (1, 2, 3)]
    jobs = [lab.job(each["job"]) for each in lab.list_evaluations(job)]
    assert {each["cluster"] for each in jobs} == {"kube"} and lab.job(job)["cluster"] == "leo"
    evaluated = sorted(lab.site.slurm("cat", f"{folder}.evaluated").split())
    assert evaluated == [f"{seen}/step_{step}" for step in (1, 2, 3)]
