"""The times of a schedule: APScheduler gives times of the wall clock, and here each becomes one instant, two or none.

Where the clock is put forward, a time of a fixed hour that does not exist is taken as long after the change as it
is after the change's beginning (02:30 becomes 03:30), and one of every hour (`*`) is left out. Where the clock is put
back, a fixed hour comes once, the first time, and every hour comes both times. So no run is lost or doubled.
"""

from __future__ import annotations

import datetime
import heapq
from collections.abc import Iterator

from apscheduler.triggers.cron import CronTrigger

from overspan.bridge.model.schedule import CronFields, Schedule, parse_cron
from overspan.bridge.readers.schedule_fields import find_zone

UTC = datetime.UTC
_SHIFT = 3 * 3600.0
"""Seconds by which a clock is put forward or back at most, for the order of the times around a change."""
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def local_zone(wished: str = "") -> str:
    """The name of the zone that TZ says, else of this machine's; UTC where that has no name."""
    import tzlocal

    for name in (wished.removeprefix(":"), tzlocal.get_localzone_name() or ""):
        try:
            if name and find_zone(name):
                return name
        except ValueError:
            continue
    return "UTC"


class Recurrence:
    """The instants of one schedule, in seconds since the epoch."""

    def __init__(self, schedule: Schedule) -> None:
        fields = parse_cron(schedule.text)
        self.zone = find_zone(schedule.timezone or "UTC")
        self.any_hour = fields.any_hour
        self._triggers = [_trigger(fields, days, weekdays) for days, weekdays in _day_rules(fields)]

    def after(self, at: float) -> float | None:
        """The first instant later than that; None when there is none before the year 9999."""
        wall = next(self._walls(self._wall(at) + datetime.timedelta(microseconds=1)), None)
        instants = [] if wall is None else self._instants(wall)
        if len(instants) == 1 and self._offset(at - _SHIFT) == self._offset(instants[0] + _SHIFT):
            return instants[0]
        return next(self.follow(at), None)

    def follow(self, at: float) -> Iterator[float]:
        """The instants later than that, in order."""
        # Walls near a change of the clock are out of order, so an instant waits until none can come before it.
        waiting: list[float] = []
        last = at
        for wall in self._walls(self._wall(at - _SHIFT)):
            floor = wall.timestamp() - self._offset(wall.timestamp()) - _SHIFT
            while waiting and waiting[0] < floor:
                instant = heapq.heappop(waiting)
                if instant > last:
                    last = instant
                    yield instant
            for instant in self._instants(wall):
                if instant > at:
                    heapq.heappush(waiting, instant)
        while waiting:
            instant = heapq.heappop(waiting)
            if instant > last:
                last = instant
                yield instant

    def _walls(self, start: datetime.datetime) -> Iterator[datetime.datetime]:
        """The times of the wall clock from there on; they carry UTC, which changes nothing of them."""
        wall: datetime.datetime | None = start
        while wall is not None:
            found = [trigger.get_next_fire_time(None, wall) for trigger in self._triggers]
            wall = min((time for time in found if time is not None), default=None)
            if wall is not None:
                yield wall
                wall += datetime.timedelta(seconds=1)

    def _instants(self, wall: datetime.datetime) -> list[float]:
        first, second = (wall.replace(tzinfo=self.zone, fold=fold).timestamp() for fold in (0, 1))
        if first == second:
            return [first]
        if first < second:
            # The hour comes twice.
            return [first, second] if self.any_hour else [first]
        # The time does not exist; read with the offset before the change it is as long after it.
        return [] if self.any_hour else [first]

    def _offset(self, at: float) -> float:
        moment = datetime.datetime.fromtimestamp(at, self.zone).utcoffset()
        return moment.total_seconds() if moment is not None else 0.0

    def _wall(self, at: float) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(at, self.zone).replace(tzinfo=UTC, fold=0)


def _day_rules(fields: CronFields) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Days of the month and of the week that have to fit together; two rules where either is enough."""
    if fields.any_day or fields.any_weekday:
        return [(fields.days, fields.weekdays)]
    return [(fields.days, tuple(range(7))), (tuple(range(1, 32)), fields.weekdays)]


def _trigger(fields: CronFields, days: tuple[int, ...], weekdays: tuple[int, ...]) -> CronTrigger:
    # Lists of values: APScheduler 3 counts weekdays from Monday, and joins the two kinds of days by `and`.
    return CronTrigger(
        minute=_listed(fields.minutes),
        hour=_listed(fields.hours),
        day=_listed(days),
        month=_listed(fields.months),
        day_of_week=",".join(_DAYS[day] for day in weekdays),
        timezone=UTC,
    )


def _listed(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))
