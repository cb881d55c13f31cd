"""Ends pods whose jobs no longer wait for their data: a kubelet never shortens a grace period that has begun."""

from __future__ import annotations

import asyncio
import logging

from overspan.adapters.kubernetes.api.calls import Calls
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.manifests.storage import ABANDON_WORDS
from overspan.adapters.kubernetes.observation.launch_summaries import MIN_GRACE
from overspan.adapters.kubernetes.observation.records import MOVER, PodRecord
from overspan.bridge.model.errors import OverspanError

_log = logging.getLogger(__name__)

_SECONDS = 5.0


async def give_up_data(connection: Connection, calls: Calls, pod: PodRecord) -> None:
    """End a pod without the grace of its data, and have its mover give up. Raises Unreachable.

    A mover that cannot be told keeps its pod until the data is sent, or its time is over.
    """
    await calls.delete_pod(pod, MIN_GRACE)
    place = pod.namespace, pod.name, MOVER
    try:
        code, said = await asyncio.to_thread(connection.exec, *place, ABANDON_WORDS, _SECONDS)
    except OverspanError as error:
        _log.info("pod %s cannot be told that its data is given up: %s", pod.name, error)
        return
    if code:
        _log.info("pod %s cannot be told that its data is given up: %s", pod.name, said.strip()[:200])
