"""Sets are submitted whole, once for each token, and nothing of them is left when nobody wants them any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.adapters.slurm.records import ENDED
from tests.unit.adapters.slurm.samples import NOW, read_file
from tests.unit.adapters.slurm.submissions import Bench, play

from overspan.adapters.contract import Accepted, Launch, Order, Refusal
from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.states import read_state
from overspan.adapters.slurm.sets.handles import SetHandle, parse_set
from overspan.adapters.slurm.sets.members import PartToken
from overspan.adapters.slurm.sets.submission import SetSubmitter
from overspan.adapters.slurm.transports.transport import Call, Done
from overspan.bridge.model.errors import OverspanError, TimedOut
from overspan.bridge.model.events import Launch as LaunchEvent

JOB = read_file("name: g\nexecution: parallel\nrestart: task\n---\nname: a\nrun: x\n---\nname: b\nrun: y\n", 1)


class Sets:
    def __init__(self, started_at: float = NOW - 100) -> None:
        self.bench = Bench(started_at)
        self.world = self.bench.world
        self.sets = SetSubmitter(self.bench.submitter)

    async def submit(self, number: int = 1) -> Accepted | Refusal:
        answers = await self.sets.submit([Launch(f"inst-{number}-0", replace(JOB, id=number))])
        if not answers:
            raise TimedOut(self.bench.submitter.in_doubt)
        (answer,) = answers.values()
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


def test_a_set_in_doubt_holds_no_other_back() -> None:
    async def story() -> None:
        sets = Sets()
        sets.world.behaviour = ["refuses", "never"]
        launches = [Launch(f"inst-{number}-0", replace(JOB, id=number)) for number in (1, 2)]
        answers = await sets.sets.submit(launches)
        assert [type(answer) for answer in answers.values()] == [Accepted] and set(answers) == {"inst-2-0"}
        assert "has job 1 (" in sets.bench.submitter.in_doubt
        # What was refused of the one in doubt is not submitted again meanwhile.
        count = sets.world.count("sbatch")
        assert await sets.sets.submit(launches[:1]) == {} and sets.world.count("sbatch") == count
        assert isinstance(await try_until_answered(sets), Refusal)

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


async def try_until_answered(sets: Sets) -> Accepted | Refusal:
    """Submit as the daemon does, which tries again while it is not known what Slurm has."""
    for _ in range(5):
        try:
            return await sets.submit()
        except OverspanError:
            sets.bench.now += 11
    raise AssertionError("no answer")


async def runs(names: Sequence[str]) -> dict[str, list[AccountingRecord]]:
    """What the accounting has of jobs that were cancelled while they waited."""
    return {name: [replace(ENDED, raw=int(name), state=read_state("CANCELLED"), nodes=())] for name in names}


@pytest.mark.parametrize("forgets", [False, True])
def test_what_was_taken_back_of_a_refused_try_is_no_part_of_the_next(forgets: bool) -> None:
    async def story() -> None:
        # A daemon that began after the job was submitted looks for what an earlier one has sent.
        sets = Sets(started_at=NOW + 1000)
        sets.world.behaviour = ["answers", "limit"]
        answer = await try_until_answered(sets)
        assert isinstance(answer, Refusal) and answer.transient and sets.states() == ["CANCELLED"]
        if forgets:
            # The accounting keeps what squeue has forgotten.
            sets.world.forgotten = {number: sets.world.jobs.pop(number)[0] for number in [*sets.world.jobs]}
            sets.bench.asked.runs = runs  # type: ignore[method-assign]
        answer = await try_until_answered(sets)
        assert isinstance(answer, Accepted)
        natives = [part.native for part in parse_set(answer.handle).parts]
        assert [sets.world.jobs[native][1] for native in natives] == ["HELD", "HELD"]

    play(story())


def test_what_started_before_an_answer_came_is_part_of_its_set() -> None:
    async def story() -> None:
        sets = Sets(started_at=NOW + 1000)
        for task in ("a", "b"):
            sets.world.add(f"inst-1-0/{task}/0", "COMPLETED")
        look = sets.bench.asked.own_queue

        async def own_queue() -> Any:
            return [replace(record, nodes=("n1",)) for record in await look()]

        sets.bench.asked.own_queue = own_queue  # type: ignore[method-assign]
        answer = await try_until_answered(sets)
        assert isinstance(answer, Accepted)
        handle = parse_set(answer.handle)
        # Its journal is there: a second job of the same launch would go on with it.
        assert {part.native for part in handle.parts} == set(sets.world.jobs) and sets.world.count("sbatch") == 0

    play(story())


def test_a_part_that_may_have_been_taken_back_is_looked_up() -> None:
    async def story() -> None:
        sets = Sets()
        sets.world.behaviour = ["answers", "limit"]
        execute = sets.world.execute

        def lose(call: Call) -> Done | None:
            done = execute(call)
            if call.argv[0] == "scancel":
                raise TimedOut("the link is cut")
            return done

        sets.world.execute = lose  # type: ignore[method-assign]
        with pytest.raises(TimedOut):
            await sets.submit()
        sets.world.execute = execute  # type: ignore[method-assign]
        answer = await try_until_answered(sets)
        assert isinstance(answer, Accepted)
        assert sorted(sets.states()) == ["CANCELLED", "HELD", "HELD"]
        natives = [part.native for part in parse_set(answer.handle).parts]
        assert [sets.world.jobs[native][1] for native in natives] == ["HELD", "HELD"]

    play(story())


@pytest.mark.parametrize("there", [(), ("a",), ("a", "b")])
def test_a_daemon_that_died_between_two_submissions_has_each_job_once(there: tuple[str, ...]) -> None:
    async def story() -> None:
        sets = Sets(started_at=NOW + 1000)
        for task in there:
            sets.world.add(f"inst-1-0/{task}/0", "HELD")
        answer = await try_until_answered(sets)
        assert isinstance(answer, Accepted)
        assert sets.states() == ["HELD", "HELD"] and sets.world.count("sbatch") == 2 - len(there)
        assert sets.world.commands[-1] == ("scontrol", "release", "100,101")
        assert [sets.world.jobs[part.native][0] for part in parse_set(answer.handle).parts] == [
            "inst-1-0/a/0",
            "inst-1-0/b/0",
        ]

    play(story())


def test_a_release_that_was_not_answered_is_made_again() -> None:
    async def story() -> None:
        sets = Sets()
        execute, failures = sets.world.execute, [True]

        def fail_once(call: Call) -> Done | None:
            if call.argv[:2] == ["scontrol", "release"] and failures:
                failures.clear()
                return Done(1, b"", b"scontrol: error: Unable to contact slurm controller (connect failure)\n")
            return execute(call)

        sets.world.execute = fail_once  # type: ignore[method-assign]
        with pytest.raises(OverspanError, match="Unable to contact"):
            await sets.submit()
        assert isinstance(await sets.submit(), Accepted)
        assert sets.world.commands[-1] == ("scontrol", "release", "100,101") and sets.world.count("sbatch") == 2

    play(story())


@pytest.mark.parametrize("state", ["PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT", "RUNNING"])
def test_what_slurm_has_requeued_of_an_unwanted_set_is_ended(state: str) -> None:
    async def story() -> None:
        sets = Sets()
        number = sets.world.add("inst-1-0/a/0", state, 1)
        await sets.sets.release("inst", [], [])
        assert sets.world.jobs[number][1] == "CANCELLED"

    play(story())


def test_native_jobs_are_ended_by_their_tokens() -> None:
    async def story() -> None:
        sets = Sets()
        await sets.sets.end(())
        assert sets.world.commands == []
        numbers = [sets.world.add(f"inst-1-0/{name}", "PENDING", 1) for name in ("a/0", "a/1", "b/0")]
        ended = sets.world.add("inst-1-0/a/0", "COMPLETED")
        await sets.sets.end({PartToken("inst-1-0", "a", 0)})
        assert sets.world.commands[-1] == ("scancel", str(numbers[0]))
        assert [sets.world.jobs[number][1] for number in (*numbers, ended)] == [
            "CANCELLED",
            "PENDING",
            "PENDING",
            "COMPLETED",
        ]

    play(story())
