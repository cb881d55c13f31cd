"""Orders that a job gives about itself, from inside."""

from __future__ import annotations

import signal
from collections.abc import Mapping


def outlive_order(environment: Mapping[str, str]) -> None:
    """Inside a job, let this process read the answer to an order that ends the job, and with it this process."""
    if environment.get("OVERSPAN_JOB_ID") or environment.get("SLURM_JOB_ID"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
