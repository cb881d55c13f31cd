"""A job of a pool is stored with its lease: one transaction, or nothing of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.unit.controller.fakes import turn
from tests.unit.controller.pool_scenes import JOB, PoolScene, ScenePlayer, make_player

from overspan.adapters.abilities import WorkerMessage
from overspan.bridge.model.errors import StoreFailed


@pytest.fixture
def play_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScenePlayer:
    return make_player(tmp_path, monkeypatch)


async def _serve(pool: PoolScene) -> None:
    """A pool whose worker has three CPUs left, and has a job: its place is stored."""
    pool.cluster.end = math.inf
    await pool.apply()
    await pool.see_start()
    await pool.meet()
    await pool.send()


async def _ask(pool: PoolScene) -> list[str]:
    """The leases that the worker is handed beside the first job's."""
    answer = await pool.bench.controller.pools.exchange(WorkerMessage(1, "a", {}, {}))
    return [handle for handle in answer["leases"] if handle != "2.0"]


def test_a_job_is_stored_with_its_lease(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        await _serve(pool)
        repository = pool.bench.repository
        before = repository.transactions
        job = await pool.bench.submit(JOB, kind="job_file")
        assert repository.transactions == before + 1 and not repository.rows
        stored = repository.jobs[job]
        assert stored.job.granted_at is not None and stored.handle == f"0:{job}.0" and stored.cursor.startswith("w:1.a")
        assert [line.cause for line in repository.lines if line.job_id == job] == ["Submitted", "Granted"]
        await turn()
        assert await _ask(pool) == [f"{job}.0"]
        assert repository.transactions == before + 1

    play_pool(scene)


def test_the_lease_of_a_job_that_could_not_be_stored_is_nobodys(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        await _serve(pool)
        pool.bench.repository.broken = True
        for _ in range(4):
            with pytest.raises(StoreFailed):
                await pool.bench.submit(JOB, kind="job_file")
        await turn()
        assert await _ask(pool) == []
        pool.bench.repository.broken = False
        # All that was free of the worker still is.
        job = await pool.bench.submit(JOB.replace("cpus: 1", "cpus: 3"), kind="job_file")
        await turn()
        assert await _ask(pool) == [f"{job}.0"]

    play_pool(scene)


def test_a_release_leaves_what_is_being_stored(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        await _serve(pool)
        controller, insert = pool.bench.controller, pool.bench.repository.insert

        async def release_first(*arguments: object) -> None:
            cluster = controller.clusters.get("p")
            await cluster.adapter.release("", *controller.releases.wanted())  # type: ignore[attr-defined]
            await insert(*arguments)  # type: ignore[arg-type]

        pool.bench.repository.insert = release_first  # type: ignore[method-assign, assignment]
        job = await pool.bench.submit(JOB, kind="job_file")
        await turn()
        assert await _ask(pool) == [f"{job}.0"]
        assert not controller.recorder.registry.storing

    play_pool(scene)
