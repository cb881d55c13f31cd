"""Records of schedules, which the store takes and returns; used by the controller and the API. Standard library only.

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
    """A schedule and its history.

    Every due time up to `last_due` has been handled, except those in `owed`: missed runs that are still to be made up
    for. `message` is the latest message for the user, from the time `message_at`.
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
    """For an entry of a crontab: its content, by which an edited crontab's entries are matched with stored ones."""
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
    """A schedule and the submission that it repeats, as JSON data; `id` is 0 for one that is not stored yet."""

    id: int
    version: int
    user: str
    facts: ScheduleFacts
    request: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Crontab:
    """A user's crontab: its text and its entries. Entries with an id are updated, the others are new."""

    user: str
    text: str | None
    """None removes it."""
    entries: tuple[StoredSchedule, ...] = ()
