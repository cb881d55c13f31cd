"""Opens the start gates of small groups by exec, up to a second before the kubelet would.

The mark `go` is a file that the kubelet writes when it has next looked at the containers, up to a second after the
annotation (pkg/kubelet, podWorkerLoop). So the adapter writes it into the pods of small groups itself. The annotation
is the record, and comes first: if the exec fails, the kubelet's file opens the gate.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import Executor

from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.manifests.scripts import OPENED, WAKE_FIFO
from overspan.adapters.kubernetes.observation.records import MAIN, PodRecord
from overspan.bridge.model.errors import Denied, OverspanError

_log = logging.getLogger(__name__)

MOST_PODS = 16
"""Pods of the largest group that is opened so; each exec costs its node a process."""
_SECONDS = 5.0
OPEN = f'echo "$1" >{OPENED}; [ ! -p {WAKE_FIFO} ] || echo 1<>{WAKE_FIFO}'
"""The file is written before the wake-up: a pod that wakes too early looks again in time."""


class GateOpener:
    """Opens start gates in the background, in the threads of its caller."""

    def __init__(self, connection: Connection, threads: Executor) -> None:
        self._connection = connection
        self._threads = threads
        self._denied = False
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, pods: Iterable[PodRecord], go: str) -> None:
        """Begin to open the start gates of running pods; pods that do not run yet find the kubelet's file."""
        for pod in pods:
            if pod.started_at is not None and not pod.ended and not self._denied:
                task = asyncio.create_task(self._open(pod, go))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for the exec calls under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _open(self, pod: PodRecord, go: str) -> None:
        place, words = (pod.namespace, pod.name, MAIN), ("/bin/sh", "-c", OPEN, "overspan", go)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._threads, self._connection.exec, *place, words, _SECONDS)
        except Denied as error:
            self._denied = True
            _log.info("start gates are opened by the kubelets alone: %s", error)
        except OverspanError as error:
            _log.debug("pod %s: %s", pod.name, error)
