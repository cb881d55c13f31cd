"""Jobs with a list of clusters: which one has them, and that never two of them run one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.alternatives import LIST, cluster_of, watch
from tests.unit.controller.fakes import Bench, FakeCluster, begin, end, play, turn, until

from overspan.adapters.contract import Node, Refusal
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.model import events
from overspan.bridge.model.errors import Rejected
from overspan.bridge.readers.submission import Submission

NEVER = "Requested node configuration is not available"


class JudgingCluster(FakeCluster):
    """A cluster whose verdict is waited for."""

    def state(self) -> dict[str, Any]:
        return {"verdict_seconds": 60.0}


async def again(bench: Bench) -> None:
    """Kill the daemon, and start another."""
    await bench.kill()
    await bench.start()
    # What was due meanwhile is due at once.
    bench.clock.advance(0)


async def texts(bench: Bench) -> list[str]:
    """The job's timeline in words."""
    return [row.text for row in await bench.controller.timeline("1")]


def test_each_refusal_is_told_with_what_fixes_it() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        near.impossible, near.remedy = "the namespace x does not exist", "`kubectl create namespace x`"
        with pytest.raises(Rejected) as caught:
            await bench.controller.submit(Submission("job_file", "run: echo\ncluster: local\n", user="me"))
        assert caught.value.remedy == near.remedy
        answer = await bench.controller.submit(Submission("job_file", LIST, user="me"))
        assert answer.notes == (f"local: {near.impossible}; {near.remedy}; it goes to far",)
        near.remedy = ""
        with pytest.raises(Rejected) as caught:
            await bench.controller.submit(Submission("job_file", "run: echo\ncluster: local\n", user="me"))
        assert caught.value.remedy == "`span sinfo -M local` shows what its nodes and partitions have"

    watch(scene)


# --- at the submission -----------------------------------------------------------------------------------------------


def test_the_first_that_takes_the_job_has_it() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        answer = await bench.controller.submit(Submission("script", LIST, user="me"))
        assert (answer.cluster, answer.notes) == ("local", ())
        await until(lambda: near.submits == 1)
        assert far.submits == 0

    watch(scene)


def test_a_refusal_leads_to_the_next_and_is_told() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        near.impossible = NEVER
        answer = await bench.controller.submit(Submission("file", LIST, user="me"))
        assert (answer.cluster, answer.notes) == ("far", (f"local: {NEVER}; it goes to far",))
        await until(lambda: far.submits == 1)
        assert (near.submits, cluster_of(bench), bench.job().restarts) == (0, "far", 0)
        assert (await texts(bench))[:2] == [f"submitted; local: {NEVER}", "given to the cluster far"]

    watch(scene)


def test_what_all_refuse_is_refused_in_each_ones_words() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        near.impossible, far.impossible = NEVER, "invalid partition specified: gpu"
        with pytest.raises(Rejected) as caught:
            await bench.controller.submit(Submission("file", LIST, user="me"))
        assert caught.value.message == f"local: {NEVER}\nfar: invalid partition specified: gpu"
        assert bench.repository.transactions == 0

    watch(scene)


def test_a_cluster_that_is_down_is_passed_over() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        near.fail(True)
        answer = await bench.controller.submit(Submission("file", LIST, user="me"))
        assert (answer.cluster, answer.notes) == ("far", ("local: no route to the cluster; it goes to far",))
        await until(lambda: far.submits == 1)

    watch(scene)


def test_where_all_are_down_the_first_has_the_job() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        near.fail(True)
        far.fail(True)
        answer = await bench.controller.submit(Submission("file", LIST, user="me"))
        note = "local: no route to the cluster; far: no route to the cluster; it waits for local"
        assert (answer.cluster, answer.notes) == ("local", (note,))
        await turn()
        assert cluster_of(bench) == "local"
        # It was never sent, so it goes on as soon as any of them answers.
        far.fail(False)
        bench.clock.advance(5)
        await until(lambda: far.submits == 1)
        assert cluster_of(bench) == "far" and near.launched == []

    watch(scene)


def test_a_verdict_leads_to_the_next() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        near.refusals = [Refusal("", "Invalid qos specification")]
        answer = await bench.controller.submit(Submission("script", LIST, user="me"))
        assert answer.cluster == cluster_of(bench) == "far"
        assert list(bench.controller.recorder.registry.watched("far")) == ["1.1"]
        assert "goes to the cluster far: Invalid qos specification" in await texts(bench)
        shown = await bench.controller.job("1")
        assert [(each["cluster"], each["why"], each["refused"]) for each in shown["passed"]] == [
            ("local", "Invalid qos specification", True)
        ]
        assert (shown["restarts"], shown["clusters"]) == (0, ["local", "far"])

    watch(scene, JudgingCluster())


def test_the_last_verdict_is_the_end_in_the_words_of_all() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        near.refusals = [Refusal("", "Invalid qos specification")]
        far.refusals = [Refusal("", "Invalid account")]
        with pytest.raises(Rejected) as caught:
            await bench.controller.submit(Submission("file", LIST, user="me"))
        assert caught.value.message == "local: Invalid qos specification\nfar: Invalid account"
        assert (bench.repository.jobs, bench.repository.rows) == ({}, {})

    watch(scene, JudgingCluster(), JudgingCluster("far"))


# --- while it waits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", range(6))
def test_a_job_that_is_not_started_in_time_goes_to_the_next(crash: int) -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        async def step(number: int) -> None:
            if crash == number:
                await again(bench)

        await bench.submit(LIST)
        await until(lambda: "1.0" in near.journals)
        await step(0)
        bench.clock.advance(30)
        await turn()
        assert near.orders == []
        await step(1)
        bench.clock.advance(30)
        await step(2)
        await until(lambda: len(near.orders) == 1)
        # Nobody else has it before it is known to be gone.
        bench.clock.advance(600)
        await turn()
        await step(3)
        await until(lambda: near.asked > 0)
        assert (far.submits, cluster_of(bench), bench.state()) == (0, "local", "PENDING")
        near.tell("1.0", near.orders[0].event)
        await until(lambda: cluster_of(bench) == "far")
        await step(4)
        await until(lambda: "1.1" in far.journals)
        await step(5)
        far.tell("1.1", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        far.tell("1.1", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        assert (len(near.orders), len(near.launched), len(far.launched)) == (1, 1, 1)
        assert bench.job().restarts == 0
        assert "goes to the cluster far: it did not start in time" in await texts(bench)
        assert bench.controller.recorder.registry.watched("local") == {}

    watch(scene)


def test_a_launch_that_starts_meanwhile_stays() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        await bench.submit(LIST)
        await until(lambda: "1.0" in near.journals)
        bench.clock.advance(60)
        await until(lambda: len(near.orders) == 1)
        near.tell("1.0", *begin(bench.job(), bench.clock.now), near.orders[0].event)
        await until(lambda: bench.state() == "RUNNING")
        await turn()
        # Nothing is left to be done about it.
        assert (bench.repository.rows, cluster_of(bench), far.submits) == ({}, "local", 0)
        bench.clock.advance(3600)
        await turn()
        assert len(near.orders) == 1

    watch(scene)


def test_the_last_cluster_keeps_the_job() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        near.impossible = NEVER
        await bench.submit(LIST)
        await until(lambda: "1.0" in far.journals)
        bench.clock.advance(7200)
        await turn()
        assert (far.orders, cluster_of(bench)) == ([], "far")

    watch(scene)


def test_a_place_in_a_queue_is_not_given_up_for_a_cluster_that_is_down() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        await bench.submit(LIST)
        await until(lambda: "1.0" in near.journals)
        far.fail(True)
        bench.clock.advance(60)
        await turn()
        assert near.orders == []
        far.fail(False)
        bench.clock.advance(15)
        await until(lambda: len(near.orders) == 1)

    watch(scene)


def test_a_cluster_that_may_have_the_job_keeps_it() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        await bench.submit(LIST)
        await until(lambda: "1.0" in near.journals)
        near.fail(True)
        bench.clock.advance(600)
        await turn()
        assert (far.submits, cluster_of(bench), bench.state()) == (0, "local", "PENDING")
        near.fail(False)
        bench.clock.advance(60)
        await until(lambda: len(near.orders) == 1)

    watch(scene)


def test_a_call_without_an_answer_may_have_arrived() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        class Stop(Exception): ...

        calls = near.submit

        async def lose(launches: object) -> list[object]:
            await calls(launches)  # type: ignore[arg-type]
            raise Stop

        near.submit = lose  # type: ignore[method-assign, assignment]
        await bench.submit(LIST)
        await until(lambda: "1.0" in near.journals)
        await turn()
        near.fail(True)
        bench.clock.advance(600)
        await turn()
        assert (far.submits, cluster_of(bench)) == (0, "local")

    # The cause of the trouble is told in the log.
    watch(scene)


def test_a_job_that_was_never_sent_moves_at_once() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        await bench.submit(f"{LIST} begin=100")
        near.fail(True)
        bench.clock.advance(100)
        await until(lambda: far.submits == 1)
        assert (near.launched, cluster_of(bench)) == ([], "far")
        assert "goes to the cluster far: no answer: no route to the cluster" in await texts(bench)

    watch(scene)


def test_time_held_does_not_count() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        await bench.submit(LIST)
        await until(lambda: "1.0" in near.journals)
        near.tell("1.0", events.Hold(bench.clock.now, "me"))
        await until(lambda: bench.job().held)
        bench.clock.advance(600)
        await turn()
        assert near.orders == []
        near.tell("1.0", events.Release(bench.clock.now, "me"))
        await until(lambda: not bench.job().held)
        bench.clock.advance(59)
        await turn()
        assert near.orders == []
        bench.clock.advance(1)
        await until(lambda: len(near.orders) == 1)

    watch(scene)


def test_a_cancel_on_the_way_is_obeyed_by_whoever_has_the_job() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        await bench.submit(LIST)
        await until(lambda: "1.0" in near.journals)
        bench.clock.advance(60)
        await until(lambda: len(near.orders) == 1)
        await bench.controller.orders.cancel(CancelRequest(("1",), by="me"))
        near.tell("1.0", near.orders[0].event)
        await until(lambda: bench.state() == "CANCELLED")
        await turn()
        assert (far.submits, bench.repository.rows) == (0, {})

    watch(scene)


def test_where_nothing_can_be_had_back_a_job_stays() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        answer = await bench.controller.submit(Submission("file", LIST, user="me"))
        assert answer.notes == ("failover_after has no effect once local has queued the job",)
        await until(lambda: "1.0" in near.journals)
        bench.clock.advance(600)
        await turn()
        assert (near.orders, far.submits) == ([], 0)

    watch(scene, kind="slow")


def test_limits_count_a_job_where_it_is() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        await bench.submit(LIST)
        await bench.submit("two")
        await until(lambda: bench.job(2).reason == "AssocMaxSubmitJobLimit")
        bench.clock.advance(60)
        await until(lambda: len(near.orders) == 1)
        near.tell("1.0", near.orders[0].event)
        await until(lambda: "2.0" in near.journals)
        assert cluster_of(bench) == "far"

    other = FakeCluster("far")

    def prepare(bench: Bench) -> None:
        bench.others["far"] = other
        near = {"kind": "local", "root": "/near", "max_submitted": 1}
        clusters = {"local": near, "far": {"kind": "local", "root": "/far"}}
        bench.settings = Settings.model_validate({"clusters": clusters, "default_cluster": "local"})

    async def run(bench: Bench) -> None:
        await scene(bench, bench.cluster, other)

    play(run, prepare=prepare)


def test_many_jobs_ask_once_whether_a_cluster_answers() -> None:
    class CountingCluster(FakeCluster):
        looks = 0

        async def nodes(self) -> list[Node]:
            self.looks += 1
            await turn(3)
            return await super().nodes()

    counting = CountingCluster("far")

    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        for number in range(5):
            await bench.submit(LIST)
            await until(lambda number=number: f"{number + 1}.0" in near.journals)  # type: ignore[misc]
        bench.clock.advance(60)
        await until(lambda: len(near.orders) == 5)
        assert counting.looks == 1

    watch(scene, far=counting)


def test_an_array_stays_where_it_was_submitted() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        near.impossible = NEVER
        answer = await bench.controller.submit(Submission("file", f"{LIST} array=0-1", user="me"))
        assert answer.cluster == "far"
        assert "failover_after has no effect on an array: its cluster is chosen at the submission" in answer.notes
        await until(lambda: len(far.launched) == 2)
        bench.clock.advance(600)
        await turn()
        assert far.orders == []

    watch(scene)
