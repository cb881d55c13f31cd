"""Asks clusters for their nodes on behalf of elastic tasks: single-flight, and nobody waits for the answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from overspan.adapters.contract import Node
from overspan.bridge.controller.core.clusters import Cluster
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.model.errors import OverspanError, Unreachable

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0
"""Least time between the beginnings of two queries of one cluster."""
ANSWER_SECONDS = 60.0
"""How long a query may take; one that hangs for ever would be the last."""


@dataclass
class NodeQuery:
    """The last query of a cluster, and the last answer that there was."""

    begun_at: float = -INTERVAL_SECONDS
    running: bool = False
    callers: dict[int, Callable[[], None]] = field(default_factory=dict)
    """What to call when it has ended, by group."""
    number: int = 0
    """The number of the query that was answered last, and when it began: the answer may lack what came after that."""
    asked_at: float = 0.0
    nodes: tuple[Node, ...] = ()
    trouble: str = ""
    """Why the last query failed, where the cluster is not just away; empty after an answer."""


class NodeQueries:
    """At most one query a cluster at a time. An answer is kept until the next one."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.count = 0
        """How many queries have begun; each has its number."""
        self._queries: dict[str, NodeQuery] = {}

    def ask(self, cluster: Cluster, group: int, call: Callable[[], None]) -> NodeQuery:
        """Begin a query, or share the one under way, and give what is known so far; calls when it has ended.

        Begins none within `INTERVAL_SECONDS` of the last one.
        """
        query = self._queries.setdefault(cluster.name, NodeQuery())
        now = self._recorder.clock()
        if query.running:
            query.callers[group] = call
        elif abs(now - query.begun_at) >= INTERVAL_SECONDS:
            self.count += 1
            query.begun_at, query.running, query.callers = now, True, {group: call}
            self._recorder.spawn(self._run(cluster, query, self.count), f"the nodes of {cluster.name}")
        return query

    async def _run(self, cluster: Cluster, query: NodeQuery, number: int) -> None:
        trouble = ""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                nodes = tuple(await cluster.adapter.nodes())
            query.number, query.asked_at, query.nodes = number, query.begun_at, nodes
        except Unreachable as error:
            log.info("the nodes of %s: %s", cluster.name, error.message)
        except TimeoutError:
            trouble = f"no answer within {ANSWER_SECONDS:g} s"
        except OverspanError as error:
            trouble = error.message
        finally:
            query.running, query.trouble = False, trouble
        if trouble:
            log.warning("the nodes of %s: %s; asking again", cluster.name, trouble)
        for call in query.callers.values():
            call()
