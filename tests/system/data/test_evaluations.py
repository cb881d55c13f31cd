"""Checkpoints that a trainer writes at the speed of its disk are evaluated when they are whole in the store."""

from __future__ import annotations

from tests.stores import TestStore
from tests.system.conftest import Span

FILE = """
name: train
on_checkpoint:
  name: score
  path: s3://lab/run
  pattern: "step_{step:int}"
  ready: {marker: DONE}
  task:
    file_mounts: {"./checkpoint-{step}": "s3://lab/run/step_{step}"}
    run: |
      echo {checkpoint} >> evaluated
      echo "RESULT $(cat checkpoint-{step}/value)"
file_mounts: {./out: {source: s3://lab/run, mode: MOUNT_CACHED}}
run: |
  for step in 1 2 3; do
    mkdir out/step_$step; echo 0.$step > out/step_$step/value; sleep 0.3; touch out/step_$step/DONE
  done
  mkdir out/step_4; echo 0.4 > out/step_4/value
"""


def test_whole_checkpoints_in_the_store_are_evaluated_once(lab: Span, store: TestStore) -> None:
    job = lab.submit(FILE)
    lab.until(job, "COMPLETED", timeout=60)

    def scores() -> str:
        listed = lab.look("evals", str(job))
        # A score is read after the end of its job.
        return listed if all(score in listed for score in ("0.1", "0.2", "0.3")) else ""

    listed = lab.wait_until(scores, 60, "three evaluations")
    assert listed.count("COMPLETED") == 3 and "0.4" not in listed, listed
    evaluated = sorted((lab.folder / "evaluated").read_text().split())
    assert evaluated == [f"s3://lab/run/step_{step}" for step in (1, 2, 3)]


def test_a_folder_that_leaves_the_node_with_the_job_is_refused(lab: Span, store: TestStore) -> None:
    file = lab.folder / "wrong.yaml"
    file.write_text(FILE.replace("path: s3://lab/run", "path: ./out"))
    done = lab.run("submit", str(file), check=False)
    assert f"the checkpoints in {lab.folder}/out go to s3://lab/run, and leave the node with the job" in done.stderr
    assert "watch the store: `path: s3://lab/run`" in done.stderr
