"""Slurm's own messages that several modules print and that clients match (measured on Slurm 22.05)."""

from __future__ import annotations

INVALID_JOB = "Invalid job id specified"
BAD_PARTITION = "invalid partition specified"
"""`: ` and the partition's name follow."""
BAD_NODE = "Invalid node name specified"
BAD_RESERVATION = "Requested reservation is invalid"
BAD_GRES = "Invalid generic resource (gres) specification"
TOO_MUCH_MEMORY = "Memory specification can not be satisfied"
TOO_LONG = "Requested time limit is invalid (missing or exceeds some limit)"
NOT_PENDING = "Job is no longer pending execution"
ALREADY_ENDED = "Job/step already completing or completed"
NOT_SUPPORTED = "Requested operation not supported on this system"


def word_lost_allocation(job: object) -> str:
    """The message of srun and sattach for a job without an allocation, or whose allocation has ended."""
    return f"Unable to confirm allocation for job {job}: {INVALID_JOB}"
