"""Rows of the store that cannot be read: the job is left as it is, whatever others do, and everybody is told."""

from __future__ import annotations

from collections.abc import Collection

from tests.unit.controller.fakes import Bench, FakeCluster, play, start_job, turn, until

from overspan.adapters.abilities import Trace
from overspan.bridge.controller.features.orphans import OrphanRemoval
from overspan.bridge.store.records import Damage

TEXT = "the record of job 1 in the store cannot be read: not what Overspan writes"


class Keeping(FakeCluster):
    """Keeps what it is told is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.handles_wanted: frozenset[str] = frozenset()
        self.tokens_wanted: frozenset[str] = frozenset()

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        self.handles_wanted, self.tokens_wanted = frozenset(handles), frozenset(tokens)

    async def find_traces(self) -> list[Trace]:
        return [Trace(token, handle, token.partition("-")[0], 1, 0, ()) for token, handle in self.handles.items()]

    async def remove_traces(self, traces: Collection[Trace]) -> None:
        raise AssertionError(traces)


async def damage(bench: Bench) -> None:
    """The next daemon cannot read job 1."""
    stored = bench.repository.jobs.pop(1)
    bench.repository.damaged = [Damage(TEXT, 1, 0, stored.cluster, stored.handle)]
    await bench.controller.close()
    await bench.start()


def test_what_a_damaged_job_has_is_wanted_and_others_go_on() -> None:
    cluster = Keeping()

    async def scene(bench: Bench) -> None:
        await start_job(bench)
        token = next(iter(cluster.handles))
        rows = dict(bench.repository.rows)
        await damage(bench)
        assert any(TEXT in problem for problem in bench.controller.problems)
        handles, tokens = bench.controller.releases.wanted()
        assert "1.0" in handles and token in tokens
        findings = await bench.controller.orphans.check("local", OrphanRemoval(release=True))
        assert [found.standing.value for found in findings.found] == ["live"] and findings.damaged == (TEXT,)
        number = await bench.submit("two")
        await until(lambda: f"{number}.0" in cluster.journals)
        assert bench.controller.recorder.registry.get(1) is None and cluster.orders == []
        assert rows.items() <= bench.repository.rows.items()

    play(scene, cluster)


def test_calls_of_a_damaged_job_stay_owed() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.down = True
        await bench.submit()
        await turn()
        rows = dict(bench.repository.rows)
        assert rows
        bench.cluster.down = False
        await damage(bench)
        await turn()
        assert bench.repository.rows == rows and bench.cluster.launched == []
        # They are of no job in memory.
        bench.repository.rows.clear()

    play(scene)


def test_whoever_depends_on_a_damaged_job_waits_and_its_members_stay() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench, "one other")
        await bench.submit("two needs=afterok:1")
        member = await bench.submit("three parent=1")
        await turn()
        await damage(bench)
        await turn()
        waiter = next(entry.job for entry in bench.controller.recorder.registry if entry.job.dependency.needs)
        assert waiter.state.value == "PENDING" and waiter.reason == "Dependency" and waiter.resolved == ()
        assert bench.job(member).ending is None and not bench.job(member).over

    play(scene)
