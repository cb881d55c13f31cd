"""sbatch as its users meet it: codes of --wait, messages, shims on PATH."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any


def test_wait_ends_with_the_jobs_code(span: Any) -> None:
    for command, code in (("exit 3", 3), ("kill -9 $$", 1), ("true", 0)):
        assert span.run("sbatch", "-W", "--wrap", command, check=False).returncode == code, command
    several = span.run("sbatch", "-Q", "-W", "-a", "1-3", "--wrap", "exit $SLURM_ARRAY_TASK_ID", check=False)
    assert (several.returncode, several.stdout, several.stderr) == (3, "", "")
    variable = span.run("sbatch", "--wrap", "exit 5", check=False, environment={"SBATCH_WAIT": "1"})
    assert variable.returncode == 5


def test_messages_are_slurms_with_a_remedy_below(span: Any, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH -t soon\n")
    wrong = span.run("sbatch", "job.sh", check=False)
    assert wrong.returncode == 255
    assert wrong.stderr.splitlines()[0] == "sbatch: error: Invalid --time specification"
    assert "job.sh:2:9" in wrong.stderr.splitlines()[1]
    assert "span sbatch job.sh" in span.run("submit", "job.sh", check=False).stderr
    (tmp_path / "job.yaml").write_text("name: j\nrun: 'true'\n")
    assert "span submit job.yaml" in span.run("sbatch", "job.yaml", check=False).stderr
    trial = span.run("sbatch", "--test-only", "-p", "nowhere", "--wrap", "true", check=False)
    assert trial.stderr == (
        "sbatch: error: invalid partition specified: nowhere\nallocation failure: Invalid partition name specified\n"
        "  `span sinfo -M local` shows what its nodes and partitions have\n"
    )


def test_programs_find_slurms_names(span: Any, tmp_path: Path) -> None:
    folder = span.run("alias", "--folder").stdout.strip()
    environment = {**span.environment, "PATH": f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin"}

    def shell(text: str) -> subprocess.CompletedProcess[str]:
        words = ["/bin/sh", "-c", text]
        return subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment)

    done = shell("sbatch --parsable --wait -o out --wrap 'echo $SLURM_JOB_ID' && squeue -h && sacct --version")
    number, version = done.stdout.splitlines()
    assert (tmp_path / "out").read_text().strip() == number
    assert version.startswith("slurm ")
    refused = shell("sbatch --mem=x --wrap true")
    assert (refused.returncode, refused.stdout) == (255, "")
    assert refused.stderr.startswith("sbatch: error: Invalid --mem specification\n")
