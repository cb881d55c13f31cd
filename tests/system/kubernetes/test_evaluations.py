"""Evaluations of checkpoints that pods write on a volume, by pods that mount it too. Rows JG35 and JG36."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rigs.kube import KubeRig
from tests.system.kubernetes.conftest import KubeSpan

PYTHON, SHELL = "rig/python:1", "rig/sh:1"
FOLDER = "/shared/run"
TRAIN = """\
name: train
execution: parallel
primary_tasks: [trainer]
on_checkpoint:
  name: quality
  path: /shared/run
  pattern: "step_{step:int}"
  ready: {marker: DONE}
  max_parallel: 2
  result: {file: result.json, score: accuracy}
  task:
    resources: {cpus: 0.1}
    run: |
      echo "{checkpoint} $OVERSPAN_STEP" >> /shared/run.evaluated
      echo "{\\"accuracy\\": 0.{step}}" > "$OVERSPAN_RESULT"
---
name: trainer
resources: {cpus: 0.1}
volumes: {/shared: scratch}
run: |
  save() { mkdir -p /shared/run/step_$1; echo $1 > /shared/run/step_$1/weights; touch /shared/run/step_$1/DONE; }
  save 1; save 2
  mkdir -p /shared/run/step_9; touch /shared/run/step_9/weights
  until [ -e /shared/go ]; do sleep 0.1; done
  save 3
"""


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A folder that the nodes have too."""
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.mark.parametrize("image", [PYTHON, SHELL], ids=["in the trainer's pod", "by a watcher pod"])
def test_each_complete_checkpoint_is_evaluated_once_whatever_becomes_of_the_daemon(
    kube: KubeSpan, kube_rig: KubeRig, kube_namespace: str, volume: Path, image: str
) -> None:
    """JG35, JG36: two while it trains, one more after a daemon's death and the end; an incomplete one is none.

    The evaluations mount the trainer's volume by themselves.
    """
    source = {"hostPath": {"path": str(volume)}}
    kube.connect(kube_rig, kube_namespace, image=image, checkpoint_image=PYTHON, volumes={"scratch": source})
    job = kube.submit(TRAIN)

    def count_ended() -> int:
        return sum(each["ended_at"] is not None for each in kube.list_evaluations(job))

    kube.wait_until(lambda: count_ended() == 2, 60, "two evaluations")
    assert kube.job(job)["state"] == "RUNNING"
    watchers = [name for name in kube.pods() if name.startswith("overspan-watcher-")]
    assert bool(watchers) == (image == SHELL)
    assert "step_9 is not complete: its marker DONE is not there" in kube.run("evals", str(job)).stderr
    kube.kill_daemon()
    (volume / "go").touch()
    kube.until(job, "COMPLETED", timeout=60)
    kube.wait_until(lambda: count_ended() == 3, 90, "the last evaluation")
    found = [(each["checkpoint"], each["state"], each["score"]) for each in kube.list_evaluations(job)]
    assert found == [(f"step_{step}", "COMPLETED", step / 10) for step in (1, 2, 3)]
    evaluated = sorted((volume / "run.evaluated").read_text().split("\n"))
    assert evaluated == ["", *(f"{FOLDER}/step_{step} {step}" for step in (1, 2, 3))]
    kube.until_empty(60)


def test_a_score_that_is_reached_ends_the_group_as_done(
    kube: KubeSpan, kube_rig: KubeRig, kube_namespace: str, volume: Path
) -> None:
    """JG42."""
    source = {"hostPath": {"path": str(volume)}}
    kube.connect(kube_rig, kube_namespace, image=PYTHON, volumes={"scratch": source})
    stop = 'stop_when: {evaluation: quality, score: ">= 0.2"}\n---\nname: trainer'
    job = kube.submit(TRAIN.replace("---\nname: trainer", stop, 1))
    ended = kube.until(job, "COMPLETED", "CANCELLED", "FAILED", timeout=90)
    assert (ended["state"], ended["reason"]) == ("COMPLETED", "ScoreReached")


def test_a_folder_that_goes_with_its_pod_is_refused(kube: KubeSpan, kube_rig: KubeRig, kube_namespace: str) -> None:
    kube.connect(kube_rig, kube_namespace, image=SHELL)
    refused = kube.run("submit", "-", stdin=TRAIN.replace("volumes: {/shared: scratch}\n", ""), check=False)
    assert refused.returncode == 2
    assert "evaluation quality: /shared/run is on no volume of the pods of trainer" in refused.stderr
