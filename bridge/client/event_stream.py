"""The stream of changes, read over connections of its own: one that breaks is made again behind the last event."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from overspan.bridge.client.connection import ConnectionClosed
from overspan.bridge.client.messages import Transition, transition_from_document
from overspan.bridge.client.transport import CUT, make_query
from overspan.bridge.model.errors import Unreachable

if TYPE_CHECKING:
    from overspan.bridge.client.client import Client

EVENT_SECONDS = 60.0
"""Silence after which an event stream counts as lost; the daemon sends a blank line every 15 s."""
RECONNECT_SECONDS = 0.1


def read_events(client: Client, since: int | None, follow: bool) -> Iterator[Transition]:
    """Changes of all jobs behind sequence number `since` (None: from now on).

    Raises Unreachable where the stream breaks and is not followed.
    """
    while True:
        with client._sibling() as own:
            target = "/v1/events" + make_query({"since": since, "follow": int(follow)})
            answer = own._request("GET", target, timeout=EVENT_SECONDS)
            try:
                for line in answer.lines():
                    if line.strip():
                        row = json.loads(line)
                        event = transition_from_document(own._clean(row) if own._is_unsafe(line) else row)
                        since = event.seq
                        yield event
                if not follow:
                    return
            except (ConnectionClosed, OSError):
                if not follow:
                    raise Unreachable(CUT) from None
        time.sleep(RECONNECT_SECONDS)
