"""What is told of steps: in sacct and squeue while they run, after them, and over restarts; and sattach."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.system.steps.scripts import script, start_script

if TYPE_CHECKING:
    from tests.system.conftest import Span

FACTS = "JobID,JobName,State,ExitCode,NTasks"


def lines(span: Span, *words: str) -> list[str]:
    """What sacct has, without its header."""
    return span.run("sacct", "-n", "-P", "-o", FACTS, *words).stdout.splitlines()


def test_steps_are_told_while_they_run_and_ever_after(span: Span) -> None:
    body = """
span srun -n1 sh -c 'exit 3'
span srun -J named sh -c 'echo ready; sleep 600'
"""
    start_script(span, body, "-n2", "-N2", lines=2)
    running = ["1|job.sh|RUNNING|0:0|", "1.batch|batch|RUNNING|0:0|1", "1.0|sh|FAILED|3:0|1", "1.1|named|RUNNING|0:0|2"]
    assert lines(span) == running
    span.kill_daemon()
    assert lines(span) == running
    assert lines(span, "-X") == running[:1]
    assert span.run("squeue", "-h", "-s", "-o", "%i %j %A").stdout == "1.1 named 2\n1.batch batch 1\n"
    assert "   Nodes=2 CPUs=2 Tasks=2 Name=named" in span.run("scontrol", "show", "step", "1.1").stdout
    span.run("scancel", "1")
    span.until(1, "CANCELLED")
    span.run("shutdown")
    assert lines(span)[2:] == ["1.0|sh|FAILED|3:0|1", "1.1|named|CANCELLED|0:15|2"]
    assert lines(span, "-j", "1.0") == ["1.0|sh|FAILED|3:0|1"]
    assert span.run("sacct", "-X", "-n", "-P", "-o", "DerivedExitCode").stdout == "3:0\n"


def test_a_requeued_job_has_the_steps_of_its_newest_launch(span: Span) -> None:
    body = """
span srun -J "launch$SLURM_RESTART_COUNT" true
[ -z "$SLURM_RESTART_COUNT" ] || exit 0
echo ready; until [ -e go ]; do sleep 0.05; done
span scontrol requeue $SLURM_JOB_ID; sleep 600
"""
    job = start_script(span, body, lines=1)
    (span.folder / "go").touch()
    span.run("wait", str(job))
    assert lines(span, "-j", "1")[2:] == ["1.0|launch1|COMPLETED|0:0|1"]


def test_an_allocation_without_a_script_has_no_batch_step(span: Span) -> None:
    assert span.run("srun", "-n2", "sh", "-c", "exit 4", check=False).returncode == 4
    span.until(1, "FAILED")
    assert lines(span) == ["1|sh|FAILED|4:0|", "1.0|sh|FAILED|4:0|2"]


def test_components_have_their_own_part_of_a_step(span: Span) -> None:
    body = "span srun true\nspan srun --het-group=0,1 sh -c 'exit $SLURM_PROCID'\nexit 0"
    span.run("sbatch", "--wait", "-o", "out", script(span, body, "-n1", "hetjob", "-n2"))
    assert lines(span)[1:] == [
        "1+0.batch|batch|COMPLETED|0:0|1",
        "1+0.0|true|COMPLETED|0:0|1",
        "1+0.1|sh|COMPLETED|0:0|1",
        "1+1|job.sh|COMPLETED|0:0|",
        "1+1.1|sh|FAILED|2:0|2",
    ]


def test_an_srun_that_is_killed_leaves_no_step_running(span: Span) -> None:
    body = "span srun sh -c 'touch up; exec sleep 600' & until [ -e up ]; do sleep 0.05; done"
    start_script(span, f"{body}; kill -9 $!; wait; echo ready; sleep 600", lines=1)
    assert lines(span)[2:] == ["1.0|sh|CANCELLED|0:9|1"]


def test_sattach_shows_a_step_until_it_ends(span: Span) -> None:
    body = """
span srun -o file.%j sh -c 'echo ready; while [ ! -e go ]; do sleep 0.05; done; echo out; echo err >&2; exit 3' &
until grep -q ready file.*; do sleep 0.05; done
echo ready; wait
"""
    start_script(span, body, "-n2", lines=1)
    layout = span.run("sattach", "--layout", "1.0").stdout
    assert layout.endswith(", 2 task(s): 0 1 \n")
    command = [str(Path(sys.executable).with_name("span")), "sattach", "-l", "--error-filter=1", "1.0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=span.environment, cwd=span.folder
    ) as viewer:
        assert viewer.stdout is not None
        # What was written before is shown too.
        assert sorted(viewer.stdout.readline() for _ in range(2)) == ["0: ready\n", "1: ready\n"]
        (span.folder / "go").touch()
        rest, told = viewer.communicate(timeout=200)
    assert sorted(rest.splitlines()) == ["0: out", "1: out"]
    assert sorted(told.splitlines()) == [
        "1: err",
        *(f"sattach: error: task {rank} exited with exit code 3" for rank in (0, 1)),
    ]
    assert viewer.returncode == 3
    span.until(1, "COMPLETED")
    gone = span.run("sattach", "1.0", check=False)
    assert (gone.returncode, gone.stderr) == (
        1,
        "sattach: error: Could not get job step info: Invalid job id specified\n",
    )


def test_scancel_ends_or_signals_a_step_alone(span: Span) -> None:
    body = """
span srun sh -c 'trap "echo got it; exit 5" USR1; echo ready; while :; do sleep 0.05; done'
span srun sh -c 'echo ready; sleep 600'
echo end
"""
    start_script(span, body, lines=1)
    span.run("scancel", "-s", "USR1", "1.0")
    out = span.folder / "out"
    span.wait_until(lambda: out.read_text().count("ready") == 2, 20, "the second step")
    assert span.run("scancel", "1.1").stderr == ""
    span.until(1, "COMPLETED")
    assert "*** STEP 1.1 ON" in out.read_text()
    assert out.read_text().endswith(": task 0: Killed\nend\n")
    uid = os.getuid()
    assert lines(span)[2:] == ["1.0|sh|FAILED|5:0|1", f"1.1|sh|CANCELLED by {uid}|0:9|1"]
    gone = span.run("scancel", "1.1", check=False)
    assert gone.returncode == 1 and "job step id 1.1: Invalid job id specified" in gone.stderr
