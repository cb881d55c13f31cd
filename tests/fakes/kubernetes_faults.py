"""Misbehaviour by script: what a fake API server does to the next requests that match."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """What happens to a request."""

    REFUSE = "refuse"
    """It is answered with a status."""
    DROP = "drop"
    """The connection is closed; nothing was done."""
    LOSE = "lose"
    """It is carried out, and the connection closed before the answer."""
    HOLD = "hold"
    """It waits until it is let go, then is carried out."""


@dataclass
class Fault:
    """One misbehaviour, for `times` requests whose method and path match."""

    kind: Kind
    method: str = ""
    path: str = ""
    times: int = 1
    status: int = 500
    reason: str = ""
    message: str = ""
    free: threading.Event = field(default_factory=threading.Event)
    """Set it to let held requests go."""
    met: threading.Event = field(default_factory=threading.Event)
    """Set when a request met it."""


class Faults:
    """The misbehaviours that are to come, oldest first."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._held: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> Fault:
        """Script one more."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def take(self, method: str, path: str) -> Fault | None:
        """The misbehaviour that this request meets; it counts as met."""
        with self._lock:
            for fault in self._faults:
                if fault.method in ("", method) and re.search(fault.path, path):
                    fault.times -= 1
                    if fault.times <= 0:
                        self._faults.remove(fault)
                    if fault.kind is Kind.HOLD:
                        self._held.append(fault)
                    fault.met.set()
                    return fault
        return None

    def clear(self) -> None:
        """Nothing more is to come; what is held goes on."""
        with self._lock:
            for fault in (*self._faults, *self._held):
                fault.free.set()
            self._faults.clear()
            self._held.clear()
