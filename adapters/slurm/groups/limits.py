"""The time limits of an allocation after an order has changed a task's wall time. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from overspan.adapters.slurm.groups.lifetimes import MARGIN, latest_ends
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.documents import decode
from overspan.bridge.model.events import Event, SetTime
from overspan.bridge.model.job import Job


def list_limits(plan: bytes, placement: bytes, orders: Iterable[Event]) -> list[int | None]:
    """Seconds for each component, None for no limit, from the plan and the orders that have changed it.

    The first component runs the batch script, so it lasts as long as the longest. Raises ValueError for a damaged
    document.
    """
    job = decode(Job, json.loads(plan)["job"])
    for event in orders:
        if isinstance(event, SetTime):
            job = reduce(job, event)
    document: dict[str, Any] = json.loads(placement)
    ends = latest_ends(job)
    tasks: list[set[str]] = [set() for _ in document["components"]]
    for step in document["steps"]:
        tasks[step["component"]].add(step["task"])
    limits = [cover([ends[name] for name in sorted(names)]) for names in tasks]
    return [cover(limits, 0), *limits[1:]]


def cover(limits: Iterable[int | None], margin: int = MARGIN) -> int | None:
    """The longest of these limits with a margin; None if one of them is None."""
    longest = 0
    for limit in limits:
        if limit is None:
            return None
        longest = max(longest, limit)
    return longest + margin
