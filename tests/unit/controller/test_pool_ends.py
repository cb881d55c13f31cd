"""A pool that is deleted goes away, whatever comes in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.controller.fakes import end, turn, until
from tests.unit.controller.pool_scenes import JOB, PoolScene, ScenePlayer, make_player

from overspan.bridge.controller.core.recording import RETRY_SECONDS
from overspan.bridge.model.errors import StoreFailed


@pytest.fixture
def play_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScenePlayer:
    return make_player(tmp_path, monkeypatch)


async def see_it_go(pool: PoolScene) -> None:
    """The worker ends when it is told to, and then there is no pool any more."""
    for _ in range(4):
        await pool.pass_time(2 + RETRY_SECONDS)
    if pool.bench.state(1) != "CANCELLED":
        assert [type(order.event).__name__ for order in pool.cluster.orders] == ["Cancel"]
        pool.cluster.tell("1.0", pool.cluster.orders[0].event, *end(pool.bench.job(1), pool.bench.clock.now))
        await until(lambda: pool.bench.job(1).over)
    await pool.pass_time(2)
    assert pool.bench.controller.pools.describe() == []


def test_a_daemon_that_dies_in_the_midst_of_a_delete(play_pool: ScenePlayer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(pool: PoolScene) -> None:
        await pool.apply()
        await pool.see_start()
        job = await pool.send()
        recorder = pool.bench.controller.recorder

        async def die(*words: Any, **more: Any) -> None:
            raise StoreFailed("the disk is full")

        monkeypatch.setattr(recorder, "change", die)
        with pytest.raises(StoreFailed):
            await pool.bench.controller.pools.delete("p", "cancel")
        await pool.bench.kill()
        await pool.bench.start()
        await turn(200)
        await pool.pass_time(1)
        assert pool.bench.state(job) == "CANCELLED"
        await see_it_go(pool)

    play_pool(scene)


def test_a_job_that_comes_while_a_pool_is_deleted(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        await pool.apply()
        await pool.see_start()
        first = await pool.send()
        await pool.bench.controller.pools.delete("p", "cancel")
        late = await pool.bench.submit(JOB, kind="job_file")
        await pool.pass_time(3)
        assert [pool.bench.state(job) for job in (first, late)] == ["CANCELLED", "CANCELLED"]
        await see_it_go(pool)

    play_pool(scene)


def test_an_error_of_one_look_does_not_end_all(play_pool: ScenePlayer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(pool: PoolScene) -> None:
        await pool.apply()
        await pool.see_start()
        pools, troubles = pool.bench.controller.pools, [OSError("no room"), OSError("no room")]
        declare = pools._declare

        def fail(entry: Any) -> None:
            if troubles:
                raise troubles.pop()
            declare(entry)

        monkeypatch.setattr(pools, "_declare", fail)
        await pools.delete("p", "")
        await see_it_go(pool)

    play_pool(scene)
