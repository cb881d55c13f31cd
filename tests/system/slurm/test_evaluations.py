"""Evaluations of checkpoints that a job writes on a real Slurm cluster, by jobs there. Rows JG35 and JG36."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.gates import Gate
from tests.system.slurm.groups import connect, start
from tests.waiting import WaitUntil

TRAIN = """\
name: train
execution: parallel
primary_tasks: [trainer]
on_checkpoint:
  name: quality
  path: {folder}
  pattern: "step_{{step:int}}"
  ready: {{marker: DONE}}
  max_parallel: 2
  result: {{file: result.json, score: accuracy}}
  task:
    resources: {{cpus: 1, memory: 50M}}
    run: |
      echo "{{checkpoint}} $OVERSPAN_STEP" >> {folder}.evaluated
      echo "{{\\"accuracy\\": 0.{{step}}}}" > "$OVERSPAN_RESULT"
---
name: trainer
resources: {{cpus: 1, memory: 50M}}
run: |
  save() {{ mkdir -p {folder}/step_$1; echo $1 > {folder}/step_$1/weights; touch {folder}/step_$1/DONE; }}
  save 1; save 2
  mkdir -p {folder}/step_9; touch {folder}/step_9/weights
  {wait}
  save 3
"""


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def test_each_complete_checkpoint_is_evaluated_once_whatever_becomes_of_the_daemon(remote: Span, site: Site) -> None:
    """JG35, JG36: two while it trains, one more after a daemon's death and the end; an incomplete one is none."""
    gate = Gate(site)
    folder = f"{gate.path}.checkpoints"
    job = start(remote, TRAIN.format(folder=folder, wait=gate.wait))

    def count_ended() -> int:
        return sum(each["ended_at"] is not None for each in remote.list_evaluations(job))

    remote.wait_until(lambda: count_ended() == 2, 60, "two evaluations")
    assert remote.job(job)["state"] == "RUNNING"
    shown = remote.run("evals", str(job))
    assert "step_9 is not complete: its marker DONE is not there" in shown.stderr
    remote.kill_daemon()
    gate.open()
    remote.until(job, "COMPLETED", timeout=60)
    remote.wait_until(lambda: count_ended() == 3, 60, "the last evaluation")
    found = [(each["checkpoint"], each["state"], each["score"]) for each in remote.list_evaluations(job)]
    assert found == [(f"step_{step}", "COMPLETED", step / 10) for step in (1, 2, 3)]
    evaluated = sorted(site.slurm("cat", f"{folder}.evaluated").split("\n"))
    assert evaluated == ["", *(f"{folder}/step_{step} {step}" for step in (1, 2, 3))]


STOP = """\
name: until-good
on_checkpoint:
  name: quality
  path: {folder}
  pattern: "step_{{step:int}}"
  ready: {{marker: DONE}}
  result: {{file: result.json, score: accuracy}}
  task:
    resources: {{cpus: 1, memory: 50M}}
    run: |
      echo "{{\\"accuracy\\": 0.{{step}}}}" > "$OVERSPAN_RESULT"
stop_when: {{evaluation: quality, score: ">= 0.2"}}
resources: {{cpus: 1, memory: 50M}}
run: |
  for step in 1 2; do mkdir -p {folder}/step_$step; touch {folder}/step_$step/DONE; done
  sleep 600
"""


def test_a_score_that_is_reached_ends_a_single_native_job_as_done(remote: Span, site: Site) -> None:
    """JG42: Slurm's own record says CANCELLED, and that the job has reached what it is for is known here."""
    job = start(remote, STOP.format(folder=f"{Gate(site).path}.checkpoints"))
    ended = remote.until(job, "COMPLETED", "CANCELLED", "FAILED", timeout=90)
    assert (ended["state"], ended["reason"]) == ("COMPLETED", "ScoreReached")
    assert remote.look("squeue", "--states=all", "-h", "-j", str(job), "-o", "%T %r").split() == [
        "COMPLETED",
        "ScoreReached",
    ]
    assert remote.look("sacct", "-n", "-X", "-j", str(job), "-o", "state").split() == ["COMPLETED"]


EVALUATE = """\
name: measure
resources: {{cpus: 1, memory: 50M}}
run: echo "$OVERSPAN_CHECKPOINT" >> {folder}.evaluated
"""


def test_an_imported_job_and_one_element_of_an_array_are_watched(remote: Span, site: Site, tmp_path: Path) -> None:
    """What Slurm had before is watched like any other job; of an array, the element that is named."""
    gate, other = Gate(site), Gate(site)
    theirs, mine = f"{gate.path}.theirs", f"{other.path}.mine"
    write = f"for step in 1 2; do mkdir -p $folder/step_$step; touch $folder/step_$step/DONE; done; {gate.wait}"
    words = ["sbatch", "--parsable", "--mem=50", "--job-name=theirs"]
    native = site.slurm(*words, "--wrap", f"folder={theirs}; {write}").strip()
    imported = int(remote.run("import", f"rig:{native}").stdout)
    given = remote.run("sbatch", "--parsable", "-M", "rig", "-a", "0-1", "--mem=50", "--wrap", other.wait)
    array = int(given.stdout.partition(";")[0])
    remote.until(f"{array}_1", "RUNNING")
    for ref, folder in ((str(imported), theirs), (f"{array}_1", mine)):
        job = tmp_path / f"{Path(folder).name}.yaml"
        job.write_text(EVALUATE.format(folder=folder))
        named = ["--pattern", "step_{step:int}", "--marker", "DONE"]
        remote.run("evals", "watch", ref, "--path", folder, *named, "--job", str(job))
    whole = remote.run("evals", "watch", str(array), "--path", mine, *named, "--job", str(job), check=False)
    assert whole.returncode and "name one of its elements" in whole.stderr
    site.slurm("mkdir", "-p", f"{mine}/step_7")
    site.slurm("touch", f"{mine}/step_7/DONE")

    def evaluated(folder: str) -> list[str]:
        return sorted(site.slurm("sh", "-c", f"cat {folder}.evaluated 2>/dev/null || true").split())

    remote.wait_until(lambda: len(evaluated(theirs)) == 2 and len(evaluated(mine)) == 1, 90, "evaluations")
    gate.open()
    other.open()
    remote.until(imported, "COMPLETED", timeout=60)
    assert evaluated(theirs) == [f"{theirs}/step_1", f"{theirs}/step_2"]
    assert evaluated(mine) == [f"{mine}/step_7"]


def test_the_elements_of_an_array_are_evaluated_each_in_its_own_folder(remote: Span, site: Site) -> None:
    """They are one native array; each element has its watch when it starts, and the daemon may die meanwhile."""
    gate = Gate(site)
    folder = f"{gate.path}.sweep"
    (remote.folder / "measure.yaml").write_text(
        f"path: {folder}/%a\npattern: 'step_{{step:int}}'\nready: {{marker: DONE}}\n"
        f"task: {EVALUATE.format(folder=folder).replace(chr(10), chr(10) + '  ').strip()}\n".replace(
            "task: ", "task:\n  "
        )
    )
    script = (
        "#!/bin/bash\n#SBATCH -a 2,5 --mem=50\n#SPAN on_checkpoint=measure.yaml\n"
        f"mkdir -p {folder}/$SLURM_ARRAY_TASK_ID/step_1; touch {folder}/$SLURM_ARRAY_TASK_ID/step_1/DONE\n"
        f"{gate.wait}\n"
    )
    (remote.folder / "sweep.sh").write_text(script)
    given = remote.run("sbatch", "--parsable", "-M", "rig", "sweep.sh", cwd=remote.folder)
    array = int(given.stdout.partition(";")[0])
    remote.until(f"{array}_5", "RUNNING", timeout=60)
    remote.kill_daemon()

    def evaluated() -> list[str]:
        return sorted(site.slurm("sh", "-c", f"cat {folder}.evaluated 2>/dev/null || true").split())

    remote.run("ping")
    remote.wait_until(lambda: len(evaluated()) == 2, 90, "evaluations")
    gate.open()
    remote.until(array, "COMPLETED", timeout=60)
    assert evaluated() == [f"{folder}/{index}/step_1" for index in (2, 5)]
    remote.wait_until(lambda: remote.look("evals", str(array)).count("COMPLETED") == 2, 30, "both results")
