"""Looks at data that is on its way, where a node does not answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tests.unit.adapters.kubernetes.pods import TOKEN, T, ended, group

from overspan.adapters.kubernetes.launches.flushes import Flushes
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.launch_summaries import TaskSummary
from overspan.adapters.kubernetes.observation.projection import take_snapshot
from overspan.bridge.runtime.data.requests import FlushProgress

SENDING = ended(phase="Running")


class Node:
    """Answers when it is let go."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = asyncio.Event()

    def read(self, path: str, query: dict[str, object]) -> bytes:
        raise NotImplementedError

    async def run(self, *words: Any) -> bytes:
        self.asked += 1
        await self.answers.wait()
        return b'{"left": 7, "trouble": ""}\n'


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_node_that_does_not_answer_holds_up_nobody_and_is_asked_once() -> None:
    watched = WatchedLaunch(f"lab/{TOKEN}", group(TaskSummary("trainer", 1, 0, flush=600)), "uid", "lab")
    cursor = ""
    for _ in range(3):
        report = watched.project(take_snapshot([SENDING]), cursor, T + 100)
        cursor = report.cursor if report is not None else cursor

    async def story() -> None:
        node = Node()
        launches = SimpleNamespace(
            pods=lambda watched: [SENDING],
            snapshot=lambda watched: take_snapshot([SENDING]),
            changed=asyncio.Event(),
        )
        flushes = Flushes(cast("Any", node), cast("Any", launches))
        for _ in range(3):
            flushes.begin([watched])
            await settle()
        assert node.asked == 1 and not watched.sending
        node.answers.set()
        await asyncio.wait_for(launches.changed.wait(), 60)
        assert watched.sending == {SENDING.uid: FlushProgress(7, "")}
        node.answers.clear()
        flushes.begin([watched])
        await settle()
        assert node.asked == 2
        await asyncio.wait_for(flushes.close(), 60)

    asyncio.run(story())
