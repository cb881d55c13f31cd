"""The schedules of the simulated lab."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from overspan.tui.demo.machines import GIB
from overspan.tui.demo.people import ACCOUNTS, make_life, write_script
from overspan.tui.demo.records import JobWish, TaskWish

HOUR, DAY, WEEK = 3600, 86_400, 604_800


@dataclass
class DemoSchedule:
    """A schedule: due every `period` seconds, `offset` seconds into it."""

    id: int
    name: str
    user: str
    place: tuple[str, str]
    text: str
    period: int
    offset: int
    gpus: int = 0
    paused: bool = False
    source: str = "job_file"
    runs: int = 0
    last_job: int | None = None
    last_run_at: float | None = None

    def pause(self, paused: bool) -> None:
        """Make no more runs, or go on."""
        self.paused = paused

    def find_next(self, now: float) -> float | None:
        """When it is due next; None while it is paused."""
        if self.paused:
            return None
        return (now - self.offset) // self.period * self.period + self.period + self.offset

    def make_wish(self) -> JobWish:
        """What it submits."""
        task = TaskWish("batch", 1, 4, 16 * GIB, self.gpus, True, "data", (make_life(900),))
        wish = JobWish(self.name, self.user, *self.place, (task,), 3600, account=ACCOUNTS[self.user], priority=3000)
        return write_script(wish)

    def describe(self, now: float, last_state: str) -> dict[str, Any]:
        """The document of a schedule."""
        return {
            "id": self.id,
            "user": self.user,
            "name": self.name,
            "cluster": self.place[0],
            "source": self.source,
            "lines": None if self.source == "job_file" else [3, 3],
            "file": f"{self.name}.sh" if self.source == "job_file" else "",
            "directory": f"/home/{self.user}",
            "schedule": self.text,
            "timezone": "UTC",
            "missed": "skip",
            "overlap": "skip",
            "paused": self.paused,
            "created_at": now - 40 * DAY,
            "next_due": self.find_next(now),
            "last_run_at": self.last_run_at,
            "last_job": self.last_job,
            "last_state": last_state,
            "runs": self.runs,
            "missed_runs": 0,
            "skipped_runs": 2 if self.id == 2 else 0,
            "refused_runs": 0,
            "owed_runs": 0,
            "message": "",
            "message_at": None,
        }


def make_schedules() -> list[DemoSchedule]:
    """All schedules."""
    leo, cpu, local = ("leo", "gpu"), ("leo", "cpu"), ("local", "local")
    return [
        DemoSchedule(1, "nightly-eval", "ana", leo, "30 2 * * *", DAY, 2 * HOUR + 1800, 1, runs=39),
        DemoSchedule(2, "sync-datasets", "jonas", cpu, "0 * * * *", HOUR, 0, runs=812),
        DemoSchedule(3, "weekly-report", "fatima", cpu, "0 6 * * 1", WEEK, 4 * DAY + 6 * HOUR, runs=5),
        DemoSchedule(4, "backup-notes", "ana", local, "15 12 * * *", DAY, 12 * HOUR + 900, source="crontab", runs=37),
        DemoSchedule(5, "retrain-reward", "ben", leo, "0 4 1 * *", 30 * DAY, 4 * HOUR, 2, paused=True, runs=1),
    ]
