"""A schedule as the store keeps it; used by the controller and the API. Standard library only.

Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from overspan.bridge.model.schedule import Schedule

JOB_FILE = "job_file"
CRONTAB = "crontab"


@dataclass(frozen=True)
class ScheduleFacts:
    """What a schedule is and what became of it so far.

    Every due time up to `last_due` has been dealt with, but for those in `owed`: missed runs that are still to be
    made. `message` is the latest thing that the user should know, of the time `message_at`.
    """

    name: str
    cluster: str
    schedule: Schedule
    created_at: float
    last_due: float
    source: str = JOB_FILE
    first_line: int = 0
    last_line: int = 0
    mark: str = ""
    """Of a crontab's entry: what it means, so that it is known again."""
    paused: bool = False
    owed: tuple[float, ...] = ()
    last_job: int | None = None
    last_run_at: float | None = None
    runs: int = 0
    missed: int = 0
    skipped: int = 0
    refused: int = 0
    message: str = ""
    message_at: float | None = None


@dataclass(frozen=True)
class StoredSchedule:
    """A schedule and the submission that it repeats, as JSON data; `id` 0 for one that is not stored yet."""

    id: int
    version: int
    user: str
    facts: ScheduleFacts
    request: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Crontab:
    """A user's crontab: the text, and its entries. Those with an id are changed, the others are new."""

    user: str
    text: str | None
    """None removes it."""
    entries: tuple[StoredSchedule, ...] = ()
