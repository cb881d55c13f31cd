"""What is told of a server that does not answer, and of one that answers again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from overspan.adapters.contract import Report
from overspan.adapters.kubernetes.observation.following import LaunchObserver
from overspan.adapters.kubernetes.observation.projection import PodSnapshot
from overspan.bridge.model.errors import OverspanError, Unreachable


class StillLaunches(SimpleNamespace):
    """Launches of which there is never any news."""

    def __init__(self) -> None:
        super().__init__(watched={}, fresh=True, away=None, changed=asyncio.Event())

    def trouble(self) -> OverspanError | None:
        found: OverspanError | None = self.away
        return found

    async def find_all(self, handles: Any) -> None:
        pass

    def take_news(self) -> set[str]:
        return set()


def test_the_first_answer_after_a_trouble_is_told_although_nothing_has_happened() -> None:
    async def story() -> None:
        launches: Any = StillLaunches()
        quiet: Any = SimpleNamespace(follow_ends_only_of=lambda tokens: None)
        follower = LaunchObserver(launches, quiet, quiet)
        launches.away = Unreachable("no server")
        for _ in range(2):
            with pytest.raises(Unreachable, match="no server"):
                await follower.observe({}, 3600.0)
        launches.away = None
        async with asyncio.timeout(60):
            assert (await follower.observe({}, 3600.0)).reports == ()
        assert not follower._away

    asyncio.run(story())


@pytest.mark.parametrize("held", [False, True])
def test_an_end_that_is_held_back_is_not_told_yet(held: bool) -> None:
    handle = "lab/4f2c9d0a1b3e-7-0"
    told = Report(handle, (), "1")
    summary = SimpleNamespace(tasks=())
    cursor = SimpleNamespace(granted=True)
    story: Any = SimpleNamespace(token=handle[4:], dirty=True, timed=False, since="", summary=summary, cursor=cursor)
    story.missing, story.project = {}, lambda snapshot, since, now: told

    async def scene() -> None:
        launches: Any = StillLaunches()
        launches.watched = {story.token: story}
        launches.watch = launches.snapshot = lambda of: PodSnapshot({}, {})
        quiet: Any = SimpleNamespace(
            follow_ends_only_of=lambda tokens: None, follow_ends=lambda *given: None, follow_to_end=lambda pods: None
        )
        follower = LaunchObserver(launches, quiet, quiet, lambda asked: held)
        assert (await follower.observe({handle: ""}, 0.0)).reports == (() if held else (told,))
        # It is looked at again.
        assert story.dirty

    asyncio.run(scene())
