"""Sets are submitted whole, once for each token, and nothing of them is left when nobody wants them any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.adapters.slurm.samples import NOW, read_file
from tests.unit.adapters.slurm.test_submission import Bench, play

from overspan.adapters.contract import Accepted, Launch, Order, Refusal
from overspan.adapters.slurm.sets.handles import SetHandle, parse_set
from overspan.adapters.slurm.sets.submission import SetSubmitter
from overspan.bridge.model.errors import TimedOut
from overspan.bridge.model.events import Launch as LaunchEvent

JOB = read_file("name: g\nexecution: parallel\nrestart: task\n---\nname: a\nrun: x\n---\nname: b\nrun: y\n", 1)


class Sets:
    def __init__(self) -> None:
        self.bench = Bench()
        self.world = self.bench.world
        self.sets = SetSubmitter(self.bench.submitter)

    async def submit(self, number: int = 1) -> Accepted | Refusal:
        (answer,) = await self.sets.submit([Launch(f"inst-{number}-0", replace(JOB, id=number))])
        return answer

    async def accepted(self, number: int = 1) -> SetHandle:
        answer = await self.submit(number)
        assert isinstance(answer, Accepted)
        return parse_set(answer.handle)

    def states(self) -> list[str]:
        return [state for _, state, _ in self.world.jobs.values()]


def launch_order(attempt: int = 1) -> tuple[Order, LaunchEvent]:
    event = LaunchEvent(NOW, "b", attempt)
    return Order("tok", "m.x", event), event


def test_all_are_held_and_released_together() -> None:
    async def story() -> None:
        sets = Sets()
        handle = await sets.accepted()
        assert [part.task for part in handle.parts] == ["a", "b"]
        assert handle.folder == "/r/runs/inst-1" and handle.token == "inst-1-0"
        assert sets.states() == ["HELD", "HELD"]
        natives = ",".join(str(part.native) for part in handle.parts)
        assert sets.world.commands[-1] == ("scontrol", "release", natives)

    play(story())


def test_a_refusal_of_one_takes_the_others_back() -> None:
    async def story() -> None:
        sets = Sets()
        sets.world.behaviour = ["answers", "refuses"]
        answer = await sets.submit()
        assert isinstance(answer, Refusal) and "Invalid qos" in answer.message and answer.token == "inst-1-0"
        assert sets.states() == ["CANCELLED"]
        # A later try begins anew.
        assert len((await sets.accepted()).parts) == 2

    play(story())


def test_a_job_in_doubt_is_found_and_none_is_there_twice() -> None:
    async def story() -> None:
        sets = Sets()
        sets.world.behaviour = ["answers", "cut"]
        with pytest.raises(TimedOut):
            await sets.submit()
        assert not any("release" in words for words in sets.world.commands)
        handle = await sets.accepted()
        assert sets.world.count("sbatch") == 2
        assert {part.native for part in handle.parts} == set(sets.world.jobs)

    play(story())


def test_what_nobody_wants_is_ended_and_what_is_wanted_stays() -> None:
    async def story() -> None:
        sets = Sets()
        first, second = await sets.accepted(1), await sets.accepted(2)
        foreign = sets.world.add("other-1-0/a/0")
        single = sets.world.add("inst-9-0")
        await sets.sets.release("inst", [str(second)], [])
        ended = {number for number, (_, state, _) in sets.world.jobs.items() if state == "CANCELLED"}
        assert ended <= {part.native for part in first.parts} and ended
        assert not ended & {foreign, single}

    play(story())


def test_what_is_submitted_during_a_release_stays() -> None:
    async def story() -> None:
        sets = Sets()
        first = await sets.accepted(1)
        look = sets.bench.asked.own_queue

        async def own_queue() -> Any:
            await sets.accepted(2)
            return await look()

        sets.bench.asked.own_queue = own_queue  # type: ignore[method-assign]
        await sets.sets.release("inst", [str(first)], [])
        assert "CANCELLED" not in sets.states()
        sets.bench.asked.own_queue = look  # type: ignore[method-assign]
        await sets.sets.release("inst", [str(first)], [])
        assert "CANCELLED" in sets.states()

    play(story())


def test_without_sets_nobody_is_asked() -> None:
    async def story() -> None:
        sets = Sets()
        asked = []

        async def own_queue() -> tuple[()]:
            asked.append(1)
            return ()

        sets.bench.asked.own_queue = own_queue  # type: ignore[method-assign]
        for _ in range(3):
            await sets.sets.release("inst", ["s.1.0.1.0.0.1.30.main"], [])
        # Once, for what an earlier process may have left.
        assert len(asked) == 1

    play(story())


def test_a_replacement_is_submitted_once() -> None:
    async def story() -> None:
        sets = Sets()
        handle = await sets.accepted()
        order, event = launch_order()
        native = await sets.sets.replace(handle, order, event)
        assert isinstance(native, int)
        assert await sets.sets.replace(handle, order, event) == native
        assert sets.world.jobs[native][0] == "inst-1-0/b/1"
        assert sets.world.jobs[native][1] == "PENDING"
        assert sets.world.count("sbatch") == 3

    play(story())


def test_a_replacement_is_refused_in_slurms_words() -> None:
    async def story() -> None:
        sets = Sets()
        handle = await sets.accepted()
        sets.world.behaviour = ["refuses"]
        answer = await sets.sets.replace(handle, *launch_order())
        assert isinstance(answer, Refusal) and not answer.transient and "Invalid qos" in answer.message
        assert answer.token == "tok"
        # A later try begins anew.
        assert isinstance(await sets.sets.replace(handle, *launch_order(2)), int)

    play(story())
