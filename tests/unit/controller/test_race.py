"""A race between clusters, step by step: who has the job, what is wanted where, and what people see of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from tests.unit.controller.fakes import Bench, FakeCluster, end, play, turn, until

from overspan.adapters.contract import Decider, Refusal
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.model import events
from overspan.bridge.model.job import Job
from overspan.bridge.readers.submission import Submission

Scene = Callable[[Bench, "Racer", "Racer"], Awaitable[None]]
RACE = "one race clusters=near,far"


class Racer(FakeCluster):
    """A cluster whose launches wait for the daemon; it knows what is wanted of it."""

    decider = Decider.DAEMON

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.obstacle = ""
        self.wanted: Collection[str] | None = None

    def find_obstacle(self, job: Job) -> str:
        return self.obstacle

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        # It is told of all that is wanted anywhere.
        self.wanted = frozenset(handle for handle in handles if handle in self.journals)


def watch(scene: Scene, kind: str = "slow", **limits: int) -> None:
    """Play with two clusters, `near` and `far`."""
    near, far = Racer("near"), Racer("far")

    def prepare(bench: Bench) -> None:
        bench.cluster = near
        bench.others = {"near": near, "far": far}
        clusters = {"near": {"kind": kind}, "far": {"kind": "other", **limits}}
        bench.settings = Settings.model_validate({"clusters": clusters, "default_cluster": "near"})

    async def run(bench: Bench) -> None:
        await scene(bench, near, far)

    play(run, prepare=prepare)


async def enter(bench: Bench, near: Racer, far: Racer) -> None:
    """A job that waits on both."""
    await bench.submit(RACE)
    await until(lambda: "1.0" in near.journals and bool(bench.job().bids) and bool(bench.job().bids[0].handle))


def grant(bench: Bench, cluster: Racer, handle: str) -> None:
    cluster.tell(handle, events.Granted(bench.clock.now, (("one", 0, "me", "127.1.0.1", ()),)))


def cluster_of(bench: Bench) -> str:
    entry = bench.controller.recorder.registry.get(1)
    assert entry is not None
    return entry.cluster


async def texts(bench: Bench) -> list[str]:
    return [row.text for row in await bench.controller.timeline("1")]


def test_a_job_waits_on_both_and_runs_on_the_first_that_has_room() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        await enter(bench, near, far)
        shown = await bench.controller.job("1")
        assert (shown["cluster"], shown["native_id"]) == ("near", "native-1.0")
        assert [(bid["cluster"], bid["native_id"]) for bid in shown["bids"]] == [("far", "native-1.1")]
        far.tell("1.1", events.Queued(bench.clock.now, "Priority"))
        await until(lambda: bench.job().bids[0].reason == "Priority")
        assert bench.job().reason == "None"
        grant(bench, far, "1.1")
        await until(lambda: bench.job().granted_at is not None)
        assert (cluster_of(bench), bench.job().launch, bench.job().restarts) == ("far", 1, 0)
        await until(lambda: [type(order.event) for order in far.orders] == [events.Launch])
        # The loser is not wanted any more, and what it tells is nobody's.
        await until(lambda: near.wanted == frozenset())
        grant(bench, near, "1.0")
        await turn()
        assert (near.orders, cluster_of(bench)) == ([], "far")
        far.tell("1.1", events.NodeStarted(bench.clock.now, "one", 0, 0))
        await until(lambda: bench.state() == "RUNNING")
        far.tell("1.1", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        told = await texts(bench)
        assert "waits for the cluster far too" in told
        assert "goes to the cluster far: it is the first to have room" in told

    watch(scene)


def test_both_at_once_is_one_of_them() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        await enter(bench, near, far)
        grant(bench, near, "1.0")
        grant(bench, far, "1.1")
        await until(lambda: bench.job().granted_at is not None)
        await turn()
        launches = [order for each in (near, far) for order in each.orders]
        assert [type(order.event) for order in launches] == [events.Launch]
        assert bench.job().bids == ()

    watch(scene)


def test_after_a_requeue_it_races_again() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        await enter(bench, near, far)
        grant(bench, far, "1.1")
        await until(lambda: bench.job().granted_at is not None)
        await bench.controller.orders.give("1", lambda at, name: events.Requeue(at))
        await until(lambda: any(isinstance(order.event, events.Terminate) for order in far.orders))
        far.tell("1.1", events.NodeEnded(bench.clock.now, "one", 0, 0, signal=15))
        await until(lambda: bench.job().launch == 2)
        await until(lambda: bool(bench.job().bids) and bool(bench.job().bids[0].handle))
        bid = bench.job().bids[0]
        assert (cluster_of(bench), bid.cluster, bid.launch, bench.job().restarts) == ("far", "near", 3, 1)

    watch(scene)


def test_a_refusal_leaves_the_others_in_the_race() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        near.refusals = [Refusal("", "Invalid account")]
        await bench.submit(RACE)
        await until(lambda: "1.1" in far.journals and cluster_of(bench) == "far")
        await until(lambda: bool(bench.controller.recorder.registry.watched("far")))
        bench.clock.advance(100_000)
        await turn()
        assert (bench.job().bids, bench.job().restarts, near.launched) == ((), 0, [])
        assert "goes to the cluster far: Invalid account" in await texts(bench)
        far.tell("1.1", events.LaunchLost(bench.clock.now, 1, "cancel"))
        await until(lambda: bench.state() == "CANCELLED")

    watch(scene)


def test_a_bid_that_is_refused_is_made_no_more() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        far.refusals = [Refusal("", "Invalid account")]
        await bench.submit(RACE)
        await until(lambda: "1.0" in near.journals and far.submits == 1 and not bench.job().bids)
        bench.clock.advance(100_000)
        await turn()
        assert (bench.job().bids, far.launched, cluster_of(bench)) == ((), [], "near")
        assert "waits for the cluster far no more: Invalid account" in await texts(bench)

    watch(scene)


def test_what_all_refuse_has_failed_in_their_words() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        near.refusals, far.refusals = [Refusal("", "Invalid account")], [Refusal("", "Invalid qos")]
        await bench.submit(RACE)
        await until(lambda: bench.state() == "FAILED")
        assert "near: Invalid account" in "\n".join(await texts(bench))
        assert "far: Invalid qos" in "\n".join(await texts(bench))

    watch(scene)


def test_a_lost_launch_costs_nothing_while_it_waits_elsewhere_and_comes_back() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        await enter(bench, near, far)
        near.tell("1.0", events.LaunchLost(bench.clock.now, 0, "node", "its nodes are gone"))
        await until(lambda: cluster_of(bench) == "far")
        assert (bench.job().bids, bench.job().tasks[0].recoveries) == ((), 0)
        bench.clock.advance(60)
        await until(lambda: "1.2" in near.journals)
        assert bench.job().restarts == 0
        far.lose("1.1")
        await until(lambda: cluster_of(bench) == "near")

    watch(scene)


def test_a_cluster_that_loses_every_bid_is_left_alone() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        await enter(bench, near, far)
        for number in range(1, 6):
            await until(lambda number=number: f"1.{number}" in far.journals and bool(bench.job().bids))  # type: ignore[misc]
            await until(lambda: bool(bench.job().bids[0].handle))
            far.tell(f"1.{number}", events.LaunchLost(bench.clock.now, number, "node"))
            await until(lambda: bench.job().bids == ())
            bench.clock.advance(60 * number)
        bench.clock.advance(100_000)
        await turn()
        assert len(far.launched) == 5 and cluster_of(bench) == "near"

    watch(scene)


def test_a_cluster_that_is_down_joins_when_it_answers() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        far.fail(True)
        await bench.submit(RACE)
        await until(lambda: "1.0" in near.journals)
        await turn()
        assert bench.job().bids[0].handle == ""
        far.fail(False)
        bench.clock.advance(60)
        await until(lambda: "1.1" in far.journals)

    watch(scene)


def test_a_hold_ends_the_bids_and_a_release_makes_others() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        await enter(bench, near, far)
        await bench.controller.orders.give("1", lambda at, name: events.Hold(at))
        await until(lambda: bench.job().held and not bench.job().bids)
        await until(lambda: far.wanted == frozenset())
        assert near.wanted is None
        await bench.controller.orders.give("1", lambda at, name: events.Release(at))
        await until(lambda: "1.2" in far.journals)

    watch(scene)


def test_a_cancel_ends_both() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        await enter(bench, near, far)
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        await until(lambda: bench.state() == "CANCELLED")
        await until(lambda: near.wanted == far.wanted == frozenset())
        assert bench.repository.rows == {} and bench.job().bids == ()

    watch(scene)


def test_a_bid_counts_among_those_of_its_cluster() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        await bench.submit("one clusters=far")
        await until(lambda: "1.0" in far.journals)
        await bench.submit(RACE)
        await until(lambda: bool(bench.job(2).bids) and bench.job(2).bids[0].reason == "AssocMaxSubmitJobLimit")
        assert bench.job(2).reason == "None"
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        await until(lambda: "2.1" in far.journals)

    watch(scene, max_submitted=1)


def test_who_cannot_wait_takes_no_part() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        far.obstacle = "it starts a job by itself"
        answer = await bench.controller.submit(Submission("file", RACE, user="me"))
        assert answer.notes == (
            "far takes no part in the race: it starts a job by itself",
            "race has no effect with fewer than two clusters: they are tried in order",
        )
        await until(lambda: "1.0" in near.journals)
        await turn()
        assert (bench.job().racers, bench.job().bids, far.launched) == ((), (), [])
        array = await bench.controller.submit(Submission("file", f"{RACE} array=0-1", user="me"))
        assert array.notes == ("race has no effect on an array: its cluster is chosen at the submission",)

    watch(scene)


def test_where_the_daemon_decides_a_waiting_job_is_had_back_by_a_decision() -> None:
    async def scene(bench: Bench, near: Racer, far: Racer) -> None:
        await bench.submit("one clusters=near,far after=60")
        await until(lambda: "1.0" in near.journals)
        bench.clock.advance(60)
        await until(lambda: "1.1" in far.journals)
        await until(lambda: near.wanted == frozenset())
        assert (near.orders, cluster_of(bench), bench.job().restarts) == ([], "far", 0)
        grant(bench, near, "1.0")
        await turn()
        assert (near.orders, bench.job().granted_at) == ([], None)

    watch(scene, kind="kubernetes")
