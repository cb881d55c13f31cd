"""Reads a pool file: SkyPilot's YAML of a pool, which is a job file with a mapping `pool` and no program of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from overspan.bridge.model.errors import InvalidRequest, Place
from overspan.bridge.model.pools import PoolSize, WorkerClass, check_size
from overspan.bridge.model.spec import JobSpec, RetryPolicy
from overspan.bridge.readers.job_file import read_tables
from overspan.bridge.readers.overrides import apply_overrides
from overspan.bridge.readers.submission import Submission, read_documents, read_submission
from overspan.bridge.readers.worker_classes import count_classes, lay_class, read_classes
from overspan.bridge.validation.diagnostics import Diagnostics, refuse
from overspan.bridge.validation.yaml_nodes import Table, place_in

_SHAPE = "write `pool: {workers: 3}` or `pool: {min_workers: 0, max_workers: 10}`"


@dataclass(frozen=True)
class PoolSpec:
    """What a pool file says: how many workers, and the job that each of them is, by class, without its program.

    Where all workers are alike, their class has no name.
    """

    size: PoolSize
    workers: Mapping[str, JobSpec]

    @property
    def notes(self) -> tuple[str, ...]:
        """What has no effect in the file."""
        return tuple(dict.fromkeys(note for worker in self.workers.values() for note in worker.notes))


def read_pool_file(submission: Submission, clusters: Mapping[str, str], now: float) -> PoolSpec:
    """Read a pool file. Raises InvalidRequest with the place of the mistake."""
    spec = read_submission(submission, clusters, now)
    place = spec.later_places.get("pool", Place(submission.file or "stdin"))
    values = spec.later.get("pool")
    if values is None:
        raise InvalidRequest("this file describes no pool: it has no mapping `pool`", remedy=_SHAPE, place=place)
    worker = _make_worker(spec, place)
    tables = read_tables(submission.text, submission.file or "stdin")
    document = tables[0] if len(tables) > 1 else apply_overrides(None, tables, submission.overrides)[1][0]
    if "classes" not in values:
        return PoolSpec(_read_size(values, document, ()), {"": worker})
    if len(tables) > 1:
        refuse("a pool with classes is one document", tables[1].place, "write all keys in the first one, without ---")
    found = Diagnostics()
    classes = read_classes(values, document, found)
    found.raise_any()
    size = _read_size(values, document, classes)
    # The document has the overrides already; what a class says is laid over them.
    bare = replace(submission, overrides=())
    parts = [
        _make_worker(read_documents(bare, [lay_class(document, number)], clusters, now), place)
        for number in range(count_classes(document))
    ]
    return PoolSpec(size, {each.name: part for each, part in zip(classes, parts, strict=True)})


def _make_worker(spec: JobSpec, place: Place) -> JobSpec:
    """The job that a worker is. Raises InvalidRequest."""
    later = {key: value for key, value in spec.later.items() if key != "pool"}
    if len(spec.tasks) > 1 or spec.group or spec.tasks[0].num_nodes > 1 or spec.array is not None:
        raise InvalidRequest("a worker of a pool is one task on one node", remedy="write one document", place=place)
    if spec.cron is not None or spec.on_checkpoint or spec.parent is not None:
        raise InvalidRequest("a pool has no `cron`, no `on_checkpoint` and no group", place=place)
    notes = spec.notes
    if spec.tasks[0].run.strip():
        notes = (*notes, "`run` is left out: a worker runs the jobs of the pool")
    task = replace(spec.tasks[0], run="", retry=RetryPolicy(max_recoveries=0), restart=None)
    return replace(spec, tasks=(task,), later=later, notes=notes, requeue=False, restart=None)


def _read_size(values: Mapping[str, Any], document: Table, classes: tuple[WorkerClass, ...]) -> PoolSize:
    """The numbers of workers; what a pool with classes does not say is that of all of them together.

    Raises InvalidRequest where they contradict each other.
    """
    fixed, low, high = (values.get(key) for key in ("workers", "min_workers", "max_workers"))
    if fixed is not None:
        if low is not None or high is not None:
            place = place_in(document, "pool", "workers")
            refuse("`workers` and `min_workers` or `max_workers` exclude each other", place, _SHAPE)
        low = high = fixed
    elif classes:
        low = sum(each.low for each in classes) if low is None else low
        high = sum(each.high for each in classes) if high is None else high
    elif low is None and high is None:
        refuse("the pool has no number of workers", place_in(document, "pool"), _SHAPE)
    low = low or 0
    size = PoolSize(
        low,
        low if high is None else high,
        values.get("queue_length_threshold", 1),
        float(values.get("upscale_delay_seconds", PoolSize(0, 0).up_delay)),
        float(values.get("downscale_delay_seconds", PoolSize(0, 0).idle)),
        classes,
    )
    fault = check_size(size)
    if fault:
        key = "workers" if fixed is not None else fault.partition(" ")[0]
        refuse(fault, place_in(document, "pool", key), "change the pool's number, or those of its classes")
    return size
