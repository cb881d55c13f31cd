"""Readiness of a task that loses one of its nodes before it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overspan.bridge.model.spec import (
    Backoff,
    Need,
    NeedKind,
    Ready,
    ReadyKind,
    RestartScope,
    RetryPolicy,
    TaskSpec,
)
from overspan.bridge.model.states import State

if TYPE_CHECKING:
    from tests.system.runtime.conftest import Hosts

SERVE = "if [ $OVERSPAN_NODE_INDEX = 1 ] && [ ! -e failed ]; then touch failed; exit 1; fi; exec sleep 600"


def test_a_node_that_starts_again_does_not_end_the_look_at_its_task(hosts: Hosts) -> None:
    server = TaskSpec(
        "server",
        run=SERVE,
        num_nodes=2,
        primary=False,
        ready=Ready(ReadyKind.FILE, "open", period=0.05),
        restart=RestartScope.NODE,
        retry=RetryPolicy(max_restarts_on_errors=3, backoff=Backoff(first=0.05)),
        grace_period=5,
    )
    client = TaskSpec("client", run="exit 0", needs=(Need("server", NeedKind.READY),))
    launched = hosts.add(client, server)
    hosts.start(launched.host)
    launched.until("NodeStarted", "server", 3)
    (hosts.work / "open").touch()
    launched.until("TaskReady", "server")
    assert hosts.finish(launched).state is State.COMPLETED
