"""The steps that srun ran inside launches, from the records in their run directories."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator

from overspan.adapters.abilities import Step
from overspan.adapters.local.files.launch_files import LaunchFiles
from overspan.bridge.runtime.srun.accounting import StepRecord, read_steps

_log = logging.getLogger(__name__)


def list_steps(places: Iterable[LaunchFiles]) -> list[Step]:
    """The steps of these launches, launch by launch, in the order of their numbers."""
    found: list[Step] = []
    for place in places:
        try:
            records = read_steps(f"{place.folder}/steps", place.launch)
        except OSError as error:
            _log.warning("the steps of %s cannot be read: %s", place.handle, error)
            continue
        for record in records:
            found += _parts(place.handle, record)
    return found


def _parts(handle: str, record: StepRecord) -> Iterator[Step]:
    running = record.running
    tasks = [part.task for part in record.parts]
    for offset, part in enumerate(record.parts):
        status = part.status or 0
        yield Step(
            handle=handle,
            number=record.number,
            # Components with the same task are distinguished by their numbers.
            component=offset if tasks.count(part.task) > 1 else None,
            task=part.task,
            name=record.name,
            command=record.line,
            started_at=record.started_at,
            ended_at=record.ended_at,
            running=running,
            exit_code=0 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status),
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            cancelled=record.cancelled,
            ntasks=part.ntasks,
            cpus=part.cpus,
            nodes=part.places,
            layout=part.layout,
            host=record.host,
            pid=record.started_by[0],
        )
