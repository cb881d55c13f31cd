"""How far the data of ended programs is: the last line of what their pods' movers have logged."""

from __future__ import annotations

import json

from overspan.adapters.contract import MOST_WORDS
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.observation.records import MOVER, PodRecord
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.names import one_line
from overspan.bridge.runtime.data.requests import FlushProgress


async def ask_progress(connection: Connection, pod: PodRecord) -> FlushProgress | None:
    """How far the data of a pod is; None where nothing is told."""
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log"
    try:
        return read_progress(await connection.run(connection.read, path, {"container": MOVER, "tailLines": 1}))
    except OverspanError:
        return None


def read_progress(line: bytes) -> FlushProgress | None:
    """The figures of a line; None for any other line."""
    try:
        told = json.loads(line)
        return FlushProgress(int(told["left"]), one_line(str(told["trouble"]), MOST_WORDS))
    except (ValueError, KeyError, TypeError):
        return None
