"""Evaluations of checkpoints: each complete one is evaluated once, while training goes on and after it."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.system.checkpoint_groups import write_watch

Span = Any


def await_scores(span: Span, job: int, count: int) -> list[dict[str, Any]]:
    """Wait until as many evaluations are over."""

    def find() -> list[dict[str, Any]]:
        found = span.list_evaluations(job)
        return found if sum(each["ended_at"] is not None for each in found) >= count else []

    found: list[dict[str, Any]] = span.wait_until(find, 60, f"{count} evaluations")
    return found


def read_evaluated(span: Span) -> list[str]:
    """The checkpoints that evaluations have written down, in the order of their names."""
    file = span.folder / "evaluated"
    return sorted(line.split("/")[-1].split()[0] for line in file.read_text().splitlines()) if file.exists() else []


def test_each_complete_checkpoint_is_evaluated_once_while_training_goes_on(span: Span) -> None:
    """JG35: three complete checkpoints are three evaluations, and an incomplete one is none."""
    run = "save 1; save 2; mkdir -p ckpt/step_9; touch ckpt/step_9/weights; save 3; until [ -e go ]; do sleep 0.1; done"
    group = span.submit(write_watch(run, keys="max_parallel: 2"))
    found = await_scores(span, group, 3)
    assert [(each["checkpoint"], each["state"], each["score"]) for each in found] == [
        ("step_1", "COMPLETED", 0.1),
        ("step_2", "COMPLETED", 0.2),
        ("step_3", "COMPLETED", 0.3),
    ]
    assert span.job(group)["state"] == "RUNNING"
    # Two run at once, so either may be the first to write.
    assert f"of {span.folder}/ckpt/step_1 quality 1" in (span.folder / "evaluated").read_text().splitlines()
    shown = span.run("evals", str(group))
    assert "0.3*" in shown.stdout and "step_9 is not complete: its marker DONE is not there" in shown.stderr
    assert "best: 0.3 at 3" in span.run("evals", str(group), "--plot").stdout
    jobs = [each["job"] for each in found]
    assert span.job(group)["joined"] == jobs and span.job(jobs[0])["parent"] == group
    texts = [row["text"] for row in json.loads(span.look("timeline", str(group), "--json"))["rows"]]
    assert "evaluation quality of step_2: COMPLETED, score 0.2" in texts
    (span.folder / "go").touch()
    span.until(group, "COMPLETED")
    assert read_evaluated(span) == ["step_1", "step_2", "step_3"]


def test_an_evaluation_outlives_the_training_and_the_last_checkpoint_has_one(span: Span) -> None:
    """JG36: the last one, though it is not selected; both end after the trainer, which they do not hold up."""
    text = write_watch("save 5; save 10; save 13", keys="select: {every: 10}", evaluate="sleep 1")
    group = span.submit(text)
    span.until(group, "COMPLETED")
    found = await_scores(span, group, 2)
    assert [(each["step"], each["state"]) for each in found] == [(10, "COMPLETED"), (13, "COMPLETED")]
    ended = span.job(group)["ended_at"]
    assert all(datetime.fromisoformat(each["ended_at"]).timestamp() > ended for each in found)
    assert span.job(group)["state"] == "COMPLETED"


def test_evaluations_neither_fail_nor_hold_up_the_training(span: Span) -> None:
    """JG36: one that fails is told, and the group is COMPLETED."""
    group = span.submit(write_watch("save 1", evaluate="exit 3"))
    span.until(group, "COMPLETED")
    (only,) = await_scores(span, group, 1)
    assert (only["state"], only["score"]) == ("FAILED", None)


def test_a_cancelled_group_takes_its_evaluations_along(span: Span) -> None:
    group = span.submit(write_watch("save 1; save 2; sleep 600", evaluate="sleep 600"))
    span.wait_until(lambda: read_evaluated(span) == ["step_1"], 30, "the first evaluation")
    first = span.list_evaluations(group)[0]["job"]
    span.run("scancel", str(group))
    span.until(first, "CANCELLED")
    assert [each["state"] for each in await_scores(span, group, 2)] == ["CANCELLED", "CANCELLED"]
    assert read_evaluated(span) == ["step_1"]


def test_a_score_that_is_reached_ends_the_group_as_done(span: Span) -> None:
    """JG42: by the score, COMPLETED and with the reason; no gain for N ends it alike."""
    run = "for i in 1 2 3 4; do save $i; sleep 0.2; done; sleep 600"
    group = span.submit(write_watch(run, header='stop_when: {evaluation: quality, score: ">= 0.3"}'))
    job = span.until(group, "COMPLETED")
    assert job["reason"] == "ScoreReached"
    texts = [row["text"] for row in json.loads(span.look("timeline", str(group), "--json"))["rows"]]
    assert "quality of step_3 is 0.3, and at least 0.3 was wanted" in texts
    assert span.job(group)["exit_code"] == 0


def test_no_gain_for_some_results_ends_the_group_as_done(span: Span) -> None:
    """JG42: three results in a row that are no better than the first."""
    run = "for i in 4 31 32 33; do save $i; sleep 0.2; done; sleep 600"
    group = span.submit(write_watch(run, header="stop_when: {no_gain: 3}"))
    assert span.until(group, "COMPLETED")["reason"] == "NoGain"


def test_a_killed_daemon_neither_doubles_nor_loses_an_evaluation(span: Span) -> None:
    """JG35: killed again and again while checkpoints come, also while nobody is there."""
    run = "for i in $(seq 1 8); do save $i; sleep 0.3; done; until [ -e go ]; do sleep 0.1; done"
    group = span.submit(write_watch(run, keys="max_parallel: 3"))
    for pause in (0.3, 0.7, 0.1, 0.5):
        time.sleep(pause)
        span.kill_daemon()
        span.run("squeue")
    await_scores(span, group, 8)
    assert read_evaluated(span) == [f"step_{number}" for number in range(1, 9)]
    (span.folder / "go").touch()
    span.until(group, "COMPLETED")
    span.kill_daemon()
    span.wait_until(lambda: json.loads(span.look("evals", str(group), "--json"))["watches"][0]["closed"], 30, "its end")
    assert len(span.list_evaluations(group)) == 8


def test_a_requeued_group_keeps_what_was_evaluated(span: Span) -> None:
    run = 'save "$((${SLURM_RESTART_COUNT:-0} + 1))"; save 1; until [ -e go ]; do sleep 0.1; done'
    group = span.submit(write_watch(run))
    await_scores(span, group, 1)
    span.run("requeue", str(group))
    span.until(group, "RUNNING")
    await_scores(span, group, 2)
    (span.folder / "go").touch()
    span.until(group, "COMPLETED")
    assert read_evaluated(span) == ["step_1", "step_2"]


def test_a_checkpoint_that_is_read_has_a_lease_beside_it(span: Span) -> None:
    group = span.submit(write_watch("save 1; sleep 600", evaluate="until [ -e go ]; do sleep 0.05; done"))
    lease = span.folder / "ckpt" / ".step_1.overspan-lease"
    span.wait_until(lease.exists, 30, "the lease")
    (span.folder / "go").touch()
    await_scores(span, group, 1)
    span.wait_until(lambda: not lease.exists(), 30, "the end of the lease")


def test_a_replaced_checkpoint_is_evaluated_again_where_changes_count(span: Span) -> None:
    """What evaluations write into the checkpoint, and times alone, change nothing."""
    evaluate = 'echo more > "$OVERSPAN_CHECKPOINT/scores"; touch "$OVERSPAN_CHECKPOINT/weights"'
    text = write_watch("save 1; sleep 600", keys="again: on_change", evaluate=evaluate)
    group = span.submit(text.replace("ready: {marker: DONE}", "ready: {quiet: 0.3}"))
    await_scores(span, group, 1)
    time.sleep(1.5)
    assert len(span.list_evaluations(group)) == 1
    (span.folder / "ckpt" / "step_1" / "weights").write_text("other weights of another size")
    await_scores(span, group, 2)
    assert read_evaluated(span) == ["step_1", "step_1"]


def test_a_checkpoint_is_evaluated_by_hand(span: Span) -> None:
    group = span.submit(write_watch("save 1; sleep 600"))
    await_scores(span, group, 1)
    made = json.loads(span.run("evals", "run", str(group), "step_1", "--json").stdout)["evaluations"]
    assert [each["run"] for each in made] == [1]
    await_scores(span, group, 2)
    refused = span.run("evals", "run", str(group), "other", check=False)
    assert refused.returncode == 2 and "does not fit the pattern 'step_{step:int}'" in refused.stderr


def test_checkpoints_of_a_job_that_runs_already_are_watched(span: Span, tmp_path: Path) -> None:
    """A batch script that knows nothing of evaluations."""
    (tmp_path / "eval.yaml").write_text("run: echo RESULT 0.{step}\nresources: {cpus: 0.5}\n")
    job = span.wrap(f"mkdir -p {tmp_path}/c/checkpoint-7; sleep 600")
    words = ("--path", f"{tmp_path}/c", "--pattern", "checkpoint-{step:int}", "--job", "eval.yaml")
    done = span.run("evals", "watch", str(job), *words, cwd=tmp_path)
    assert done.stdout == f"Watching checkpoints of job {job}: eval\n"
    folder = tmp_path / "c" / "checkpoint-7"
    span.wait_until(folder.is_dir, 30, "the folder")
    (folder / "model.safetensors").write_bytes(b"x")
    time.sleep(0.5)
    assert span.list_evaluations(job) == []
    (folder / "trainer_state.json").write_text("{}\n")
    (only,) = await_scores(span, job, 1)
    assert (only["layout"], only["score"], only["guess"]) == ("Hugging Face Trainer", 0.7, False)
    again = span.run("evals", "watch", str(job), *words, cwd=tmp_path, check=False)
    assert again.returncode == 1 and "has an evaluation 'eval' already" in again.stderr


def test_a_ready_checkpoint_is_submitted_within_200_ms(span: Span) -> None:
    group = span.submit(write_watch("until [ -e go ]; do sleep 0.05; done", keys="max_parallel: 9"))
    span.until(group, "RUNNING")
    folder = span.folder / "ckpt"
    folder.mkdir(exist_ok=True)
    delays = []
    for step in range(1, 6):
        whole = span.folder / f"new_{step}"
        whole.mkdir()
        (whole / "DONE").touch()
        moved = time.time()
        os.rename(whole, folder / f"step_{step}")
        found = await_scores(span, group, step)
        submitted = next(each for each in found if each["step"] == step)["submitted_at"]
        delays.append(datetime.fromisoformat(submitted).timestamp() - moved)
    (span.folder / "go").touch()
    assert sorted(delays)[2] < 0.2, delays


def test_mistakes_are_told_at_the_submission_with_their_place(span: Span, tmp_path: Path) -> None:
    text = write_watch("save 1")
    wrong = {
        "step_{step:int": "job.yaml:7:12: a brace in 'step_{step:int' is not closed",
        "step_{step:number}": "the types are int, float, str",
        "../{step:int}": "can never match",
    }
    for pattern, words in wrong.items():
        refused = submit_wrong(span, tmp_path, text.replace("step_{step:int}", pattern))
        assert words in refused, refused
    field = submit_wrong(span, tmp_path, text.replace("{checkpoint}", "{checkpont}"))
    assert "job.yaml:" in field and "no field {checkpont} is known here; did you mean 'checkpoint'?" in field
    missing = submit_wrong(span, tmp_path, text.replace("  task:\n", "  job: nothing.yaml\n  x:\n"))
    assert "unknown key 'x'" in missing


def submit_wrong(span: Span, folder: Path, text: str) -> str:
    """What a submission is refused with."""
    (folder / "job.yaml").write_text(text)
    done = span.run("submit", "job.yaml", cwd=folder, check=False)
    assert done.returncode == 2, done.stdout
    return str(done.stderr)


def test_what_hinders_a_watch_is_told(span: Span) -> None:
    """A folder that cannot be read, names that fit no pattern, results that are none."""
    group = span.submit(write_watch("mkdir -p ckpt/epoch-1; sleep 600"))
    note = "no name in"
    span.wait_until(lambda: note in span.run("evals", str(group)).stderr, 30, "the note")
    assert "there are epoch-1" in span.run("evals", str(group)).stderr
    text = write_watch("save 1; sleep 600").replace('{\\"accuracy\\": 0.{step}}', "none")
    other = span.submit(text.replace("path: ckpt", "path: other").replace("ckpt/", "other/"))
    (only,) = await_scores(span, other, 1)
    assert (only["state"], only["score"]) == ("COMPLETED", None)
    assert only["trouble"] == "result.json is neither JSON nor a number: none"


def test_a_batch_script_names_its_evaluations(span: Span, tmp_path: Path) -> None:
    """By `#SPAN` lines, which Slurm takes for comments."""
    (tmp_path / "quality.yaml").write_text(
        "path: c\npattern: 'step_{step:int}'\nready: rename\ntask: {name: quality, run: 'echo RESULT 0.{step}'}\n"
    )
    script = "#!/bin/sh\n#SBATCH -J fit\n#SPAN on_checkpoint=quality.yaml\nmkdir -p c/step_4\nsleep 600\n"
    (tmp_path / "fit.sh").write_text(script)
    job = int(span.run("sbatch", "--parsable", "fit.sh", cwd=tmp_path).stdout)
    (only,) = await_scores(span, job, 1)
    assert (only["checkpoint"], only["score"]) == ("step_4", 0.4)
    assert span.job(job)["joined"] == [only["job"]]
    (tmp_path / "fit.sh").write_text(script.replace("quality.yaml", "missing.yaml"))
    refused = span.run("sbatch", "fit.sh", cwd=tmp_path, check=False)
    assert refused.returncode == 1 and "the file missing.yaml cannot be read\n  fit.sh:3:7: " in refused.stderr


def test_each_element_of_an_array_is_evaluated_in_its_own_folder(span: Span, tmp_path: Path) -> None:
    (tmp_path / "quality.yaml").write_text(
        "path: c/%a\npattern: 'step_{step:int}'\nready: rename\n"
        "task: {name: quality, run: 'echo RESULT $(cat {checkpoint}/score)'}\n"
    )
    script = "#!/bin/sh\n#SBATCH -a 1,4\n#SPAN on_checkpoint=quality.yaml\n" + (
        "for step in 1 2; do mkdir -p w$SLURM_ARRAY_TASK_ID/step_$step c/$SLURM_ARRAY_TASK_ID\n"
        "echo $SLURM_ARRAY_TASK_ID.$step > w$SLURM_ARRAY_TASK_ID/step_$step/score\n"
        "mv w$SLURM_ARRAY_TASK_ID/step_$step c/$SLURM_ARRAY_TASK_ID/; done\n"
    )
    (tmp_path / "sweep.sh").write_text(script)
    array = int(span.run("sbatch", "--parsable", "sweep.sh", cwd=tmp_path).stdout)

    def list_rows() -> list[list[str]]:
        lines = span.look("evals", str(array), check=False).splitlines()[1:]
        return [[*line.split()[:3], line.split()[6]] for line in lines if "COMPLETED" in line]

    span.wait_until(lambda: len(list_rows()) == 4, 60, "four evaluations")
    rows = list_rows()
    assert rows == [
        [f"{array}_1", "quality", "step_1", "1.1"],
        [f"{array}_1", "quality", "step_2", "1.2*"],
        [f"{array}_4", "quality", "step_1", "4.1"],
        [f"{array}_4", "quality", "step_2", "4.2*"],
    ]
    quality = tmp_path / "quality.yaml"
    quality.write_text(quality.read_text().replace("c/%a", "c"))
    refused = span.run("sbatch", "sweep.sh", cwd=tmp_path, check=False)
    assert refused.returncode == 1 and f"{tmp_path}/c is one for all" in refused.stderr and "write %a" in refused.stderr


def test_an_evaluation_that_is_submitted_again_is_a_job_of_its_own(span: Span) -> None:
    group = span.submit(write_watch("save 1; sleep 600"))
    (only,) = await_scores(span, group, 1)
    again = int(span.run("resubmit", str(only["job"]), "--parsable").stdout)
    assert span.until(again, "COMPLETED")["parent"] is None
    assert len(span.list_evaluations(group)) == 1
