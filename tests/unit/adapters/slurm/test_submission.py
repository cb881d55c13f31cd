"""Once for each token: an sbatch that answers, refuses, answers late, twice or never."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.adapters.slurm.records import mark, run
from tests.unit.adapters.slurm.samples import NOW, read_file, read_script
from tests.unit.adapters.slurm.submissions import Bench, Wire, launch, play

from overspan.adapters.contract import NOT_HERE, Accepted, Refusal
from overspan.adapters.slurm.commands.errors import read_failure
from overspan.adapters.slurm.files.application import name_archive
from overspan.adapters.slurm.handles import parse_handle
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.bridge.model.errors import TimedOut, Unreachable
from overspan.bridge.model.job import Job

SECRET = read_file("name: t\nsecrets: {TOKEN: x}\nrun: x\n")
GROUP = read_file("name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n", 1)


class WritingHere(Wire):
    """A link that writes the files of this machine."""

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        await LocalTransport().write(path, data, mode)


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


class TestUnwritable:
    """A root that takes no file refuses jobs of every form; a full one has them wait."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        path = tmp_path / "file"
        path.touch()
        return f"{path}/root"

    def submit(self, root: str, job: Job) -> Refusal:
        bench = Bench(root=root)
        bench.asked.transport = WritingHere(bench.world)
        (answer,) = play(bench.submit(launch(job=job)))
        assert isinstance(answer, Refusal)
        return answer

    @pytest.mark.parametrize("job", [SECRET, GROUP], ids=["single", "group"])
    def test_no_job_waits_for_a_root_that_takes_no_file(self, job: Job, file: str) -> None:
        refusal = self.submit(file, job)
        assert not refusal.transient and "Not a directory" in refusal.message

    def test_a_group_is_told_what_to_mend(self, file: str) -> None:
        assert "\nset `root` of the cluster to a folder" in self.submit(file, GROUP).message

    def test_a_single_job_whose_folder_cannot_be_made_is_told_alike(self) -> None:
        assert not read_failure("mkdir: cannot create directory ‘/r’: Permission denied", 1).transient
        failure = read_failure("mkdir: cannot create directory ‘/r’: No space left on device", 1)
        assert failure.transient and not failure.uncertain and failure.remedy


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

    def test_one_that_was_submitted_again_held_and_is_in_doubt_itself_is_released(self) -> None:
        bench = Bench()
        bench.world.behaviour = ["never", "no answer"]
        answer = play(bench.persist(launch()))
        assert bench.world.count("sbatch") == 2
        assert ("scontrol", "release", answer.native_id) in bench.world.commands

    def test_what_comes_late_is_the_one_that_stays(self) -> None:
        bench = Bench()
        bench.world.behaviour = ["late"]
        answer = play(bench.persist(launch()))
        alive = [number for number, (_, state, _) in bench.world.jobs.items() if state != "CANCELLED"]
        assert alive == [int(answer.native_id)]

    def test_what_nobody_wants_any_more_is_looked_for_and_never_submitted(self) -> None:
        """Three looks: nobody would look again after them."""
        bench = Bench()
        bench.world.behaviour = ["never"]
        unwanted = replace(launch(), wanted=False)

        async def story() -> Refusal:
            with pytest.raises(TimedOut):
                await bench.submit(launch())
            began = bench.now
            for _ in range(20):
                try:
                    (answer,) = await bench.submit(unwanted)
                except TimedOut:
                    bench.now += 4
                    continue
                assert isinstance(answer, Refusal) and bench.now - began >= 20
                return answer
            raise AssertionError("never answered")

        refusal = play(story())
        assert (refusal.message, refusal.transient) == (NOT_HERE, False)
        assert bench.world.count("sbatch") == 1 and bench.world.jobs == {}

    def test_what_nobody_wants_any_more_is_found_and_stays_held(self) -> None:
        bench = Bench(started_at=NOW + 100)
        number = bench.world.add("inst-1-0", "HELD")
        held = replace(launch(), wanted=False)
        assert play(bench.persist(replace(held, job=replace(held.job, held=True)))).native_id == str(number)
        assert bench.world.count("sbatch") == bench.world.count("scontrol") == 0

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
        assert refusal.message.startswith("Requested node configuration is not available\nthere are 2 nodes")
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
    @pytest.mark.parametrize(
        "state",
        [
            "COMPLETING",
            "STAGE_OUT",
            "PENDING",
            "HELD",
            "REQUEUED",
            "REQUEUE_HOLD",
            "SPECIAL_EXIT",
            "LAUNCH_FAILED",
            "CONFIGURING",
            "RUNNING",
            "SUSPENDED",
            "RESV_DEL_HOLD",
            "EXPEDITING",
            "COMPLETED",
            "FAILED",
            "NODE_FAIL",
        ],
    )
    def test_the_next_launch_is_the_job_that_slurm_has_requeued_whatever_it_shows(self, state: str) -> None:
        bench = Bench()
        number = bench.world.add("inst-1-0", state, 1)
        (answer,) = play(bench.submit(launch(launches=1)))
        assert isinstance(answer, Accepted)
        handle = parse_handle(answer.handle)
        assert (handle.native, handle.run, handle.launch) == (number, 1, 1)
        assert bench.world.count("sbatch") == 0

    def test_each_launch_is_the_next_run_of_it(self) -> None:
        bench = Bench()
        number = bench.world.add("inst-1-0", "PENDING", 3)
        for launches in (1, 2, 3):
            (answer,) = play(bench.submit(launch(launches=launches)))
            assert isinstance(answer, Accepted)
            assert (parse_handle(answer.handle).native, parse_handle(answer.handle).run) == (number, launches)
        assert bench.world.count("sbatch") == 0

    def test_one_that_slurm_holds_stays_held(self) -> None:
        bench = Bench()
        bench.world.add("inst-1-0", "HELD", 1)
        play(bench.submit(launch(launches=1)))
        assert bench.world.count("scontrol") == 0

    @pytest.mark.parametrize("state", ["COMPLETING", "STAGE_OUT"])
    def test_nothing_is_submitted_while_it_is_not_to_be_seen_whether_it_comes_back(self, state: str) -> None:
        bench = Bench()
        number = bench.world.add("inst-1-0", state, 0)
        (refusal,) = play(bench.submit(launch(launches=1)))
        assert isinstance(refusal, Refusal) and refusal.transient and refusal.reason == "Cleaning"
        bench.world.jobs[number] = ("inst-1-0", "NODE_FAIL", 0)
        (answer,) = play(bench.submit(launch(launches=1)))
        assert isinstance(answer, Accepted) and answer.native_id != str(number)
        assert bench.world.count("sbatch") == 1

    def test_one_that_is_over_is_not_taken_up(self) -> None:
        bench = Bench()
        bench.world.add("inst-1-0", "NODE_FAIL")
        (answer,) = play(bench.submit(launch(launches=1)))
        assert isinstance(answer, Accepted)
        assert bench.world.count("sbatch") == 1

    def test_a_run_that_the_queue_has_forgotten_is_not_run_again(self) -> None:
        bench = Bench()
        bench.world.forgotten[77] = "inst-1-0"
        bench.asked.kept["77"] = [run(mark("inst-1-0"), "NODE_FAIL"), run(mark("inst-1-0"), "COMPLETED", NOW + 9)]
        (answer,) = play(bench.submit(launch(launches=1)))
        assert isinstance(answer, Accepted)
        assert (parse_handle(answer.handle).native, parse_handle(answer.handle).run) == (77, 1)
        (again,) = play(bench.submit(launch(launches=2)))
        assert isinstance(again, Accepted) and again.native_id != "77"

    def test_a_group_whose_allocation_slurm_has_requeued_has_that_ended(self) -> None:
        bench = Bench()
        left = bench.world.add("inst-1-0", "COMPLETING", 1)
        play(bench.submit(launch(launches=1, job=GROUP)))
        assert ("scancel", str(left)) in bench.world.commands


def test_one_that_ran_and_ended_while_it_was_in_doubt_is_the_one_that_counts() -> None:
    bench = Bench()
    bench.world.behaviour = ["late"]
    bench.world.before_again = lambda: bench.world.jobs.update({100: ("inst-1-0", "COMPLETED", 0)})
    assert play(bench.persist(launch())).native_id == "100"
    assert bench.world.jobs[101][1] == "CANCELLED"
