"""The worker's exchanges with the daemon, in two threads: one waits for what is new, the other tells what is new here.

Both say how far the worker is, so what is lost on the way is sent again. What the main thread gives and takes is
under one lock.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Callable, Optional

from overspan.bridge.runtime.pool.connection import Dismissed, WorkerAddress, WorkerConnection

WAIT_SECONDS = 20.0
"""How long the daemon may keep a request that asks for news."""
GATHER_SECONDS = 0.02
GROUPS = "groups"
"""The feature of a worker that gives members of groups their names."""
FEATURES = (GROUPS,)
"""What this worker can do that those of earlier versions cannot."""
END_LINE = b'{"end":true}\n'
"""The last line of a journal."""
MOST_BYTES = 2 << 20
"""Bytes of journals in one message: the daemon reads 8 MiB of JSON, and a worker may have been away for long."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0

Growth = tuple[int, bytes]
"""What a journal has got, and where that begins in it."""
Held = Mapping[str, tuple[int, int]]
"""For each launch how many bytes of its journal were sent, and how many orders are here."""


class Exchanges:
    """What goes to and fro. `wake` tells the main thread that there is something to take."""

    def __init__(self, address: WorkerAddress, worker: Mapping[str, Any], wake: Callable[[], None]) -> None:
        self._address = address
        self._worker = {**worker, "features": list(FEATURES)}
        self._wake = wake
        self._lock = threading.Condition()
        self._held: Held = {}
        self._journals: dict[str, Growth] = {}
        self._answers: list[dict[str, Any]] = []
        self._taken = 0
        self._given = 0
        self._stopped = False
        self.dismissed = ""
        """Why the daemon wants no more of this worker; empty while it does."""

    def start(self) -> None:
        """Begin."""
        for name, work in (("ask", self._ask), ("tell", self._tell)):
            threading.Thread(target=work, args=(self._address.open(name),), daemon=True).start()

    def stop(self) -> None:
        """Say nothing any more, from now on."""
        with self._lock:
            self._stopped = True
            self._journals = {}

    def say_mark(self, mark: str) -> None:
        """Say what was read in the daemon's folder."""
        with self._lock:
            self._worker["mark"] = mark

    def take(self) -> list[dict[str, Any]]:
        """The answers since the last call."""
        with self._lock:
            answers, self._answers = self._answers, []
            return answers

    def give(self, held: Held, journals: Mapping[str, tuple[int, bytes]]) -> None:
        """How far the worker is now, and what its journals have got; the last answers were carried out."""
        with self._lock:
            self._held = dict(held)
            self._taken = self._given
            if not self._stopped:
                for handle, (offset, data) in journals.items():
                    self._journals[handle] = _join(self._journals.get(handle), (offset, data))
            self._lock.notify_all()

    def _ask(self, connection: WorkerConnection) -> None:
        """Ask for news, again and again."""
        pause, wait = _FIRST_PAUSE, 0.0
        while not self._over:
            with self._lock:
                message = self._make_message({}, wait)
            try:
                answer = connection.exchange(message)
            except Dismissed as error:
                self._end(str(error))
                return
            except (OSError, ValueError):
                self._rest(pause)
                pause, wait = min(pause * 2, _LONGEST_PAUSE), 0.0
                continue
            # A question that does not wait is told too what of the journals is missing there; one after each silence.
            news = any(answer[part] for part in ("leases", "orders", "places", "drop"))
            pause, wait = _FIRST_PAUSE, WAIT_SECONDS if news or not wait else 0.0
            self._receive(answer)

    def _tell(self, connection: WorkerConnection) -> None:
        """Tell what the journals have got, as soon as they have it."""
        pause = _FIRST_PAUSE
        while True:
            with self._lock:
                while not self._journals and not self._over:
                    self._lock.wait()
                # What follows soon is told along; the end of a launch, which makes room for another, at once.
                self._lock.wait_for(lambda: self._over or self._has_end(), timeout=GATHER_SECONDS)
                if self._over:
                    return
                journals, self._journals = split_journals(self._journals, MOST_BYTES)
                message = self._make_message(journals, 0.0)
            try:
                answer = connection.exchange(message)
            except Dismissed as error:
                self._end(str(error))
                return
            except (OSError, ValueError):
                self._put_back(journals)
                self._rest(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            self._receive(answer)

    def _put_back(self, journals: Mapping[str, Growth]) -> None:
        """Tell again what may not have been heard, before what has come since."""
        with self._lock:
            for handle, growth in journals.items():
                later = self._journals.get(handle)
                self._journals[handle] = growth if later is None else _join(growth, later)

    def _has_end(self) -> bool:
        return any(data.endswith(END_LINE) for _, data in self._journals.values())

    def _make_message(self, journals: Mapping[str, tuple[int, bytes]], wait: float) -> dict[str, Any]:
        texts = {handle: {"offset": offset, "text": data.decode()} for handle, (offset, data) in journals.items()}
        held = {handle: {"sent": sent, "orders": orders} for handle, (sent, orders) in self._held.items()}
        return {**self._worker, "held": held, "journals": texts, "wait": wait}

    def _receive(self, answer: dict[str, Any]) -> None:
        """Hand an answer to the main thread, and wait until it was carried out."""
        with self._lock:
            self._answers.append(answer)
            self._given += 1
            number = self._given
        self._wake()
        with self._lock:
            self._lock.wait_for(lambda: self._taken >= number or self._over, timeout=_LONGEST_PAUSE)

    def _rest(self, seconds: float) -> None:
        with self._lock:
            self._lock.wait_for(lambda: self._over, timeout=seconds)

    def _end(self, reason: str) -> None:
        with self._lock:
            self.dismissed = reason or "dismissed"
            self._lock.notify_all()
        self._wake()

    @property
    def _over(self) -> bool:
        return self._stopped or bool(self.dismissed)


def _join(known: Optional[Growth], more: Growth) -> Growth:
    """Two growths of one journal as one; the later alone where they do not meet."""
    if known is None or known[0] + len(known[1]) != more[0]:
        return more
    return known[0], known[1] + more[1]


def split_journals(journals: Mapping[str, Growth], most: int) -> tuple[dict[str, Growth], dict[str, Growth]]:
    """Whole lines of journals, up to so many bytes but at least one line, and what is left for later messages."""
    taken: dict[str, Growth] = {}
    left: dict[str, Growth] = {}
    for handle, (offset, data) in journals.items():
        size = len(data) if len(data) <= most else data.rfind(b"\n", 0, max(most, 0)) + 1
        if not size and not taken:
            size = data.find(b"\n") + 1 or len(data)
        if size:
            taken[handle] = offset, data[:size]
            most -= size
        if size < len(data):
            left[handle] = offset + size, data[size:]
            # What follows is told behind it.
            most = 0
    return taken, left
