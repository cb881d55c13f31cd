"""The key `cron` of a job file: the five fields of crontab(5), optionally with a time zone and policies."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from overspan.bridge.model.schedule import Missed, Overlap, Schedule, parse_cron
from overspan.bridge.readers.field_types import FieldType, Record, TableKey, by_form, checked, choice
from overspan.bridge.validation.diagnostics import Diagnostics
from overspan.bridge.validation.yaml_nodes import Node

_TEXT = {"type": "string"}


def find_zone(name: str) -> ZoneInfo:
    """The time zone of that name. Raises ValueError."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"there is no time zone {name[:64]!r}; write a name such as Europe/Berlin or UTC") from None


def parse_times(value: Any) -> str:
    """Check the times of a schedule and give them back. Raises ValueError."""
    parse_cron(str(value))
    return str(value)


def _parse_zone(value: Any) -> str:
    return find_zone(str(value)).key


_RECORD = Record(
    "cron",
    {
        "schedule": TableKey(
            checked(parse_times, _TEXT), "Five fields as in crontab(5), or a word such as @daily.", required=True
        ),
        "timezone": TableKey(checked(_parse_zone, _TEXT), "Time zone of the times; without it the submitter's."),
        "missed": TableKey(choice(Missed), "Runs that were due while no daemon was there: skip, once or all."),
        "overlap": TableKey(choice(Overlap), "A run that is due while the former one lives: allow, skip or replace."),
    },
)


def cron() -> FieldType:
    """A schedule."""

    def read(node: Node, found: Diagnostics) -> Schedule:
        values = dict(_RECORD.read(node, found))
        return Schedule(values.pop("schedule", ""), **values)

    return by_form(
        scalar=checked(lambda value: Schedule(parse_times(value)), _TEXT), table=FieldType(read, _RECORD.schema())
    )
