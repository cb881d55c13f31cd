"""Reads the answer of `sbatch --test-only` as acceptance or refusal. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from overspan.adapters.contract import Node, Refusal
from overspan.adapters.slurm.commands.errors import clean, read_failure
from overspan.bridge.model.job import Job
from overspan.bridge.model.slurm.words import TOO_MUCH_MEMORY

_TRIAL = "allocation failure: "
_SUBMISSION = "Batch job submission failed: "
_ACCEPTED = re.compile(
    r"Requested node configuration is not available|Required (node|partition) not available|nodes are busy|"
    r"Requested time limit is invalid|Job dependency|Requested operation is presently disabled"
)
"""Errors of --test-only for jobs that a real submission accepts and lets wait, with a reason (measured on 22.05)."""


_TOO_LARGE = (
    TOO_MUCH_MEMORY,
    f"{_SUBMISSION}Requested node configuration is not available",
)


def read_trial(code: int, stderr: str) -> Refusal | None:
    """The refusal of a submission, in sbatch's words; None if sbatch would accept the job, or refuses it only for now.

    Its sentence about the allocation alone does not tell (`is_unclear`); with another error beside it, it is a
    refusal.
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
    """Whether --test-only failed with nothing but a sentence that may also mean that the job would wait."""
    lines = clean(stderr).splitlines()
    return code != 0 and len(lines) == 1 and lines[0].startswith(_TRIAL) and bool(_ACCEPTED.search(lines[0]))


def refuse_memory(job: Job, nodes: Sequence[Node]) -> Refusal | None:
    """The refusal of a job that asks for more memory than any node of its partition has, which sbatch never accepts."""
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
