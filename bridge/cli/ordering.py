"""The order of squeue's rows: -S and its default, `P,t,-p`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from overspan.bridge.cli.columns import seconds_used
from overspan.bridge.client.records import JobRow
from overspan.bridge.model.errors import InvalidRequest

DEFAULT_SORT = "P,t,-p"

# Slurm's own numbers of the states: its order puts pending rows first.
STATE_NUMBERS = {
    "PENDING": 0,
    "CONFIGURING": 1,
    "RUNNING": 1,
    "SUSPENDED": 2,
    "COMPLETING": 2.5,
    "COMPLETED": 3,
    "CANCELLED": 4,
    "FAILED": 5,
    "TIMEOUT": 6,
    "NODE_FAIL": 7,
    "PREEMPTED": 8,
    "BOOT_FAIL": 9,
    "DEADLINE": 10,
    "OUT_OF_MEMORY": 11,
}

_Key = Callable[[JobRow, float], Any]

KEYS: dict[str, _Key] = {
    "i": lambda row, now: (row.id, row.task_offset or 0),
    "A": lambda row, now: row.raw_id,
    "j": lambda row, now: row.name,
    "P": lambda row, now: row.partition,
    "u": lambda row, now: row.user,
    "U": lambda row, now: row.uid or 0,
    "t": lambda row, now: STATE_NUMBERS.get(row.state, 99),
    "p": lambda row, now: row.priority or 0,
    "D": lambda row, now: row.nodes,
    "C": lambda row, now: row.cpus,
    "m": lambda row, now: row.memory,
    "M": seconds_used,
    "L": lambda row, now: float("inf") if row.time_limit is None else row.time_limit - seconds_used(row, now),
    "l": lambda row, now: float("inf") if row.time_limit is None else row.time_limit,
    "S": lambda row, now: row.started_at or float("inf"),
    "e": lambda row, now: row.ended_at or float("inf"),
    "V": lambda row, now: row.submitted_at or 0,
    "N": lambda row, now: row.node_list,
    "a": lambda row, now: row.account,
    "q": lambda row, now: row.qos,
    "r": lambda row, now: row.reason,
    "k": lambda row, now: row.comment,
    "Z": lambda row, now: row.work_dir,
    "o": lambda row, now: row.command,
}
KEYS.update({"T": KEYS["t"], "Q": KEYS["p"], "F": KEYS["A"], "R": KEYS["N"]})


def sort_rows(rows: list[JobRow], spec: str, now: float) -> list[JobRow]:
    """Sort by letters of -o, each with an optional `-` (falling) or `+` before it; ids break ties.

    Raises InvalidRequest for a letter that cannot be sorted by.
    """
    ordered = sorted(rows, key=lambda row: (row.id, row.task_offset or 0))
    for part in reversed([part for part in spec.replace(" ", "").split(",") if part]):
        letter = part.lstrip("+-")
        key = KEYS.get(letter)
        if key is None:
            raise InvalidRequest(f"Invalid sort specification: {part}")
        # Stable sorts from the last key to the first, so that each can have its own direction.
        ordered.sort(key=lambda row, key=key: key(row, now), reverse=part.startswith("-"))  # type: ignore[misc]
    return ordered
