"""Jobs that are given to a cluster which waits for others of its own: when, when not, and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, end, play, start_job, turn, until

from overspan.adapters.contract import Accepted, Launch, Order, Refusal, Unmet
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.orders.requests import CancelRequest, Update
from overspan.bridge.model import events
from overspan.bridge.model.errors import Conflict, Unreachable
from overspan.bridge.model.job import Job
from overspan.bridge.readers.dependencies import parse_dependency


class WaitingCluster(FakeCluster):
    """A cluster that waits for its own jobs, unless their names begin with `x`; it takes down what for."""

    def __init__(self, name: str = "local") -> None:
        super().__init__(name)
        self.needs: dict[int, list[str]] = {}
        self.wanted: list[list[str]] = []
        self.over: set[str] = set()
        """Handles of which the cluster knows that they are over."""
        self.deaf = False

    def state(self) -> dict[str, Any]:
        return {"waits_for": self.waits_for}

    def waits_for(self, job: Job, needs: Sequence[Unmet]) -> bool:
        return not any(one.job.spec.name.startswith("x") for unmet in needs for one in unmet.jobs)

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        if self.deaf:
            raise Unreachable("no route for submissions")
        answers: list[Accepted | Refusal] = []
        for launch in launches:
            handles = [one.handle for unmet in launch.needs for one in unmet.jobs]
            if self.over.intersection(handles) or not all(unmet.jobs for unmet in launch.needs):
                answers.append(Refusal(launch.token, "it may be over", True, "Dependency"))
                continue
            self.needs[launch.job.id] = handles
            answers += await super().submit([launch])
        return answers

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        self.wanted += [[one.handle for unmet in order.needs for one in unmet.jobs] for order in orders]
        return await super().order(orders)


class Scene:
    """A controller over a cluster that waits."""

    def __init__(self, bench: Bench) -> None:
        assert isinstance(bench.cluster, WaitingCluster)
        self.bench, self.cluster = bench, bench.cluster

    async def sent(self, job_id: int) -> None:
        await until(lambda: self.bench.controller.recorder.registry.get(job_id).launched)  # type: ignore[union-attr]

    async def finish(self, job_id: int, exit_code: int = 0) -> None:
        """Let a running job end."""
        self.cluster.tell(f"{job_id}.0", *end(self.bench.job(job_id), self.bench.clock.now, exit_code))
        await until(lambda: self.bench.job(job_id).over)
        await turn()

    def waits_here(self, job_id: int) -> bool:
        """Whether Overspan holds the job back."""
        return f"{job_id}.0" not in self.cluster.journals and self.bench.job(job_id).reason == "Dependency"


@pytest.mark.parametrize("kind", ["after", "afterok", "afterany", "afternotok"])
def test_a_dependant_is_given_to_the_cluster_at_once(kind: str) -> None:
    async def scene(bench: Bench) -> None:
        here = Scene(bench)
        first = await bench.submit("one")
        await here.sent(first)
        second = await bench.submit(f"two needs={kind}:{first}")
        await here.sent(second)
        assert here.cluster.needs == {first: [], second: ["1.0"]}
        assert (bench.state(second), bench.job(second).reason) == ("PENDING", "Dependency")
        here.cluster.tell("2.0", events.Queued(bench.clock.now, "Priority"))
        await until(lambda: bench.job(second).reason == "Priority")
        here.cluster.tell("2.0", *begin(bench.job(second), bench.clock.now))
        await until(lambda: bench.state(second) == "RUNNING")

    play(scene, WaitingCluster())


def test_a_chain_goes_as_each_gets_its_id() -> None:
    async def scene(bench: Bench) -> None:
        here = Scene(bench)
        here.cluster.gate = asyncio.Event()
        first = await bench.submit("one")
        second = await bench.submit(f"two needs=afterok:{first}")
        third = await bench.submit(f"three needs=afterok:{second},singleton")
        await turn()
        assert here.waits_here(second) and here.waits_here(third)
        here.cluster.gate.set()
        await here.sent(third)
        assert here.cluster.needs == {first: [], second: ["1.0"], third: ["2.0"]}

    play(scene, WaitingCluster())


def test_a_singleton_waits_for_all_before_it() -> None:
    async def scene(bench: Bench) -> None:
        here = Scene(bench)
        first, second = [await bench.submit("one") for _ in range(2)]
        await here.sent(second)
        third = await bench.submit("one needs=singleton")
        await here.sent(third)
        assert here.cluster.needs[third] == [f"{first}.0", f"{second}.0"]
        held = await bench.submit("one hold")
        fourth = await bench.submit("one needs=singleton")
        await turn()
        # One of them is not there.
        assert here.waits_here(fourth)
        await bench.controller.orders.cancel(CancelRequest((str(held),)))
        await here.sent(fourth)

    play(scene, WaitingCluster())


def test_what_is_met_already_is_not_waited_for() -> None:
    async def scene(bench: Bench) -> None:
        here = Scene(bench)
        first = await start_job(bench, "a")
        await start_job(bench, "b")
        await here.finish(first)
        third = await bench.submit("c needs=afterok:1,afterok:2")
        either = await bench.submit("d needs=afterok:1?afterok:2")
        await here.sent(third)
        await here.sent(either)
        assert (here.cluster.needs[third], here.cluster.needs[either]) == (["2.0"], [])

    play(scene, WaitingCluster())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x", "two needs=afterok:1"),
        ("a b", "two needs=afterok:2"),
        ("one hold", "two needs=afterok:1"),
        ("one array=0-1", "two needs=afterok:1"),
        ("one", "two array=0-1 needs=afterok:1"),
        ("one", "two clusters=local,far needs=afterok:1"),
    ],
)
def test_what_overspan_waits_for_itself(first: str, second: str) -> None:
    async def scene(bench: Bench) -> None:
        here = Scene(bench)
        await bench.submit(first)
        await turn()
        number = await bench.submit(second)
        await turn()
        assert here.waits_here(number) and number not in here.cluster.needs

    def prepare(bench: Bench) -> None:
        bench.others["far"] = FakeCluster("far")
        clusters = {name: {"kind": "local", "root": f"/{name}"} for name in ("local", "far")}
        bench.settings = Settings.model_validate({"clusters": clusters, "default_cluster": "local"})

    play(scene, WaitingCluster(), prepare)


def test_a_slot_is_not_taken_by_one_that_waits() -> None:
    async def scene(bench: Bench) -> None:
        here = Scene(bench)
        first = await start_job(bench)
        second = await bench.submit(f"two needs=afterok:{first}")
        await turn()
        assert here.waits_here(second)
        await here.finish(first)
        await here.sent(second)

    def prepare(bench: Bench) -> None:
        clusters = {"local": {"kind": "local", "root": "/near", "max_running": 5}}
        bench.settings = Settings.model_validate({"clusters": clusters, "default_cluster": "local"})

    play(scene, WaitingCluster(), prepare)


@pytest.mark.parametrize("exit_code", [0, 1])
def test_an_end_that_only_the_cluster_knows(exit_code: int) -> None:
    """It refuses then; Overspan waits for the news, and does what that says."""

    async def scene(bench: Bench) -> None:
        here = Scene(bench)
        first = await start_job(bench)
        here.cluster.over.add("1.0")
        second = await bench.submit(f"two needs=afterok:{first}")
        await until(lambda: any(row.tries for row in bench.controller.recorder.outbox.of_job(second)))
        await turn()
        assert here.waits_here(second)
        await here.finish(first, exit_code)
        if exit_code:
            assert (bench.state(second), bench.job(second).reason) == ("PENDING", "DependencyNeverSatisfied")
            bench.clock.advance(3600)
            await turn()
            assert second not in here.cluster.needs and bench.repository.rows == {}
        else:
            # At once, not when the next try would have been.
            await here.sent(second)

    play(scene, WaitingCluster())


def test_an_end_between_two_steps_of_the_daemon() -> None:
    """The submission is owed when the predecessor fails: it is not made any more."""

    async def scene(bench: Bench) -> None:
        here = Scene(bench)
        first = await start_job(bench)
        here.cluster.deaf = True
        second = await bench.submit(f"two needs=afterok:{first}")
        await turn()
        await here.finish(first, 1)
        here.cluster.deaf = False
        bench.clock.advance(3600)
        await until(lambda: bench.job(second).reason == "DependencyNeverSatisfied")
        assert (bench.repository.rows, second in here.cluster.needs, bench.state(second)) == ({}, False, "PENDING")

    play(scene, WaitingCluster())


def test_after_a_failure_the_clusters_own_reason_stays() -> None:
    async def scene(bench: Bench) -> None:
        here = Scene(bench)
        first = await start_job(bench)
        second = await bench.submit(f"two needs=afterok:{first}")
        killed = await bench.submit(f"three kill needs=afterok:{first}")
        await here.sent(second)
        await here.sent(killed)
        here.cluster.tell("2.0", events.Queued(bench.clock.now, "DependencyNeverSatisfied"))
        await here.finish(first, 1)
        assert (bench.state(second), bench.job(second).reason) == ("PENDING", "DependencyNeverSatisfied")
        # Whoever of the two is first ends it.
        await until(lambda: [order.event.cause for order in here.cluster.orders] == ["dependency"])  # type: ignore[union-attr]
        here.cluster.tell("3.0", events.LaunchLost(bench.clock.now, 0, "dependency", "CANCELLED"))
        await until(lambda: bench.state(killed) == "CANCELLED")
        assert bench.job(killed).reason == "DependencyNeverSatisfied"

    play(scene, WaitingCluster())


@pytest.mark.parametrize("crash", range(3))
def test_a_killed_daemon_forgets_nothing(crash: int) -> None:
    async def scene(bench: Bench) -> None:
        here = Scene(bench)

        async def step(number: int) -> None:
            if crash == number:
                await bench.kill()
                await bench.start()

        first = await start_job(bench)
        here.cluster.over.add("1.0")
        second = await bench.submit(f"two needs=afterok:{first}")
        await turn()
        await step(0)
        here.cluster.over.clear()
        bench.clock.advance(600)
        await here.sent(second)
        await step(1)
        third = await bench.submit(f"three needs=afterok:{second}")
        await here.sent(third)
        await step(2)
        await until(lambda: bench.job(third).reason == "Dependency")
        assert [job.id for job in here.cluster.launched] == [first, second, third]

    play(scene, WaitingCluster())


def test_an_operator_changes_what_the_cluster_waits_for() -> None:
    async def scene(bench: Bench) -> None:
        here = Scene(bench)
        first, other, never = [await start_job(bench, name) for name in ("a", "b", "x")]
        second = await bench.submit(f"two needs=afterok:{first}")
        await here.sent(second)
        await bench.controller.orders.update(str(second), Update({"dependency": parse_dependency(f"afterany:{other}")}))
        await until(lambda: here.cluster.wanted == [[f"{other}.0"]])
        # It is told when it has had its effect.
        assert bench.job(second).dependency.needs[0].job == first
        here.cluster.tell(f"{second}.0", here.cluster.orders[0].event)
        await until(lambda: bench.job(second).dependency.needs[0].job == other)
        await until(lambda: bench.repository.rows == {})
        with pytest.raises(Conflict):
            # That one cannot wait there.
            await bench.controller.orders.update(
                str(second), Update({"dependency": parse_dependency(f"afterok:{never}")})
            )
        await bench.controller.orders.update(str(second), Update({"dependency": parse_dependency("")}))
        await until(lambda: here.cluster.wanted == [[f"{other}.0"], []])

    play(scene, WaitingCluster())
