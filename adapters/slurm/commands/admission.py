"""What `sbatch --test-only` says of a job, as a verdict. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from overspan.adapters.contract import Node, Refusal
from overspan.adapters.slurm.commands.errors import clean, read_failure
from overspan.bridge.model.job import Job

_TRIAL = "allocation failure: "
_SUBMISSION = "Batch job submission failed: "
_ACCEPTED = re.compile(
    r"Requested node configuration is not available|Required (node|partition) not available|nodes are busy|"
    r"Requested time limit is invalid|Job dependency|Requested operation is presently disabled"
)
"""What a trial refuses and a submission takes: the job waits, with its reason (measured on 22.05)."""


_TOO_LARGE = (
    "Memory specification can not be satisfied",
    f"{_SUBMISSION}Requested node configuration is not available",
)


def read_trial(code: int, stderr: str) -> Refusal | None:
    """The refusal that a submission would meet, in sbatch's words; None where it would be taken, or for now only.

    The sentence about the allocation is the same for jobs that sbatch takes and lets wait (`is_unclear`); another
    error beside it tells that it would not.
    """
    if code == 0 or is_unclear(code, stderr):
        return None
    failure = read_failure(stderr, code)
    if failure.transient:
        return None
    lines = clean(stderr).splitlines()
    words = [line.replace(_TRIAL, _SUBMISSION, 1) if line.startswith(_TRIAL) else line for line in lines]
    return Refusal("", "\n".join(words) or failure.message)


def is_unclear(code: int, stderr: str) -> bool:
    """Whether a trial was refused by a sentence that may mean no more than a wait."""
    lines = clean(stderr).splitlines()
    return code != 0 and len(lines) == 1 and lines[0].startswith(_TRIAL) and bool(_ACCEPTED.search(lines[0]))


def refuse_memory(job: Job, nodes: Sequence[Node]) -> Refusal | None:
    """The refusal of a job that asks for more memory than any node of its partition has; sbatch takes no such job."""
    names = set(job.spec.partition.split(",")) if job.spec.partition else set()
    sizes = [node.memory for node in nodes if (node.partition in names if names else node.default)]
    for task in job.spec.tasks:
        resources = task.resources
        asked = resources.memory_mib or 0
        if resources.memory_mib_per_cpu is not None:
            asked = resources.memory_mib_per_cpu * max(1, int(task.cpus_per_task or resources.cpus or 1))
        if sizes and asked > max(sizes):
            return Refusal("", "\n".join(_TOO_LARGE))
    return None
