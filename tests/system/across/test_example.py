"""`examples/train_eval_across` as it stands: a trainer on Slurm, a server and evaluations in pods."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.rigs.kube import PYTHON_IMAGE
from tests.system.across.conftest import FOLDER, Lab

EXAMPLE = Path(__file__).parents[3] / "examples" / "train_eval_across"
SHARED = "/scratch"
"""Where this machine and Slurm's have the folder in common, by the example's own words."""


@pytest.fixture
def scratch(lab: Lab) -> None:
    """The site that the example is written for; its pods have an image that is there."""
    for name in lab.site.rig.containers:
        lab.site.rig.run(["ln", "-sfn", FOLDER, SHARED], user="root", on=name)
    settings = json.loads(lab.config.read_text())
    settings["paths"] = {"lab": SHARED}
    settings["clusters"]["leo"]["paths"] = {"lab": SHARED}
    settings["clusters"]["kube"]["kubernetes"] = {"spec": {"containers": [{"image": PYTHON_IMAGE}]}}
    lab.config.write_text(json.dumps(settings))


@pytest.mark.usefixtures("joined", "scratch")
def test_training_over_two_clusters_is_evaluated_at_each_checkpoint(lab: Lab) -> None:
    """JG22, JG35: it learns from a server in a pod, each checkpoint is evaluated once, and all ends together."""
    job = int(lab.run("submit", "train.yaml", "--parsable", cwd=EXAMPLE).stdout)
    assert lab.run("wait", str(job), check=False, timeout=200).returncode == 0, lab.log(job)
    states = {task["name"]: task["state"] for task in lab.job(job)["tasks"]}
    assert states == {"trainer": "COMPLETED", "server": "COMPLETED"}
    assert "step 10: slope 3.0" in lab.log(job, "trainer") or "step 10: slope 2.9" in lab.log(job, "trainer")

    def list_ended() -> list[dict[str, object]]:
        return [each for each in lab.list_evaluations(job) if each["ended_at"] is not None]

    lab.wait_until(lambda: len(list_ended()) == 10, 60, "ten evaluations")
    assert Counter(each["checkpoint"] for each in list_ended()) == {f"step_{step}.json": 1 for step in range(1, 11)}
    assert {each["state"] for each in list_ended()} == {"COMPLETED"}
    scores = [float(str(each["score"])) for each in list_ended()]
    assert scores[-1] == min(scores) < scores[0]
    jobs = [lab.job(int(str(each["job"]))) for each in list_ended()]
    assert {each["cluster"] for each in jobs} == {"kube"}
    assert "held-out" in lab.run("evals", "train-across", "--plot").stdout
    lab.until_empty()
