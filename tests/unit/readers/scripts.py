"""Batch scripts as the tests of the readers write them."""

from __future__ import annotations

from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.readers.read_context import ReadContext
from overspan.bridge.readers.sbatch.arguments import parse_sbatch
from overspan.bridge.readers.sbatch.batch_script import read_batch_script

CONTEXT = ReadContext(
    directory="/home/u/50%",
    environment={"PATH": "/bin", "SLURM_CONF": "/c"},
    clusters={"local": "local", "hpc": "slurm"},
    origin=Origin(user="ann", uid=1000),
    now=1_800_000_000.0,
)
SCRIPT = "#!/bin/bash\n{}\necho hi\n"


def read(directives: str = "", *argv: str, context: ReadContext = CONTEXT) -> JobSpec:
    """The job of a script with these lines behind #SBATCH, submitted with these words."""
    call = parse_sbatch([*argv, "dir/job.sh"], context.environment)
    text = SCRIPT.format("\n".join(f"#SBATCH {line}" for line in directives.splitlines()))
    return read_batch_script(text, "dir/job.sh", call=call, context=context)


def task_of(directives: str = "", *argv: str) -> TaskSpec:
    """The one task of such a script."""
    (task,) = read(directives, *argv).tasks
    return task
