"""Files of this machine that are kept from the logs of pods: while these run, and before their end is told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.pods import ended, running

from overspan.adapters.kubernetes.logs import output_sync
from overspan.adapters.kubernetes.logs.output_files import ScriptFiles
from overspan.adapters.kubernetes.logs.output_sync import HOLD_SECONDS, OutputSync
from overspan.adapters.kubernetes.logs.outputs import Outputs
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.errors import Unreachable

LIVE = running("batch", 0)
OVER = ended("batch", 0, code=0)
FILES = ScriptFiles("batch", Outputs(kept="/home/ada/slurm-8.out"))
STORY: Any = SimpleNamespace(token=LIVE.token, dirty=False)


class LaunchFacts:
    """A launch with one pod, and logs that are read when the test says so."""

    def __init__(self, files: ScriptFiles | None = FILES) -> None:
        self.present = [LIVE]
        self.read: list[bool] = []
        self.trouble: Unreachable | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        STORY.dirty = False
        launches: Any = SimpleNamespace(
            pods=lambda story: self.present, watched={LIVE.token: STORY}, changed=asyncio.Event()
        )
        found: Any = SimpleNamespace(find=lambda token: files)
        logs: Any = SimpleNamespace(capture=self._capture)
        self.keeper = OutputSync(launches, logs, found)

    async def _capture(self, pod: PodRecord) -> bool:
        self.read.append(pod.ended)
        await self.gate.wait()
        if self.trouble is not None:
            raise self.trouble
        return pod.ended

    async def settle(self) -> None:
        while self.keeper.busy:
            await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(output_sync, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_a_running_pod_s_log_is_read_once_a_second(clock: list[float]) -> None:
    async def story() -> None:
        scene = LaunchFacts()
        for _ in range(3):
            scene.keeper.look([STORY])
            await scene.settle()
        assert scene.read == [False]
        clock[0] += 1.0
        scene.keeper.look([STORY])
        await scene.settle()
        assert scene.read == [False, False]

    asyncio.run(story())


def test_many_logs_are_read_less_often(clock: list[float]) -> None:
    async def story() -> None:
        scene = LaunchFacts()
        scene.present = [LIVE._replace(uid=str(number)) for number in range(100)]
        for _ in range(20):
            scene.keeper.look([STORY])
            await scene.settle()
            clock[0] += 1.0
        assert len(scene.read) == 200

    asyncio.run(story())


def test_the_end_is_told_when_the_last_line_is_in_the_file(clock: list[float]) -> None:
    async def story() -> None:
        scene = LaunchFacts()
        scene.gate.clear()
        scene.keeper.look([STORY])
        await asyncio.sleep(0)
        # It ends while its log is read: what that read began with is not all.
        scene.present = [OVER]
        assert scene.keeper.holds(STORY) and scene.read == [False]
        scene.gate.set()
        await scene.settle()
        assert scene.read == [False, True] and STORY.dirty
        assert not scene.keeper.holds(STORY)

    asyncio.run(story())


def test_an_end_waits_for_a_silent_node_for_a_while(clock: list[float]) -> None:
    async def story() -> None:
        scene = LaunchFacts()
        scene.present, scene.trouble = [OVER], Unreachable("the node does not answer")
        assert scene.keeper.holds(STORY)
        await scene.settle()
        # It is asked again at the next look, not at each question.
        assert scene.keeper.holds(STORY) and scene.read == [True]
        clock[0] += HOLD_SECONDS
        assert not scene.keeper.holds(STORY)

    asyncio.run(story())


@pytest.mark.parametrize("files", [None, ScriptFiles("batch", Outputs(output="/home/ada/slurm-8.out"))])
def test_nothing_is_read_or_held_for_files_that_pods_write(files: ScriptFiles | None) -> None:
    async def story() -> None:
        scene = LaunchFacts(files)
        scene.present = [OVER]
        scene.keeper.look([STORY])
        assert not scene.keeper.holds(STORY) and scene.read == []

    asyncio.run(story())


def test_a_pod_that_may_not_start_yet_is_no_end() -> None:
    async def story() -> None:
        scene = LaunchFacts()
        scene.present = [OVER._replace(go="")]
        assert not scene.keeper.holds(STORY) and scene.read == []

    asyncio.run(story())
