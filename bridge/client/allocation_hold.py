"""Holds an allocation, in a background thread, for as long as a command lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from overspan.bridge.client.client import Client
from overspan.bridge.model.errors import NotFound, OverspanError

AGAIN_SECONDS = 1.0


class AllocationHold:
    """Holds an allocation in a thread of its own, over daemons that come and go, for as long as this process lives.

    `make` gives a client that starts no daemon. `on_end` is called in that thread when the job is over.
    """

    def __init__(self, make: Callable[[], Client], ref: str) -> None:
        self._make, self._ref = make, ref
        self.on_end: Callable[[], None] = lambda: None
        self.over = False
        """Whether the job is known to be over."""
        self._thread = threading.Thread(target=self._run, name="allocation", daemon=True)

    def start(self) -> None:
        """Begin to hold; the hold ends with this process."""
        self._thread.start()

    def _run(self) -> None:
        while not self.over:
            client = self._make()
            try:
                self.over = client.hold_allocation(self._ref)
            except NotFound:
                self.over = True
            except OverspanError:
                # No daemon runs: the next one waits for the holders of allocations.
                pass
            finally:
                client.close()
            if not self.over:
                time.sleep(AGAIN_SECONDS)
        self.on_end()
