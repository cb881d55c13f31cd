"""Orders: numbered lines that the daemon appends for a running launch.

The file is the truth and the signal a hint: it is read again on every wake and every second, from where it was left.
Where the disk is full, what ends work comes through a FIFO at once, and in the file, with the same token, when it can.
"""

from __future__ import annotations

import json
from typing import Any

from overspan.bridge.model.events import ORDERS, Event, event_from_document
from overspan.bridge.model.records import NamedTuple

URGENT = "urgent"
"""The FIFO in a host's folder."""


class NumberedOrder(NamedTuple):
    """One line: its number, counting from 1, what is wanted, and the token by which the daemon knows it."""

    seq: int
    event: Event
    token: str = ""


class OrderFile:
    """Reads the orders that were not read before; `heard` are the kinds of events that count."""

    def __init__(self, path: str, heard: tuple[type[Any], ...] = ORDERS) -> None:
        self._path = path
        self._heard = heard
        self._offset = 0

    def read(self) -> list[NumberedOrder]:
        """The new whole lines. A line that is no order of this version is passed over."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        size = data.rfind(b"\n") + 1
        self._offset += size
        orders = (_parse(line) for line in data[:size].splitlines())
        return [order for order in orders if order is not None and isinstance(order.event, self._heard)]


class UrgentOrder(NamedTuple):
    """An order that could not be written: the launch it is for, its token, and what is wanted."""

    run: str
    launch: int
    token: str
    event: Event


def read_urgent(data: bytes) -> list[UrgentOrder]:
    """The orders in what was read from the FIFO `urgent` of a host; each line was written at once, so it is whole."""
    found = []
    for line in data.splitlines():
        try:
            document = json.loads(line)
            event = event_from_document(document["event"])
            found.append(UrgentOrder(str(document["run"]), int(document["launch"]), str(document["token"]), event))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def _parse(line: bytes) -> NumberedOrder | None:
    try:
        document = json.loads(line)
        event = event_from_document(document["event"])
        return NumberedOrder(int(document["seq"]), event, str(document.get("token", "")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
