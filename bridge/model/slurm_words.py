"""Words of Slurm's that several parts say, and that clients look for (measured on Slurm 22.05)."""

from __future__ import annotations

INVALID_JOB = "Invalid job id specified"
BAD_PARTITION = "invalid partition specified"
"""What follows is `: ` and its name."""
BAD_NODE = "Invalid node name specified"
BAD_RESERVATION = "Requested reservation is invalid"
TOO_LONG = "Requested time limit is invalid (missing or exceeds some limit)"


def word_lost_allocation(job: object) -> str:
    """What srun and sattach say of a job that has no allocation, or none any more."""
    return f"Unable to confirm allocation for job {job}: {INVALID_JOB}"
