"""Stages in the daemon: what a cluster is handed, what waits between two stages, and what holds the cluster's name."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, end, give_order, play, read, turn, until

from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.controller.views.listing import Selection, list_queue
from overspan.bridge.lifecycle.stages import carry
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model import events
from overspan.bridge.model.errors import Conflict
from overspan.bridge.model.spec import Need, NeedKind, Start
from overspan.bridge.readers.submission import Submission


class Place(FakeCluster):
    """A cluster at an address."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address

    def place(self) -> str:
        return self.address


def read_pipeline(submission: Submission, kinds: Mapping[str, str], now: float) -> ParsedSubmission:
    """Several words are the stages of a pipeline."""
    parsed = read(submission, kinds, now)
    tasks = parsed.spec.tasks
    chained = (replace(task, needs=(Need(before.name, NeedKind.OK),)) for before, task in itertools.pairwise(tasks))
    spec = replace(parsed.spec, tasks=(tasks[0], *chained), group=False, start=Start.INDEPENDENT)
    return replace(parsed, spec=spec)


def prepare(**clusters: Place) -> Callable[[Bench], None]:
    """A bench that reads pipelines, with these clusters beside `local`."""

    def apply(bench: Bench) -> None:
        bench.reader = read_pipeline
        bench.others = dict(clusters)
        bench.settings = Settings.model_validate({"clusters": {name: {"kind": "pods"} for name in clusters}})

    return apply


def handed(place: FakeCluster) -> list[tuple[int, tuple[str, ...]]]:
    """What the cluster was handed: the number of each launch, and its tasks."""
    return [(job.launch, tuple(task.name for task in job.spec.tasks)) for job in place.launched]


async def run_stage(bench: Bench, number: int, place: FakeCluster) -> str:
    """Let the stage whose turn it is run; gives its launch's handle."""
    handle = f"{number}.{bench.job(number).launch}"
    await until(lambda: handle in place.journals)
    place.tell(handle, *begin(carry(bench.job(number)), bench.clock.now))
    await until(lambda: bench.state(number) == "RUNNING")
    return handle


async def end_stage(bench: Bench, number: int, place: FakeCluster, code: int = 0) -> None:
    """End the stage that runs."""
    handle = f"{number}.{bench.job(number).launch}"
    place.tell(handle, *end(carry(bench.job(number)), bench.clock.now, code))
    await until(lambda: bench.job(number).launch > int(handle.rpartition(".")[2]) or bench.job(number).over)


def test_a_cluster_is_handed_one_stage_after_the_other() -> None:
    async def scene(bench: Bench) -> None:
        number = await bench.submit("fit judge")
        await run_stage(bench, number, bench.cluster)
        await turn()
        assert handed(bench.cluster) == [(0, ("fit",))]
        await end_stage(bench, number, bench.cluster)
        await run_stage(bench, number, bench.cluster)
        assert handed(bench.cluster) == [(0, ("fit",)), (1, ("judge",))]
        ended = bench.job(number).ended_stages
        assert [(one.tasks, one.handle) for one in ended] == [(("fit",), f"{number}.0")]
        await end_stage(bench, number, bench.cluster)
        assert bench.state(number) == "COMPLETED"

    play(scene, prepare=prepare())


def test_the_tasks_are_listed_by_their_names_with_what_they_wait_for() -> None:
    async def scene(bench: Bench) -> None:
        number = await bench.submit("fit judge")
        await run_stage(bench, number, bench.cluster)
        rows = list_queue(bench.controller.recorder.registry, Selection(tasks=True), bench.clock.now)
        listed = [JobRow(*json.loads(row)) for row in rows]
        assert [(row.name, row.state, row.reason) for row in listed] == [
            ("fit", "RUNNING", "None"),
            ("judge", "PENDING", "Dependency"),
        ]

    play(scene, prepare=prepare())


def test_a_daemon_that_dies_between_two_stages_owes_the_second_once() -> None:
    async def scene(bench: Bench) -> None:
        number = await bench.submit("fit judge")
        await run_stage(bench, number, bench.cluster)
        bench.cluster.down = True
        bench.cluster.tell(f"{number}.0", *end(carry(bench.job(number)), bench.clock.now))
        await bench.kill()
        bench.cluster.down = False
        await bench.start()
        await run_stage(bench, number, bench.cluster)
        await bench.kill()
        await bench.start()
        await end_stage(bench, number, bench.cluster)
        assert bench.state(number) == "COMPLETED"
        assert handed(bench.cluster) == [(0, ("fit",)), (1, ("judge",))]

    play(scene, prepare=prepare())


def test_a_cluster_that_leads_elsewhere_between_two_stages_gets_nothing() -> None:
    here, there = Place("here"), Place("there")

    async def scene(bench: Bench) -> None:
        number = await bench.submit("fit judge", cluster="far")
        await run_stage(bench, number, here)
        await end_stage(bench, number, here)
        await give_order(bench, str(number), events.Hold)
        await bench.kill()
        prepare(far=there)(bench)
        await bench.start()
        await give_order(bench, str(number), events.Release)
        await turn()
        assert there.launched == [] and bench.state(number) == "PENDING"
        assert "far" in bench.controller.locations.list_troubles()
        await bench.kill()
        prepare(far=here)(bench)
        await bench.start()
        await run_stage(bench, number, here)
        assert handed(here)[-1] == (1, ("judge",))

    play(scene, prepare=prepare(far=here))


def test_a_pipeline_gives_its_place_up_between_two_stages() -> None:
    """`max_running` counts what runs: another job comes first where its priority is higher."""

    def limit(bench: Bench) -> None:
        prepare()(bench)
        bench.settings = Settings(clusters={"local": ClusterSettings(kind="local", max_running=1)})

    async def scene(bench: Bench) -> None:
        pipeline = await bench.submit("fit judge")
        await run_stage(bench, pipeline, bench.cluster)
        other = await bench.submit("other")
        await bench.controller.orders.give(str(other), lambda at, task: events.SetPriority(at, 9, "me"))
        await end_stage(bench, pipeline, bench.cluster)
        await until(lambda: len(bench.cluster.launched) == 2)
        await turn()
        assert [job.spec.tasks[0].name for job in bench.cluster.launched] == ["fit", "other"]

    play(scene, prepare=limit)


@pytest.mark.parametrize("signal", ["", "KILL"])
def test_a_cancelled_later_stage_ends_what_runs(signal: str) -> None:
    async def scene(bench: Bench) -> None:
        number = await bench.submit("fit judge")
        await run_stage(bench, number, bench.cluster)
        await bench.controller.orders.cancel(CancelRequest((f"{number}+1",), by="me", signal=signal))
        await until(lambda: bool(bench.cluster.orders))
        (order,) = bench.cluster.orders
        assert isinstance(order.event, events.Cancel) and order.event.task == ""

    play(scene, prepare=prepare())


def test_what_waits_for_its_turn_is_changed_by_the_daemon_alone() -> None:
    async def scene(bench: Bench) -> None:
        number = await bench.submit("fit judge")
        await run_stage(bench, number, bench.cluster)
        await bench.controller.orders.give(f"{number}+1", lambda at, task: events.SetTime(at, 5, task, "me"))
        assert bench.job(number).task("judge").time == 5
        with pytest.raises(Conflict, match="pending execution"):
            await bench.controller.orders.give(f"{number}+1", lambda at, task: events.Signal(at, 10, task, by="me"))
        await turn()
        assert bench.cluster.orders == []

    play(scene, prepare=prepare())
