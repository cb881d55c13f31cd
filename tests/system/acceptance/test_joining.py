"""Jobs that are submitted from inside other jobs: under Slurm's own names, and as members of a group."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

Span = Any

GROUP = """
name: tuning
execution: parallel
---
name: trainer
resources: {{cpus: 0.5}}
run: |
  {command} > {folder}/answer 2>&1
  touch {folder}/done
  sleep 600
---
name: server
resources: {{cpus: 0.5}}
run: sleep 600
"""


def submit_inside(span: Span, folder: Path, command: str) -> tuple[int, str]:
    """Run a command in a member of a group that goes on; the group's id and what the command said."""
    group = span.submit(GROUP.format(command=command, folder=folder))
    span.wait_until((folder / "done").exists, 30, "the command inside the group")
    return group, (folder / "answer").read_text().strip()


def test_a_job_submitted_inside_a_group_joins_it(span: Span, tmp_path: Path) -> None:
    """JG34, CC06: by Slurm's own command name, shown under the group and cancelled with it."""
    group, answer = submit_inside(span, tmp_path, "sbatch --parsable --wrap 'sleep 600'")
    member = int(answer)
    assert span.job(member)["parent"] == group
    assert member in span.job(group)["joined"]
    span.until(member, "RUNNING")
    span.run("scancel", str(group))
    assert span.until(member, "CANCELLED") and span.until(group, "CANCELLED")
    assert span.job(group)["joined"] == [member]
    span.kill_daemon()
    assert f"Joined by:   {member}\n" in span.run("show", str(group)).stdout


def test_a_job_stays_alone_where_it_is_told_to(span: Span, tmp_path: Path) -> None:
    """JG34: opting out, and joining from outside by id."""
    group, answer = submit_inside(span, tmp_path, "sbatch --parsable --no-job-group --wrap 'sleep 600'")
    alone = int(answer)
    joined = span.wrap("sleep 600", f"--job-group={group}")
    assert span.job(alone)["parent"] is None and span.job(joined)["parent"] == group
    span.run("scancel", str(group))
    span.until(joined, "CANCELLED")
    assert span.until(alone, "RUNNING")
    refused = span.run("sbatch", f"--job-group={group}", "--wrap", "true", check=False)
    assert refused.returncode == 1 and "has ended" in refused.stderr


def test_slurms_names_work_inside_a_job(span: Span, tmp_path: Path) -> None:
    """CC06: the shims are on PATH inside jobs, and speak to the job's own daemon."""
    commands = (
        "squeue -h -j $SLURM_JOB_ID -o '%i %t'; scontrol show hostnames 'n[1-2]'; sacct -nX -j $SLURM_JOB_ID -o JobID"
    )
    job = span.wrap(f"which sbatch; {commands}", "-o", str(tmp_path / "out"))
    span.until(job, "COMPLETED")
    lines = (tmp_path / "out").read_text().split("\n")
    assert lines[0] == str(span.state / "shims" / "sbatch")
    assert [line.strip() for line in lines[1:5]] == [f"{job} R", "n1", "n2", str(job)]
    assert shutil.which("sbatch") != lines[0]


def test_a_job_requeues_itself(span: Span, tmp_path: Path) -> None:
    """Part 8: `scontrol requeue $SLURM_JOB_ID` from inside is an order."""
    gate = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    again = f'test -n "$SLURM_RESTART_COUNT" || {{ {gate}; scontrol requeue $SLURM_JOB_ID; sleep 600; }}'
    body = f"echo $SLURM_RESTART_COUNT- >> {tmp_path}/runs; {again}"
    job = span.wrap(body)
    # The daemon hears of a start a moment later than the program runs.
    span.until(job, "RUNNING")
    (tmp_path / "go").touch()
    span.wait_until(
        lambda: (tmp_path / "runs").exists() and (tmp_path / "runs").read_text().split() == ["-", "1-"], 30, "two runs"
    )
    span.until(job, "COMPLETED")
