"""Reads a pool file: SkyPilot's YAML of a pool, which is a job file with a mapping `pool` and no program of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from overspan.bridge.model.errors import InvalidRequest, Place
from overspan.bridge.model.pools import PoolSize
from overspan.bridge.model.spec import JobSpec, RetryPolicy
from overspan.bridge.readers.submission import Submission, read_submission

_SHAPE = "write `pool: {workers: 3}` or `pool: {min_workers: 0, max_workers: 10}`"


@dataclass(frozen=True)
class PoolSpec:
    """What a pool file says: how many workers, and the job that each of them is, without its program."""

    size: PoolSize
    worker: JobSpec


def read_pool_file(submission: Submission, clusters: Mapping[str, str], now: float) -> PoolSpec:
    """Read a pool file. Raises InvalidRequest with the place of the mistake."""
    spec = read_submission(submission, clusters, now)
    place = spec.later_places.get("pool", Place(submission.file or "stdin"))
    values = spec.later.get("pool")
    if values is None:
        raise InvalidRequest("this file describes no pool: it has no mapping `pool`", remedy=_SHAPE, place=place)
    later = {key: value for key, value in spec.later.items() if key != "pool"}
    if len(spec.tasks) > 1 or spec.group or spec.tasks[0].num_nodes > 1 or spec.array is not None:
        raise InvalidRequest("a worker of a pool is one task on one node", remedy="write one document", place=place)
    if spec.cron is not None or spec.on_checkpoint or spec.parent is not None:
        raise InvalidRequest("a pool has no `cron`, no `on_checkpoint` and no group", place=place)
    notes = spec.notes
    if spec.tasks[0].run.strip():
        notes = (*notes, "`run` is left out: a worker runs the jobs of the pool")
    task = replace(spec.tasks[0], run="", retry=RetryPolicy(max_recoveries=0), restart=None)
    worker = replace(spec, tasks=(task,), later=later, notes=notes, requeue=False, restart=None)
    return PoolSpec(_read_size(values, place), worker)


def _read_size(values: Mapping[str, Any], place: Place) -> PoolSize:
    """The numbers of workers. Raises InvalidRequest where they contradict each other."""
    fixed, low, high = (values.get(key) for key in ("workers", "min_workers", "max_workers"))
    if fixed is not None:
        if low is not None or high is not None:
            raise InvalidRequest("`workers` and `min_workers` or `max_workers` exclude each other", place=place)
        return PoolSize(fixed, fixed)
    if low is None and high is None:
        raise InvalidRequest("the pool has no number of workers", remedy=_SHAPE, place=place)
    low = low or 0
    high = low if high is None else high
    if high < low:
        raise InvalidRequest(f"max_workers {high} is below min_workers {low}", place=place)
    return PoolSize(
        low,
        high,
        values.get("queue_length_threshold", 1),
        float(values.get("upscale_delay_seconds", PoolSize(0, 0).up_delay)),
        float(values.get("downscale_delay_seconds", PoolSize(0, 0).idle)),
    )
