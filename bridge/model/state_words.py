"""Names and codes of job states as Slurm's commands read and write them; plain words, so that importing is cheap."""

from __future__ import annotations

BASES: dict[str, str] = {
    "PENDING": "PD",
    "RUNNING": "R",
    "SUSPENDED": "S",
    "COMPLETED": "CD",
    "CANCELLED": "CA",
    "FAILED": "F",
    "TIMEOUT": "TO",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "BOOT_FAIL": "BF",
    "DEADLINE": "DL",
    "OUT_OF_MEMORY": "OOM",
}
"""Base states in the order of Slurm's own numbers (slurm.h, enum job_states)."""

CODES: dict[str, str] = {**BASES, "COMPLETING": "CG", "CONFIGURING": "CF"}
"""Every state that a job has here; the last two are flags to Slurm, shown in place of the base (squeue(1))."""

LIVE_WORDS: tuple[str, ...] = ("RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "PENDING")
"""The states of jobs that are not over, the liveliest first."""

ENDED_WORDS: tuple[str, ...] = (
    "FAILED",
    "OUT_OF_MEMORY",
    "TIMEOUT",
    "NODE_FAIL",
    "BOOT_FAIL",
    "DEADLINE",
    "PREEMPTED",
    "CANCELLED",
    "COMPLETED",
)
"""The states in which jobs end, the gravest first: an array ends as the worst of its elements did."""

FOREIGN: dict[str, str] = {
    "RESIZING": "RS",
    "RESV_DEL_HOLD": "RD",
    "REQUEUED": "RQ",
    "REQUEUE_FED": "RF",
    "REQUEUE_HOLD": "RH",
    "REVOKED": "RV",
    "SIGNALING": "SI",
    "SPECIAL_EXIT": "SE",
    "STAGE_OUT": "SO",
    "STOPPED": "ST",
}
"""Slurm's flags that no job has here. A filter may still name them (squeue(1), JOB STATE CODES)."""
