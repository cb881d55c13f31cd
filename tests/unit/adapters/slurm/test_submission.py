"""Once for each token: an sbatch that answers, refuses, answers late, twice or never."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from tests.unit.adapters.slurm.samples import NOW, read_file, read_script

from overspan.adapters.contract import Accepted, Launch, Node, Refusal
from overspan.adapters.slurm.arrays import Key
from overspan.adapters.slurm.handles import parse_handle
from overspan.adapters.slurm.library import name_archive
from overspan.adapters.slurm.listings import Limit
from overspan.adapters.slurm.questions import Questions, Site
from overspan.adapters.slurm.rendering import Renderer
from overspan.adapters.slurm.script import find_token
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.squeue import QueueRecord
from overspan.adapters.slurm.states import read_state
from overspan.adapters.slurm.submission import Submitter
from overspan.adapters.slurm.transports.channel import NO_VARIABLES, Call, Done, Item, Piece
from overspan.bridge.model.errors import NotFound, OverspanError, TimedOut, Unreachable
from overspan.bridge.model.job import Job

T = TypeVar("T")
SITE = Site((22, 5), {"MessageTimeout": "10 sec", "AccountingStorageType": "accounting_storage/slurmdbd"}, "ada", "/h")
TIMED_OUT = Done(1, b"", b"sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n")


GROUP = read_file("name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n", 1)


class World:
    """A controller: native jobs by their comment, and what the next sbatch does."""

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[str, str, int]] = {}
        self.forgotten: dict[int, str] = {}
        self.commands: list[tuple[str, ...]] = []
        self.behaviour: list[str] = []
        self.delayed: list[str] = []

    def add(self, token: str, state: str = "PENDING", restarts: int = 0) -> int:
        number = 100 + len(self.jobs) + len(self.forgotten)
        self.jobs[number] = (token, state, restarts)
        return number

    def land(self) -> None:
        """What was on its way arrives."""
        for token in self.delayed:
            self.add(token)
        self.delayed.clear()

    def execute(self, call: Call) -> Done | None:
        self.commands.append(tuple(call.argv))
        if call.argv[0] != "sbatch":
            if call.argv[0] == "scancel":
                token, _, restarts = self.jobs[int(call.argv[-1])]
                self.jobs[int(call.argv[-1])] = (token, "CANCELLED", restarts)
            return Done(0, b"", b"")
        token = find_token(next(word for word in call.argv if word.startswith("--comment=")).partition("=")[2])
        held = "--hold" in call.argv or b"#SBATCH --hold" in call.stdin
        how = self.behaviour.pop(0) if self.behaviour else "answers"
        if how == "answers":
            return Done(0, f"{self.add(token, 'HELD' if held else 'PENDING')}\n".encode(), b"")
        if how == "refuses":
            return Done(1, b"", b"sbatch: error: Batch job submission failed: Invalid qos specification\n")
        if how == "limit":
            reason = (
                b"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates\n"
            )
            return Done(1, b"", reason)
        if how == "no answer":
            self.add(token)
            return TIMED_OUT
        if how == "cut":
            self.add(token)
            return None
        if how == "late":
            self.delayed.append(token)
            return TIMED_OUT
        if how == "down":
            return Done(1, b"", b"sbatch: error: Unable to contact slurm controller (connect failure)\n")
        assert how == "never"
        return TIMED_OUT

    def records(self) -> tuple[QueueRecord, ...]:
        return tuple(record(number, *facts) for number, facts in self.jobs.items())

    def count(self, command: str) -> int:
        return sum(words[0] == command for words in self.commands)


class Wire:
    def __init__(self, world: World) -> None:
        self.world = world
        self.files: dict[str, bytes] = {}

    async def run_all(self, calls: Sequence[Call], timeout: float = 60.0) -> list[Done | None]:
        return [self.world.execute(call) for call in calls]

    async def run(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        environment: Mapping[str, str] = NO_VARIABLES,
        timeout: float = 60.0,
    ) -> Done:
        done = self.world.execute(Call(argv, stdin, environment))
        assert done is not None
        return done

    async def read(self, path: str, offset: int, limit: int) -> Piece:
        if path not in self.files:
            raise NotFound(f"no {path}")
        return Piece(self.files[path], len(self.files[path]))

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        if path.startswith("/full"):
            raise OverspanError(f"{path} cannot be written: No space left on device")
        self.files[path] = data

    async def list(self, path: str) -> list[Item]:
        return []

    async def close(self) -> None:
        pass


class Asked(Questions):
    def __init__(self, world: World) -> None:
        self.wire = Wire(world)
        super().__init__(self.wire, 10)
        self.world = world
        self.dumb = False

    async def site(self) -> Site:
        return SITE

    async def nodes(self) -> list[Node]:
        return [Node(f"n{number}", "main", "idle", 4, 0, 4000, 0) for number in range(2)]

    async def own_queue(self) -> tuple[QueueRecord, ...]:
        self.world.commands.append(("squeue",))
        if self.dumb:
            raise Unreachable("no answer")
        return self.world.records()

    async def find_in_accounts(self, keys: Iterable[Key], since: float) -> dict[Key, int]:
        found = {Key(token): number for number, token in self.world.forgotten.items()}
        return {key: found[key] for key in keys if key in found}


def record(number: int, token: str, state: str, restarts: int) -> QueueRecord:
    held = state == "HELD"
    return QueueRecord(
        shown=str(number),
        raw=number,
        array_job=None,
        array_index=None,
        waiting=None,
        het_job=None,
        het_offset=None,
        state=read_state("PENDING" if held else state),
        reason="JobHeldUser" if held else "None",
        exit=None,
        restarts=restarts,
        user="ada",
        partition="main",
        nodes=(),
        batch_host="",
        num_nodes=1,
        submit=NOW,
        start=None,
        end=None,
        limit=Limit(None),
        used=None,
        priority=1,
        name="x",
        comment=f"overspan={token}",
    )


class Bench:
    def __init__(self, started_at: float = NOW - 100, root: str = "/r", world: World | None = None) -> None:
        self.world = world or World()
        self.asked = Asked(self.world)
        self.submitter = Submitter(self.asked, Renderer(Settings(), root), started_at)
        self.now = 1000.0
        self.submitter.monotonic = lambda: self.now

    async def submit(self, *launches: Launch) -> list[Accepted | Refusal]:
        return await self.submitter.submit(launches)

    async def persist(self, launch: Launch) -> Accepted:
        """Try again, as the daemon does, until there is an answer."""
        for _ in range(20):
            try:
                (answer,) = await self.submit(launch)
            except TimedOut:
                self.now += 4
                continue
            assert isinstance(answer, Accepted)
            return answer
        raise AssertionError("never answered")


def launch(number: int = 1, launches: int = 0, job: Job | None = None) -> Launch:
    job = job or read_script("#!/bin/sh\ntrue\n", number=number)
    return Launch(f"inst-{number}-{launches}", replace(job, launch=launches))


def play(story: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(story)


class TestSubmission:
    def test_a_fresh_launch_costs_one_call(self) -> None:
        bench = Bench()
        (answer,) = play(bench.submit(launch()))
        assert isinstance(answer, Accepted)
        assert parse_handle(answer.handle).native == 100
        assert [words[0] for words in bench.world.commands] == ["sbatch"]

    def test_a_token_is_submitted_once(self) -> None:
        bench = Bench()
        first = play(bench.submit(launch(), launch(2)))
        assert play(bench.submit(launch(), launch(2))) == first
        assert bench.world.count("sbatch") == 2

    def test_a_rejection_is_final_and_in_slurms_words(self) -> None:
        bench = Bench()
        bench.world.behaviour = ["refuses", "answers"]
        refusal, accepted = play(bench.submit(launch(), launch(2)))
        assert isinstance(refusal, Refusal) and not refusal.transient
        assert refusal.message == "Batch job submission failed: Invalid qos specification"
        assert isinstance(accepted, Accepted)

    def test_a_limit_passes(self) -> None:
        bench = Bench()
        bench.world.behaviour = ["limit"]
        (refusal,) = play(bench.submit(launch()))
        assert isinstance(refusal, Refusal) and refusal.transient
        assert isinstance(play(bench.submit(launch()))[0], Accepted)

    def test_a_controller_that_is_down_loses_no_answer(self) -> None:
        bench = Bench()
        bench.world.behaviour = ["answers", "down"]
        with pytest.raises(Unreachable):
            play(bench.submit(launch(), launch(2)))
        first, second = play(bench.submit(launch(), launch(2)))
        assert isinstance(first, Accepted) and isinstance(second, Accepted)
        assert len(bench.world.jobs) == 2

    def test_an_array_as_a_whole_is_refused(self) -> None:
        (refusal,) = play(Bench().submit(launch(job=read_script("#!/bin/sh\n#SBATCH --array=1-2\ntrue\n"))))
        assert isinstance(refusal, Refusal) and not refusal.transient

    def test_secrets_travel_as_a_file(self) -> None:
        bench = Bench()
        job = read_file("name: t\nsecrets: {TOKEN: very-secret}\nrun: x\n")
        play(bench.submit(launch(job=job)))
        assert bench.asked.wire.files == {"/r/runs/inst-1/secrets": b"export TOKEN=very-secret\n"}
        assert "very-secret" not in str(bench.world.commands)

    def test_a_full_home_holds_only_that_job_back(self) -> None:
        bench = Bench(root="/full")
        job = read_file("name: t\nsecrets: {TOKEN: x}\nrun: x\n")
        refusal, accepted = play(bench.submit(launch(job=job), launch(2)))
        assert isinstance(refusal, Refusal) and refusal.transient and "No space left" in refusal.message
        assert isinstance(accepted, Accepted)


class TestDoubt:
    @pytest.mark.parametrize("how", ["no answer", "cut"])
    def test_what_is_there_is_found(self, how: str) -> None:
        bench = Bench()
        bench.world.behaviour = [how]
        answer = play(bench.persist(launch()))
        assert answer.native_id == "100"
        assert bench.world.count("sbatch") == 1

    def test_what_is_not_there_twice_is_submitted_again_held_and_released(self) -> None:
        bench = Bench()
        bench.world.behaviour = ["never"]
        began = bench.now
        answer = play(bench.persist(launch()))
        assert bench.now - began >= 10
        assert bench.world.count("sbatch") == 2
        assert any("--hold" in words for words in bench.world.commands)
        assert ("scontrol", "release", answer.native_id) in bench.world.commands

    def test_what_comes_late_is_the_one_that_stays(self) -> None:
        bench = Bench()
        bench.world.behaviour = ["late"]
        submit_again = bench.submitter._send_again

        async def land_and_send(ones: Sequence[Launch]) -> None:
            bench.world.land()
            await submit_again(ones)

        bench.submitter._send_again = land_and_send  # type: ignore[assignment,method-assign]
        answer = play(bench.persist(launch()))
        alive = [number for number, (_, state, _) in bench.world.jobs.items() if state != "CANCELLED"]
        assert alive == [int(answer.native_id)]

    def test_what_has_ended_long_ago_is_found_in_the_accounting(self) -> None:
        bench = Bench(started_at=NOW + 100)
        bench.world.forgotten[77] = "inst-1-0"
        answer = play(bench.persist(launch()))
        assert answer.native_id == "77"
        assert bench.world.count("sbatch") == 0

    def test_an_earlier_process_may_have_submitted_it(self) -> None:
        bench = Bench(started_at=NOW + 100)
        number = bench.world.add("inst-1-0", "RUNNING")
        assert play(bench.persist(launch())).native_id == str(number)
        assert bench.world.count("sbatch") == 0

    def test_no_answer_to_a_look_is_no_look(self) -> None:
        bench = Bench()
        bench.world.behaviour = ["never"]

        async def story() -> None:
            with pytest.raises(TimedOut):
                await bench.submit(launch())
            bench.asked.dumb = True
            for _ in range(5):
                bench.now += 20
                with pytest.raises(Unreachable):
                    await bench.submit(launch())
            assert bench.world.count("sbatch") == 1
            bench.asked.dumb = False
            await bench.persist(launch())

        play(story())
        assert bench.world.count("sbatch") == 2

    def test_a_controller_that_goes_down_meanwhile_changes_nothing(self) -> None:
        bench = Bench()
        bench.world.behaviour = ["never", "down", "down"]

        async def story() -> Accepted:
            for _ in range(40):
                try:
                    (answer,) = await bench.submit(launch())
                except (TimedOut, Unreachable):
                    bench.now += 4
                    continue
                assert isinstance(answer, Accepted)
                return answer
            raise AssertionError("never answered")

        answer = play(story())
        assert list(bench.world.jobs) == [int(answer.native_id)]
        assert bench.world.jobs[int(answer.native_id)][1] == "HELD"
        assert ("scontrol", "release", answer.native_id) in bench.world.commands

    def test_others_of_the_batch_are_not_submitted_again(self) -> None:
        bench = Bench()
        bench.world.behaviour = ["answers", "never", "answers"]

        async def story() -> None:
            for _ in range(20):
                try:
                    await bench.submit(launch(1), launch(2), launch(3))
                    return
                except TimedOut:
                    bench.now += 4

        play(story())
        assert sorted(token for token, _, _ in bench.world.jobs.values()) == ["inst-1-0", "inst-2-0", "inst-3-0"]


class TestGroups:
    def test_a_group_brings_its_files_and_the_application_once(self) -> None:
        bench = Bench()
        answer, _ = play(bench.submit(launch(job=GROUP), launch(2)))
        assert isinstance(answer, Accepted)
        assert answer.handle == "g.100.1.0.30./r/runs/inst-1"
        folder = "/r/runs/inst-1"
        library = f"/r/lib/{name_archive()}"
        assert bench.asked.wire.files.keys() == {f"{folder}/plan.0.json", f"{folder}/placement.0.json", library}
        assert bench.asked.wire.files[library].startswith(b"PK")
        bench.asked.wire.files[library] = b"as it was"
        play(bench.submit(launch(3, job=replace(GROUP, id=3))))
        assert bench.asked.wire.files[library] == b"as it was"

    def test_what_fits_on_no_nodes_is_refused_with_the_reason(self) -> None:
        wide = read_file("name: g\nnum_nodes: 3\nrun: x\n", 1)
        refusal, accepted = play(Bench().submit(launch(job=wide), launch(2)))
        assert isinstance(refusal, Refusal) and not refusal.transient
        assert refusal.message.startswith("Requested node configuration is not available\nthere are 2 usable nodes")
        assert isinstance(accepted, Accepted)

    def test_a_full_root_holds_the_group_back(self) -> None:
        (refusal,) = play(Bench(root="/full").submit(launch(job=GROUP)))
        assert isinstance(refusal, Refusal) and refusal.transient and "No space left" in refusal.message

    def test_the_next_launch_is_a_new_allocation_and_the_earlier_one_is_ended(self) -> None:
        bench = Bench()
        left = bench.world.add("inst-1-0", "RUNNING")
        (answer,) = play(bench.submit(launch(launches=1, job=GROUP)))
        assert isinstance(answer, Accepted) and answer.native_id != str(left)
        assert ("scancel", str(left)) in bench.world.commands
        assert "/r/runs/inst-1/plan.1.json" in bench.asked.wire.files

    def test_a_group_in_doubt_is_found(self) -> None:
        bench = Bench()
        bench.world.behaviour = ["no answer"]
        answer = play(bench.persist(launch(job=GROUP)))
        assert answer.handle.startswith("g.100.")
        assert bench.world.count("sbatch") == 1


class TestRequeued:
    def test_the_next_launch_is_the_job_that_slurm_has_requeued(self) -> None:
        bench = Bench()
        number = bench.world.add("inst-1-0", "PENDING", 2)
        (answer,) = play(bench.submit(launch(launches=1)))
        assert isinstance(answer, Accepted)
        handle = parse_handle(answer.handle)
        assert (handle.native, handle.run, handle.launch) == (number, 2, 1)
        assert bench.world.count("sbatch") == 0

    def test_one_that_waits_held_is_released(self) -> None:
        bench = Bench()
        number = bench.world.add("inst-1-0", "HELD", 1)
        play(bench.submit(launch(launches=1)))
        assert ("scontrol", "release", str(number)) in bench.world.commands

    def test_one_that_is_over_is_not_taken_up(self) -> None:
        bench = Bench()
        bench.world.add("inst-1-0", "NODE_FAIL")
        (answer,) = play(bench.submit(launch(launches=1)))
        assert isinstance(answer, Accepted)
        assert bench.world.count("sbatch") == 1
