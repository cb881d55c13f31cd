"""Every example runs as its page says."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
# A busy machine takes longer over everything than the files allow for.
PATIENT = ("--set", "*.time=30m", "--set", "*.grace_period=10m")


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the examples, so that nothing is written into the project."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__")))


def test_the_five_component_group_learns_and_ends_in_order(span: Any, examples: Path) -> None:
    done = span.run("submit", "rlhf.yaml", "--parsable", *PATIENT, cwd=examples / "rlhf")
    job = int(done.stdout)
    assert span.run("wait", str(job), timeout=600).returncode == 0, span.log(job)
    shown = span.job(job)
    assert shown["state"] == "COMPLETED"
    found = re.search(r"accuracy before ([\d.]+) after ([\d.]+)", span.log(job, "ppo-trainer"))
    assert found is not None
    assert float(found[1]) < 0.3 and float(found[2]) > 0.85
    ends = {task["name"]: task["ended_at"] for task in shown["tasks"]}
    assert min(ends, key=lambda name: ends[name]) == "ppo-trainer"
    assert ends["replay-buffer"] - ends["ppo-trainer"] >= 2
    run_dir = span.state / "clusters" / "local" / "runs" / str(job)
    assert json.loads((run_dir / "replay-statistics.json").read_text())
    assert list((run_dir / "checkpoints").glob("*.done"))


def test_the_evaluator_measures_every_checkpoint(span: Any, examples: Path) -> None:
    # The evaluator ends by itself once it was told and has measured the last one.
    words = (*PATIENT, "--set", "termination_delay=10m")
    done = span.run("submit", "train_eval.yaml", "--parsable", *words, cwd=examples / "train_eval")
    job = int(done.stdout)
    assert span.run("wait", str(job)).returncode == 0, span.log(job)
    run_dir = span.state / "clusters" / "local" / "runs" / str(job)
    results = [json.loads(line) for path in run_dir.rglob("results.jsonl") for line in path.read_text().splitlines()]
    assert len(results) == len(list(run_dir.rglob("*.done"))) > 0


def test_the_batch_scripts_run(span: Any, examples: Path) -> None:
    top = examples.parent
    hello = span.run("sbatch", "--wait", "examples/sbatch/hello.sh", cwd=top)
    assert hello.stdout.startswith("Submitted batch job ")
    train = span.run("sbatch", "--wait", "examples/sbatch/train.sh", cwd=top)
    number = train.stdout.split()[-1]
    assert (top / f"train-{number}.out").read_text()
    assert any((top / f"checkpoints-{number}").iterdir())


def test_each_checkpoint_has_an_evaluation_and_a_good_score_ends_the_training(span: Any, examples: Path) -> None:
    done = span.run("submit", "train.yaml", "--parsable", cwd=examples / "evaluations")
    job = int(done.stdout)
    assert span.run("wait", str(job), timeout=300).returncode == 0, span.log(job)
    assert span.job(job)["reason"] == "ScoreReached"
    (watch,) = json.loads(span.look("evals", str(job), "--json"))["watches"]
    scores = [each["score"] for each in watch["evaluations"] if each["score"] is not None]
    assert len(scores) > 5 and min(scores) <= 0.02


def test_rollout_workers_come_and_go_while_the_trainer_learns(span: Any, examples: Path) -> None:
    words = ("--parsable", "--env", "STEPS=100000")
    job = int(span.run("submit", "elastic_rl.yaml", *words, cwd=examples / "elastic_rl").stdout)

    def reads(text: str) -> bool:
        """Whether one of the last steps says so."""
        return any(text in line for line in span.log(job, "trainer").splitlines()[-3:])

    for count, asked in ((1, False), (3, True), (1, True)):
        if asked:
            span.run("scale", "elastic-rl", f"rollout={count}")
        span.wait_until(lambda count=count: reads(f"from {count} workers"), 30, f"rollouts of {count} workers")
    span.wait_until(lambda: reads("reward 0.9") or reads("reward 1.0"), 60, "the policy to be good")
    assert float(re.findall(r"reward ([\d.]+)", span.log(job, "trainer"))[0]) < 0.5
    assert span.task(job, "trainer")["restarts"] == 0
    span.run("scancel", str(job))
    span.until(job, "CANCELLED")
