"""What is told of a cluster that does not answer, and of one that answers again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.adapters.slurm.journal_lines import START
from tests.unit.adapters.slurm.watch_bench import Bench

from overspan.adapters.contract import Observation
from overspan.adapters.slurm.observation.single_flight import SingleFlight
from overspan.adapters.slurm.submission.arrays import Lookup
from overspan.adapters.slurm.users.observation import UserWatches
from overspan.bridge.model.errors import Unreachable

LONG = 3600.0
"""Nobody waits so long for an answer that is there."""
PATIENCE = 60.0


class Site:
    """A cluster with a group that runs, and of which there is nothing new."""

    def __init__(self, folder: Path) -> None:
        self.bench = Bench(folder)
        self.cluster = self.bench.open_cluster()
        self.bench.be("RUNNING")

    async def settle(self) -> None:
        """Let the daemon know all that there is to know."""
        for _ in range(3):
            await self.bench.look()

    async def observe(self, timeout: float) -> Observation:
        async with asyncio.timeout(PATIENCE):
            found = await self.cluster.observe({str(self.bench.handle): self.bench.place}, timeout)
        for report in found.reports:
            self.bench.place = report.cursor
        return found


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_the_first_answer_after_a_trouble_is_told_although_nothing_has_happened(site: Site) -> None:
    async def story() -> None:
        await site.settle()
        site.bench.asked.down = True
        for _ in range(3):
            with pytest.raises(Unreachable, match="no controller"):
                await site.observe(LONG)
        site.bench.asked.down = False
        found = await site.observe(LONG)
        assert (found.reports, found.trouble) == ((), "")
        # Told once: from then on there is silence until there is news.
        assert (await site.observe(0.05)).trouble == ""
        await site.cluster.close()

    play(story())


def test_a_launch_of_a_later_version_is_left_alone_and_said_once(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        handle = str(site.bench.handle)
        for _ in range(2):
            found = await site.cluster.observe({handle: '{"format":9,"parts":[]}', '{"format":9}': ""}, 0.0)
            assert found.reports == ()
        assert len(caplog.messages) == 2 and "has format 9; this version reads 2 and those before" in caplog.messages[0]
        assert not site.bench.asked.asked
        await site.cluster.close()

    play(story())


def test_a_wait_that_ends_without_an_answer_is_no_answer(site: Site) -> None:
    async def story() -> None:
        await site.settle()
        site.bench.asked.down = True
        with pytest.raises(Unreachable):
            await site.observe(LONG)
        # The next question would be later than anybody waits.
        site.bench.watch.next_ask = site.bench.watch.journals.next_read = float("inf")
        for _ in range(2):
            with pytest.raises(Unreachable, match="no controller"):
                await site.observe(0.0)
        await site.cluster.close()

    play(story())


def test_news_of_one_part_do_not_hide_that_the_other_is_silent(site: Site) -> None:
    async def story() -> None:
        await site.settle()
        site.bench.asked.down = True
        with pytest.raises(Unreachable):
            await site.observe(LONG)
        site.bench.write(*START)
        site.bench.watch.journals.next_read = 0.0
        while True:
            try:
                found = await site.observe(LONG)
                break
            except Unreachable:
                continue
        assert found.trouble == "no controller" and [event for report in found.reports for event in report.events]
        await site.cluster.close()

    play(story())


def test_what_only_a_silent_accounting_knows_is_a_gap_and_nothing_else(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def runs(names: Sequence[str]) -> dict[str, list[Any]]:
        if site.bench.asked.down:
            raise Unreachable("Sending PersistInit msg\nConnection refused")
        return {name: [] for name in names}

    async def look(ids: Sequence[int]) -> Lookup:
        return Lookup(record for number, record in site.bench.asked.records.items() if number in ids)

    async def story() -> None:
        await site.settle()
        monkeypatch.setattr(site.bench.asked, "runs", runs)
        monkeypatch.setattr(site.bench.asked, "look", look)
        records = dict(site.bench.asked.records)
        site.bench.asked.down = True
        site.bench.asked.records.clear()
        found = await site.observe(LONG)
        assert "the accounting does not answer (Connection refused)" in found.gap
        assert (found.reports, found.trouble) == ((), "")
        # It is in the queue again: nothing is missing.
        site.bench.asked.records.update(records)
        assert (await site.observe(LONG)).gap == ""
        await site.cluster.close()

    play(story())


def test_what_nobody_asks_for_any_more_is_no_trouble(site: Site) -> None:
    async def story() -> None:
        async def fail() -> None:
            raise Unreachable("no folder")

        turn = SingleFlight(asyncio.Event())
        turn.begin(fail)
        while turn.task is not None:
            await asyncio.sleep(0)
        assert isinstance(turn.take_trouble(), Unreachable) and turn.take_trouble() is None
        assert turn.trouble is not None
        turn.forget()
        assert turn.trouble is None

    play(story())


def test_a_gap_of_one_user_is_told_to_all_as_soon_as_it_is_there_and_when_it_is_gone() -> None:
    async def story() -> None:
        found = {"ada": asyncio.Queue[str](), "bob": asyncio.Queue[str]()}

        async def observe(user: str, since: Mapping[str, str], timeout: float) -> Observation:
            return Observation((), 0.0, gap=await found[user].get())

        watches = UserWatches(observe)
        parts = {"ada": {"s.1": ""}, "bob": {"s.2": ""}}
        for gap in ("no accounting", ""):
            found["bob"].put_nowait(gap)
            async with asyncio.timeout(PATIENCE):
                assert await watches.observe(parts, LONG) == []
            assert watches.gap == gap
        found["bob"].put_nowait("no accounting")
        await watches.observe(parts, LONG)
        # Of whom nothing is watched any more, nothing is missing.
        found["ada"].put_nowait("")
        await watches.observe({"ada": {"s.1": ""}}, 0)
        assert watches.gap == ""
        await watches.close()

    play(story())
