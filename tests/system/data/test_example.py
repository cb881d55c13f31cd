"""`examples/bucket_checkpoints` as it stands: checkpoints go to a bucket, and evaluations read them there."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.stores import TestStore, lend_bucket
from tests.system.conftest import Span

EXAMPLE = Path(__file__).parents[3] / "examples" / "bucket_checkpoints"
STEPS = (200, 400, 600, 800)


def test_checkpoints_go_to_a_bucket_and_are_measured_there(lab: Span, store: TestStore) -> None:
    folder = Path(shutil.copytree(EXAMPLE, lab.folder / "example", ignore=shutil.ignore_patterns("__pycache__")))
    with lend_bucket(store, "runs"):
        job = int(lab.run("submit", "train.yaml", "--parsable", cwd=folder).stdout)
        lab.until(job, "COMPLETED", timeout=60)
        names = [f"fit-line/step_{step}/{name}" for step in STEPS for name in ("DONE", "weights.json")]
        assert sorted(store.texts("runs")) == sorted(names)

        def scores(job: int) -> list[float]:
            evaluations = sorted(lab.list_evaluations(job), key=lambda each: int(each["step"]))
            found = [each["score"] for each in evaluations]
            return found if len(found) == len(STEPS) and None not in found else []

        found = lab.wait_until(lambda: scores(job), 90, "the scores of all checkpoints")
        assert found == sorted(found, reverse=True) and found[-1] < 0.1 < found[0]
        # A second one goes on where the first has ended, whatever node it is on.
        again = int(lab.run("submit", "train.yaml", "--parsable", cwd=folder).stdout)
        lab.until(again, "COMPLETED", timeout=60)
        assert "begins at step 800" in lab.log(again)
        lab.wait_until(lambda: scores(again), 90, "its scores")
