"""`examples/train_eval_across` as it stands: a trainer on Slurm, a server and evaluations in pods."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from tests.rigs.kube import PYTHON_IMAGE
from tests.rigs.reach import find_address
from tests.system.across.conftest import FOLDER, Lab
from tests.system.top.live_queue import LiveQueue, play_live

from overspan.tui.evaluations.plot_pane import PlotPane
from overspan.tui.places.evaluations import EvaluationsPlace

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
    """JG22, JG35, TU06: names hold both ways, each checkpoint is evaluated once, and `span top` draws the scores."""
    job = int(lab.run("submit", "train.yaml", "--parsable", cwd=EXAMPLE).stdout)
    play_live(lab, lambda live: watch_scores(live, lab, job), size=(120, 40))
    shown = lab.until(job, "COMPLETED")
    assert {task["name"]: task["state"] for task in shown["tasks"]} == {"trainer": "COMPLETED", "server": "COMPLETED"}
    # The trainer has learned what only the server knows, and the server has found the trainer.
    assert re.search(r"step 10: slope (3\.0|2\.9)", lab.log(job, "trainer"))
    nodes = {find_address(lab.site.rig, f"node{number}") for number in (1, 2, 3)}
    told = re.search(r"trainer-0.train-across is (\S+)", lab.log(job, "server"))
    assert told and told[1] in nodes
    done = lab.list_evaluations(job)
    assert Counter(each["checkpoint"] for each in done) == {f"step_{step}.json": 1 for step in range(1, 11)}
    assert {each["state"] for each in done} == {"COMPLETED"}
    scores = [float(each["score"]) for each in done]
    assert scores[-1] == min(scores) < scores[0]
    assert {lab.job(each["job"])["cluster"] for each in done} == {"kube"}
    said = lab.run("evals", "train-across", "--plot").stdout
    assert said.startswith("held-out\n") and f"* best: {scores[-1]:g} at 10" in said
    lab.until_empty()


async def watch_scores(live: LiveQueue, lab: Lab, job: int) -> None:
    """Go from the group's line to its evaluations, and look on while they come; the daemon dies among them."""
    await live.until_state(job, "RUNNING")
    await live.go_to(job)
    await live.pilot.press("v")
    await live.until(lambda: isinstance(live.app.place, EvaluationsPlace))
    place = live.app.query_one(EvaluationsPlace)

    def list_scored() -> set[str]:
        return {line.name for line in place.table.lines if line.one is not None and line.state == "COMPLETED"}

    await live.until(lambda: "step_1.json" in list_scored())
    lab.kill_daemon()
    lab.run("ping")
    # A step for each wait: together they may take longer than a screen is waited for.
    await live.until(lambda: len(list_scored()) >= 4)
    await live.until(lambda: len(list_scored()) >= 7)
    await live.until(lambda: len(list_scored()) == 10)
    plot = place.query_one(PlotPane)
    await live.until(lambda: "held-out of train-across" in plot.text and "at step_10.json" in plot.text)
    await live.until(lambda: place.table.lines[0].state == "COMPLETED")
