"""Pipelines and DAGs of jobs, in Slurm's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.shared_daemon

Span = Any


def reason(span: Span, job: int) -> str:
    """Why a job waits."""
    return str(span.run("squeue", "-h", "-j", str(job), "-o", "%r").stdout.strip())


def test_the_second_starts_after_the_first_and_not_after_its_failure(span: Span, tmp_path: Path) -> None:
    """MJ10."""
    good = span.wrap(f"sleep 0.3; echo one >> {tmp_path}/order")
    after = span.wrap(f"echo two >> {tmp_path}/order", f"--dependency=afterok:{good}")
    assert span.until(after, "COMPLETED")
    assert (tmp_path / "order").read_text().split() == ["one", "two"]
    bad = span.wrap("exit 4")
    never = span.wrap("true", f"--dependency=afterok:{bad}")
    killed = span.wrap("true", f"--dependency=afterok:{bad}", "--kill-on-invalid-dep=yes")
    anyway = span.wrap("true", f"--dependency=afternotok:{bad}")
    span.until(anyway, "COMPLETED")
    span.until(killed, "CANCELLED")
    span.wait_until(lambda: reason(span, never) == "DependencyNeverSatisfied", 20, "what waits in vain")
    span.run("scontrol", "update", f"jobid={never}", "Dependency=")
    span.until(never, "COMPLETED")


def test_a_diamond_of_jobs_runs_its_middle_at_once(span: Span, tmp_path: Path) -> None:
    """MJ11: both in the middle are seen to run at the same time."""
    meet = "touch {own}; for i in $(seq 2000); do test -e {other} && exit 0; sleep 0.05; done; exit 1"
    left, right = tmp_path / "left", tmp_path / "right"
    go = tmp_path / "go"
    top = span.wrap(f"until [ -e {go} ]; do sleep 0.05; done")
    middle = [
        span.wrap(meet.format(own=own, other=other), "-d", f"afterok:{top}")
        for own, other in ((left, right), (right, left))
    ]
    bottom = span.wrap("true", "-d", f"afterok:{middle[0]}:{middle[1]}")
    assert reason(span, bottom) == "Dependency"
    go.touch()
    span.until(bottom, "COMPLETED")
    assert [span.job(job)["state"] for job in middle] == ["COMPLETED", "COMPLETED"]


def test_a_whole_dag_in_one_file(span: Span, tmp_path: Path) -> None:
    """MJ11 by one job file: tasks that need each other's success."""
    task = "---\nname: {name}\nneeds: [{needs}]\nrun: echo {name} >> {file}\n"
    order = tmp_path / "order"
    text = "name: dag\nexecution: parallel\n" + "".join(
        task.format(name=name, needs=needs, file=order)
        for name, needs in (("a", ""), ("b", "ok:a"), ("c", "ok:a"), ("d", "ok:b, ok:c"))
    )
    dag = span.submit(text)
    span.until(dag, "COMPLETED")
    ran = order.read_text().split()
    assert ran[0] == "a" and ran[3] == "d" and sorted(ran) == ["a", "b", "c", "d"]


def test_a_dependency_is_met_while_the_daemon_is_away(span: Span, tmp_path: Path) -> None:
    """MJ19 for dependencies."""
    first = span.wrap("until [ -e go ]; do sleep 0.05; done; touch gone", f"--chdir={tmp_path}")
    second = span.wrap("test -e gone", f"--dependency=afterany:{first}", f"--chdir={tmp_path}")
    span.until(first, "RUNNING")
    assert reason(span, second) == "Dependency"
    span.kill_daemon()
    (tmp_path / "go").touch()
    # Every command of ours would start the daemon again.
    span.wait_until((tmp_path / "gone").exists, 20, "the end of the first")
    span.until(second, "COMPLETED", "FAILED")
    assert [span.job(job)["state"] for job in (first, second)] == ["COMPLETED", "COMPLETED"]


def test_arrays_pair_their_elements(span: Span, tmp_path: Path) -> None:
    """aftercorr."""
    first = int(span.run("sbatch", "--parsable", "-a", "0-2", "--wrap", "exit $SLURM_ARRAY_TASK_ID").stdout)
    second = int(span.run("sbatch", "--parsable", "-a", "0-2", "-d", f"aftercorr:{first}", "--wrap", "true").stdout)
    span.wait_until(
        lambda: "COMPLETED" in span.run("sacct", "-XnP", "-j", f"{second}_0", "-o", "State").stdout, 20, "the pair"
    )
    never = [f"{second}_{index} DependencyNeverSatisfied" for index in (1, 2)]
    span.wait_until(
        lambda: span.run("squeue", "-h", "-r", "-j", str(second), "-o", "%i %r").stdout.split("\n")[:2] == never,
        20,
        "the others never to start",
    )


def test_bad_dependencies_are_refused_in_slurms_words(span: Span) -> None:
    """CC01."""
    for text in ("afterok", "afterok:x", "nonsense:1", "afterok:1,afterany:2?afterok:3", "afterany:0"):
        done = span.run("sbatch", "-d", text, "--wrap", "true", check=False)
        assert (done.returncode, "Batch job submission failed: Job dependency problem" in done.stderr) == (1, True), (
            text
        )


def test_the_stages_of_a_pipeline_take_turns_with_the_machine(span: Span) -> None:
    """MJ10: each stage may need all of the machine (64 CPUs, 4 GPUs here)."""
    stage = '---\nname: {}\nresources: {{cpus: 64, accelerators: 4}}\nrun: test -n "$CUDA_VISIBLE_DEVICES"\n'
    job = span.submit("name: pipe\n" + stage.format("first") + stage.format("second"))
    span.until(job, "COMPLETED", "FAILED")
    first, second = (span.task(job, name)["attempts"][0] for name in ("first", "second"))
    assert (first["state"], second["state"]) == ("COMPLETED", "COMPLETED")
    assert first["ended_at"] <= second["started_at"]
