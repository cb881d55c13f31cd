"""TorchX, unmodified: an application of two replicas is a hetjob, whose script starts both with one srun."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_its_own_workload(run_client: Any, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    words = ("--workspace=", "--wait", "-s", "slurm", "-cfg", f"job_dir={folder}", "utils.echo")
    done = _run(run_client, *words, "--msg", "hello", "--num_replicas", "2")
    assert "Job finished: SUCCEEDED" in done.stderr
    (app,) = (line for line in done.stdout.split() if line.startswith("slurm://"))
    job = app.rpartition("/")[2]
    outputs = [(folder / f"slurm-{job}-echo-{replica}.out").read_text() for replica in (0, 1)]
    assert outputs == ["hello\n", "hello\n"]
    status = run_client("torchx", "torchx", "status", app)
    assert "echo" in status.stdout + status.stderr


def _run(run_client: Any, *words: str) -> Any:
    """Run an application; TorchX ends with an error where it meets a job that is CONFIGURING, on Slurm as well."""
    for _ in range(12):
        try:
            return run_client("torchx", "torchx", "run", *words)
        except AssertionError as error:
            if "slurm state CONFIGURING" not in str(error):
                raise
    raise AssertionError("the job was CONFIGURING each time")
