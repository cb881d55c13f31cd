"""Work that moves between clusters which share a folder under names of their own (`paths`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.rigs.kube import KubeRig
from tests.system.kubernetes.conftest import KubeSpan

TRAIN = """\
name: train
cluster: local
on_checkpoint:
  name: quality
  path: runs
  pattern: "step_{step:int}"
  ready: {marker: DONE}
  cluster: kube
  result: {file: result.json, score: accuracy}
  task:
    resources: {cpus: 0.1}
    run: |
      cat "{checkpoint}/weights"
      echo "$OVERSPAN_CHECKPOINT" >> /mnt/lab/evaluated
      echo "{\\"accuracy\\": 0.{step}}" > "$OVERSPAN_RESULT"
run: |
  for step in 1 2 3; do mkdir -p runs/step_$step; echo $step > runs/step_$step/weights; touch runs/step_$step/DONE; done
"""


@pytest.fixture
def lab(kube: KubeSpan, kube_rig: KubeRig, kube_namespace: str, tmp_path: Path) -> Path:
    """A folder of this machine's that pods have at /mnt/lab."""
    folder = tmp_path / "lab"
    folder.mkdir()
    folder.chmod(0o777)
    kube.connect(kube_rig, kube_namespace)
    settings = json.loads(kube.config.read_text())
    settings["paths"] = {"lab": str(folder)}
    volume = {"hostPath": {"path": str(folder)}}
    settings["clusters"]["kube"]["paths"] = {"lab": {"path": "/mnt/lab", "volume": volume}}
    kube.config.write_text(json.dumps(settings))
    return folder


def test_what_trains_here_is_evaluated_by_pods(kube: KubeSpan, lab: Path) -> None:
    """DESIGN 15: the checkpoint's path is the one that the evaluation's cluster has."""
    job = int(kube.run("submit", "-", "--parsable", stdin=TRAIN, cwd=str(lab)).stdout)
    kube.until(job, "COMPLETED", timeout=60)
    kube.wait_until(
        lambda: [each["state"] for each in kube.list_evaluations(job)] == ["COMPLETED"] * 3, 90, "evaluations"
    )
    found = [(each["checkpoint"], each["score"]) for each in kube.list_evaluations(job)]
    assert found == [(f"step_{step}", step / 10) for step in (1, 2, 3)]
    assert sorted((lab / "evaluated").read_text().split()) == [f"/mnt/lab/runs/step_{step}" for step in (1, 2, 3)]


def test_a_script_works_and_writes_in_the_shared_folder(kube: KubeSpan, lab: Path) -> None:
    script = lab / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH -o out-%j.txt\npwd; echo here > made\n")
    job = int(kube.run("sbatch", "--parsable", str(script), cwd=str(lab)).stdout)
    kube.until(job, "COMPLETED", timeout=60)
    assert (lab / f"out-{job}.txt").read_text() == "/mnt/lab\n"
    assert (lab / "made").read_text() == "here\n"
    plan = kube.run("sbatch", "--parsable", "--test-only", str(script), cwd=str(lab), check=False)
    assert plan.returncode == 0


def test_a_folder_that_both_do_not_share_is_refused_with_the_way(kube: KubeSpan, lab: Path, tmp_path: Path) -> None:
    text = TRAIN.replace("path: runs", f"path: {tmp_path}/elsewhere")
    refused = kube.run("submit", "-", stdin=text, check=False)
    assert refused.returncode and "the cluster kube does not see" in refused.stderr
    assert "`paths` of local and of kube" in refused.stderr
