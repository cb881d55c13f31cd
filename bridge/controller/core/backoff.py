"""How long to wait before a cluster, or a refused call, is tried again."""

from __future__ import annotations

from overspan.bridge.config.settings import PollIntervals
from overspan.bridge.lifecycle.retries import backoff_delay
from overspan.bridge.model.spec import Backoff

REFUSED = Backoff(first=1.0, factor=2.0, limit=300.0, jitter=0.2)
"""For a single call that was refused for now."""


def unanswered(ticks: PollIntervals) -> Backoff:
    """For a cluster that does not answer."""
    return Backoff(first=float(ticks.retry), factor=2.0, limit=float(ticks.retry_limit), jitter=0.2)


def next_try(backoff: Backoff, now: float, failures: int, seed: str) -> float:
    """When to try again after that many failures (the first is 1)."""
    return now + backoff_delay(backoff, max(0, failures - 1), f"{seed}.{failures}")
