"""Sets are submitted whole, once for each token, and nothing of them is left when nobody wants them any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.slurm_transport import Trouble
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.adapters.slurm.samples import NOW, read_file
from tests.unit.adapters.slurm.submissions import AT_LIMIT, UNKNOWN_QOS, Bench, bench

from overspan.adapters.contract import Accepted, Decider, Launch, Order, Refusal
from overspan.adapters.slurm.groups.handles import GroupHandle, find_decider, parse_group
from overspan.adapters.slurm.groups.parts import PartToken
from overspan.adapters.slurm.groups.submission import PartSubmitter
from overspan.bridge.model.errors import OverspanError, TimedOut, Unreachable
from overspan.bridge.model.events import Launch as LaunchEvent
from overspan.bridge.runtime.core.job_access import ACCESS, give_access
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.slurm.part_folders import name_part

__all__ = ["bench"]

JOB = read_file("name: g\nexecution: parallel\nrestart: task\n---\nname: a\nrun: x\n---\nname: b\nrun: y\n", 1)


class Sets(Bench):
    """Submissions of sets; job N has the token inst-N-0."""

    def __init__(self, world: SlurmWorld, started_at: float = NOW - 100) -> None:
        super().__init__(world, started_at)
        self.sets = PartSubmitter(self.submitter)

    async def send(self, number: int = 1, at: float = NOW) -> Accepted | Refusal:
        """Submit once. Raises TimedOut where a part is in doubt."""
        answers = await self.sets.submit([Launch(f"inst-{number}-0", replace(JOB, id=number, submitted_at=at))])
        if not answers:
            raise TimedOut(self.submitter.in_doubt)
        (answer,) = answers.values()
        return answer

    async def persist(self, number: int = 1, at: float = NOW) -> Accepted | Refusal:
        """Submit as the daemon does, which tries again while it is not known what Slurm has."""
        for _ in range(8):
            try:
                return await self.send(number, at)
            except OverspanError:
                await self.sleep(11)
        raise AssertionError("no answer")

    async def accept(self, number: int = 1) -> GroupHandle:
        answer = await self.persist(number)
        assert isinstance(answer, Accepted)
        return parse_group(answer.handle)

    def states(self) -> dict[int, str]:
        """The native jobs that were submitted, in words."""
        jobs = self.slurm.jobs.values()
        return {job.id: job.flag or ("HELD" if job.waits and job.held else job.state) for job in jobs}

    def tokens(self) -> dict[int, str]:
        return {job.id: job.request.comment.partition("overspan=")[2] for job in self.slurm.jobs.values()}


@pytest.fixture
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sets:
    """Sets whose native jobs never start: all nodes are down."""
    world = SlurmWorld(tmp_path, monkeypatch)
    for name in world.slurm.nodes:
        world.slurm.drain(name)
    return Sets(world)


def launch_order(attempt: int = 1) -> tuple[Order, LaunchEvent]:
    event = LaunchEvent(NOW, "b", attempt)
    return Order("tok", "m.x", event), event


def test_all_are_held_and_released_together(sets: Sets) -> None:
    async def story() -> None:
        handle = await sets.accept()
        assert [part.task for part in handle.parts] == ["a", "b"]
        assert handle.folder == str(sets.root / "runs" / "inst-1") and handle.token == "inst-1-0"
        assert all(job.request.hold for job in sets.slurm.jobs.values()) and set(sets.states().values()) == {"PENDING"}
        assert sets.transport.asked[-1] == ("scontrol", "release", ",".join(str(part.native) for part in handle.parts))

    sets.play(story())


def test_a_refusal_of_one_takes_the_others_back(sets: Sets) -> None:
    sets.transport.fail("sbatch", UNKNOWN_QOS, 1, after=1)

    async def story() -> None:
        answer = await sets.send()
        assert isinstance(answer, Refusal) and "Invalid qos" in answer.message and answer.token == "inst-1-0"
        assert list(sets.states().values()) == ["CANCELLED"]
        # A later try begins anew.
        assert len((await sets.accept()).parts) == 2

    sets.play(story())


def test_a_job_in_doubt_is_found_and_none_is_there_twice(sets: Sets) -> None:
    sets.transport.fail("sbatch", Trouble.LOST, 1, after=1)

    async def story() -> None:
        with pytest.raises(TimedOut):
            await sets.send()
        assert not any("release" in words for words in sets.transport.asked)
        handle = await sets.accept()
        assert sets.count("sbatch") == 2
        assert {part.native for part in handle.parts} == set(sets.slurm.jobs)

    sets.play(story())


def test_a_set_in_doubt_holds_no_other_back(sets: Sets) -> None:
    sets.transport.fail("sbatch", UNKNOWN_QOS, 1)
    sets.transport.fail("sbatch", Trouble.DROPPED, 1)

    async def story() -> None:
        launches = [Launch(f"inst-{number}-0", replace(JOB, id=number)) for number in (1, 2)]
        answers = await sets.sets.submit(launches)
        assert [type(answer) for answer in answers.values()] == [Accepted] and set(answers) == {"inst-2-0"}
        assert "has job 1 (" in sets.submitter.in_doubt
        # What was refused of the one in doubt is not submitted again meanwhile.
        count = sets.count("sbatch")
        assert await sets.sets.submit(launches[:1]) == {} and sets.count("sbatch") == count
        assert isinstance(await sets.persist(), Refusal)

    sets.play(story())


def test_what_nobody_wants_is_ended_and_what_is_wanted_stays(sets: Sets) -> None:
    async def story() -> None:
        first, second = await sets.accept(1), await sets.accept(2)
        sets.add("other-1-0/a/0")
        sets.add("inst-9-0")
        await sets.sets.release("inst", [str(second)], [])
        ended = {number for number, state in sets.states().items() if state == "CANCELLED"}
        assert ended == {part.native for part in first.parts}

    sets.play(story())


def test_a_release_that_a_controller_has_not_heard_is_told_and_made_again(sets: Sets) -> None:
    """Without an error nobody comes back to it, and the native jobs hold their nodes for ever."""

    async def story() -> None:
        await sets.accept(1)
        sets.transport.fail("scancel", Trouble.REFUSED, 1)
        with pytest.raises(Unreachable):
            await sets.sets.release("inst", [], [])
        assert "CANCELLED" not in sets.states().values()
        await sets.sets.release("inst", [], [])
        assert set(sets.states().values()) == {"CANCELLED"}

    sets.play(story())


def test_what_is_submitted_during_a_release_stays(sets: Sets, monkeypatch: pytest.MonkeyPatch) -> None:
    look = sets.asked.own_queue

    async def own_queue() -> object:
        await sets.accept(2)
        return await look()

    async def story() -> None:
        first = await sets.accept(1)
        with monkeypatch.context() as patch:
            patch.setattr(sets.asked, "own_queue", own_queue)
            await sets.sets.release("inst", [str(first)], [])
        assert "CANCELLED" not in sets.states().values()
        await sets.sets.release("inst", [str(first)], [])
        assert "CANCELLED" in sets.states().values()

    sets.play(story())


def test_without_sets_nobody_is_asked(sets: Sets) -> None:
    async def story() -> None:
        for _ in range(3):
            await sets.sets.release("inst", ["s.1.0.1.0.0.1.30.main"], [])
        # Once, for what an earlier process may have left.
        assert [words[0] for words in sets.transport.commands].count("squeue") == 1

    sets.play(story())


def test_a_replacement_is_submitted_once(sets: Sets) -> None:
    async def story() -> None:
        handle = await sets.accept()
        order, event = launch_order()
        native = await sets.sets.replace(handle, order, event)
        assert isinstance(native, int)
        assert await sets.sets.replace(handle, order, event) == native
        assert (sets.tokens()[native], sets.states()[native]) == ("inst-1-0/b/1", "PENDING")
        assert sets.count("sbatch") == 3

    sets.play(story())


def test_a_deferred_task_is_submitted_by_the_order_that_launches_it(sets: Sets) -> None:
    """It is made of what the set's first part keeps, though the file names it first."""
    head, late = "name: g\nexecution: parallel\nrestart: task\n", "name: late\nneeds: [ok:a]\nrun: z\n"
    job = read_file("---\n".join([head, late, "name: a\nrun: x\n", "name: b\nrun: y\n"]), 1)

    async def story() -> None:
        launch = Launch("inst-1-0", replace(job, submitted_at=NOW))
        (answer,) = (await sets.sets.submit([launch])).values()
        assert isinstance(answer, Accepted) and answer.native_id == "1,2"
        handle = parse_group(answer.handle)
        assert [(part.task, part.deferred) for part in handle.parts] == [("a", False), ("b", False), ("late", True)]
        event = LaunchEvent(NOW, "late", 0)
        order = Order("tok", answer.handle, event)
        native = await sets.sets.replace(handle, order, event)
        assert isinstance(native, int) and await sets.sets.replace(handle, order, event) == native
        assert (sets.tokens()[native], sets.states()[native]) == ("inst-1-0/late/0", "PENDING")
        assert not sets.slurm.jobs[native].request.hold
        orders = sets.root / "runs" / "inst-1" / "members" / "late" / "0" / "orders.0.jsonl"
        assert '"launch"' in orders.read_text().lower()

    sets.play(story())


def test_a_replacement_is_refused_in_slurms_words(sets: Sets) -> None:
    sets.transport.fail("sbatch", UNKNOWN_QOS, 1, after=2)

    async def story() -> None:
        handle = await sets.accept()
        answer = await sets.sets.replace(handle, *launch_order())
        assert isinstance(answer, Refusal) and not answer.transient and "Invalid qos" in answer.message
        assert answer.token == "tok"
        # A later try begins anew.
        assert isinstance(await sets.sets.replace(handle, *launch_order(2)), int)

    sets.play(story())


@pytest.mark.parametrize("forgets", [False, True])
def test_what_was_taken_back_of_a_refused_try_is_no_part_of_the_next(forgets: bool, sets: Sets) -> None:
    """The accounting keeps what squeue has forgotten."""

    async def story() -> None:
        at = sets.world.now()
        # A daemon that began after the job was submitted looks for what an earlier one has sent.
        later = sets.begin_again()
        later.transport.fail("sbatch", AT_LIMIT, 1, after=1)
        answer = await later.persist(at=at)
        assert isinstance(answer, Refusal) and answer.transient and list(sets.states().values()) == ["CANCELLED"]
        if forgets:
            await sets.sleep(400)
            assert sets.states() == {}
        answer = await later.persist(at=at)
        assert isinstance(answer, Accepted)
        assert [sets.states()[part.native] for part in parse_group(answer.handle).parts] == ["PENDING", "PENDING"]

    sets.play(story())


def test_what_started_before_an_answer_came_is_part_of_its_set(sets: Sets) -> None:
    for task in ("a", "b"):
        sets.slurm.jobs[sets.add(f"inst-1-0/{task}/0", "COMPLETED")].nodes = ("node1",)

    async def story() -> None:
        answer = await sets.begin_again().persist()
        assert isinstance(answer, Accepted)
        # Its journal is there: a second job of the same launch would go on with it.
        assert {part.native for part in parse_group(answer.handle).parts} == set(sets.slurm.jobs)
        assert sets.count("sbatch") == 0

    sets.play(story())


def test_a_part_that_may_have_been_taken_back_is_looked_up(sets: Sets) -> None:
    sets.transport.fail("sbatch", AT_LIMIT, 1, after=1)
    sets.transport.fail("scancel", Trouble.LOST, 1)

    async def story() -> None:
        with pytest.raises(OverspanError):
            await sets.send()
        handle = await sets.accept()
        assert sorted(sets.states().values()) == ["CANCELLED", "PENDING", "PENDING"]
        assert [sets.states()[part.native] for part in handle.parts] == ["PENDING", "PENDING"]

    sets.play(story())


@pytest.mark.parametrize("there", [(), ("a",), ("a", "b")])
def test_a_daemon_that_died_between_two_submissions_has_each_job_once(there: tuple[str, ...], sets: Sets) -> None:
    for task in there:
        sets.add(f"inst-1-0/{task}/0", "HELD")

    async def story() -> None:
        answer = await sets.begin_again().persist()
        assert isinstance(answer, Accepted)
        parts = parse_group(answer.handle).parts
        assert set(sets.states().values()) == {"PENDING"} and sets.count("sbatch") == 2 - len(there)
        assert ("scontrol", "release", ",".join(str(part.native) for part in parts)) in sets.transport.asked
        assert [sets.tokens()[part.native] for part in parts] == ["inst-1-0/a/0", "inst-1-0/b/0"]

    sets.play(story())


def test_a_release_that_was_not_answered_is_made_again(sets: Sets) -> None:
    async def story() -> None:
        # The site's settings are asked for by scontrol too.
        await sets.asked.site()
        sets.transport.fail("scontrol", Trouble.REFUSED, 1)
        with pytest.raises(OverspanError, match="Unable to contact"):
            await sets.send()
        assert isinstance(await sets.send(), Accepted)
        assert sets.transport.asked[-1] == ("scontrol", "release", "1,2") and sets.count("sbatch") == 2
        assert set(sets.states().values()) == {"PENDING"}

    sets.play(story())


@pytest.mark.parametrize("state", ["PENDING", "HELD"])
def test_what_slurm_has_requeued_of_an_unwanted_set_is_ended(state: str, sets: Sets) -> None:
    number = sets.add("inst-1-0/a/0", state, 1)

    async def story() -> None:
        await sets.sets.release("inst", [], [])
        assert sets.states()[number] == "CANCELLED"

    sets.play(story())


@pytest.mark.parametrize("handle", ['{"format":99,"parts":[]}', "{torn", "g.torn"])
def test_nothing_is_ended_beside_a_handle_of_another_version(handle: str, sets: Sets) -> None:
    number = sets.add("inst-1-0/a/0", "RUNNING")
    assert find_decider(handle) is Decider.SUPERVISOR

    async def story() -> None:
        await sets.sets.release("inst", [handle], [])
        assert sets.states()[number] == "RUNNING"

    sets.play(story())


@pytest.mark.parametrize("state", ["REQUEUE_HOLD", "SPECIAL_EXIT", "RUNNING"])
def test_what_slurm_shows_of_a_requeue_does_not_matter(state: str, sets: Sets) -> None:
    number = sets.add("inst-1-0/a/0", state, 1)

    async def story() -> None:
        await sets.sets.release("inst", [], [])
        assert sets.transport.asked[-1] == ("scancel", str(number))

    sets.play(story())


def test_native_jobs_are_ended_by_their_tokens(sets: Sets) -> None:
    numbers = [sets.add(f"inst-1-0/{name}", "PENDING", 1) for name in ("a/0", "a/1", "b/0")]
    ended = sets.add("inst-1-0/a/0", "COMPLETED")

    async def story() -> None:
        await sets.sets.end(())
        assert sets.transport.asked == []
        await sets.sets.end({PartToken("inst-1-0", "a", 0)})
        assert sets.transport.asked[-1] == ("scancel", str(numbers[0]))
        assert [sets.states()[number] for number in (*numbers, ended)] == [
            "CANCELLED",
            "PENDING",
            "PENDING",
            "COMPLETED",
        ]

    sets.play(story())


@pytest.mark.parametrize("together", [True, False], ids=["allocation", "set"])
def test_what_leads_a_group_to_the_daemon_goes_with_the_group(bench: Bench, together: bool) -> None:
    """Its supervisors write the file when they start."""
    text = "name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: b\nrun: y\n"
    job = read_file(text if together else text.replace("\n", "\nrestart: task\n", 1), 1)

    async def story() -> None:
        launch = Launch("inst-1-0", job, access="{}")
        answers = await (bench.submitter if together else PartSubmitter(bench.submitter)).submit([launch])
        (answer,) = answers.values()
        assert isinstance(answer, Accepted)
        part = "" if together else name_part("a", "0")
        directory = RunDirectory(str(bench.root / "runs" / "inst-1"), 0, part)
        assert directory.read_plan().access == "{}"
        file = Path(give_access(directory.path, "{}", ("true",))[ACCESS])
        references = bench.submitter.references
        references.note_watched([answer.handle])
        await references.release(str(bench.root), "inst", [answer.handle], ())
        assert file.exists()
        await references.release(str(bench.root), "inst", (), ())
        assert not file.exists()

    bench.play(story())
