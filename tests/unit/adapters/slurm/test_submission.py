"""Once for each token: an sbatch that answers, refuses, answers late, twice or never."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.slurm_jobs import Behaviour, Request
from tests.fakes.slurm_transport import Trouble
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.adapters.slurm.samples import read_file, read_script
from tests.unit.adapters.slurm.submissions import AT_LIMIT, UNKNOWN_QOS, Bench, bench, launch

from overspan.adapters.contract import NOT_HERE, Accepted, Launch, Refusal
from overspan.adapters.slurm.commands.errors import read_failure
from overspan.adapters.slurm.files.application import name_archive
from overspan.adapters.slurm.groups.handles import GroupHandle, GroupPart, parse_group
from overspan.adapters.slurm.handles import parse_any, parse_handle
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.model.errors import OverspanError, TimedOut, Unreachable
from overspan.bridge.model.job import Job

__all__ = ["bench"]

SECRET = read_file("name: t\nsecrets: {TOKEN: very-secret}\nrun: x\n")
GROUP = read_file("name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n", 1)


def fill_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no room on the cluster's disk."""

    async def write(path: str, data: bytes, mode: int = 0o600) -> None:
        raise OverspanError(f"{path} cannot be written: No space left on device")

    monkeypatch.setattr(bench.transport, "write", write)


class TestSubmission:
    def test_a_fresh_launch_costs_one_call(self, bench: Bench) -> None:
        async def story() -> None:
            first = await bench.accepted(launch())
            assert parse_handle(first.handle).native == 1
            bench.transport.asked.clear()
            await bench.accepted(launch(2))
            assert [words[0] for words in bench.transport.asked] == ["sbatch"]

        bench.play(story())

    def test_a_token_is_submitted_once(self, bench: Bench) -> None:
        async def story() -> None:
            first = await bench.attempt(launch(), launch(2))
            assert await bench.attempt(launch(), launch(2)) == first
            assert bench.count("sbatch") == 2

        bench.play(story())

    def test_a_rejection_is_final_and_in_slurms_words(self, bench: Bench) -> None:
        bench.transport.fail("sbatch", UNKNOWN_QOS, 1)

        async def story() -> None:
            refusal, accepted = await bench.attempt(launch(), launch(2))
            assert isinstance(refusal, Refusal) and not refusal.transient
            assert refusal.message == "Batch job submission failed: Invalid qos specification"
            assert isinstance(accepted, Accepted)

        bench.play(story())

    def test_a_limit_passes(self, bench: Bench) -> None:
        bench.transport.fail("sbatch", AT_LIMIT, 1)

        async def story() -> None:
            (refusal,) = await bench.attempt(launch())
            assert isinstance(refusal, Refusal) and refusal.transient
            assert isinstance((await bench.attempt(launch()))[0], Accepted)

        bench.play(story())

    def test_a_controller_that_is_down_loses_no_answer(self, bench: Bench) -> None:
        bench.transport.fail("sbatch", Trouble.REFUSED, 1, after=1)

        async def story() -> None:
            with pytest.raises(Unreachable):
                await bench.attempt(launch(), launch(2))
            first, second = await bench.attempt(launch(), launch(2))
            assert isinstance(first, Accepted) and isinstance(second, Accepted)
            assert len(bench.slurm.jobs) == 2

        bench.play(story())

    def test_an_array_as_a_whole_is_refused(self, bench: Bench) -> None:
        async def story() -> None:
            (refusal,) = await bench.attempt(launch(job=read_script("#!/bin/sh\n#SBATCH --array=1-2\ntrue\n")))
            assert isinstance(refusal, Refusal) and not refusal.transient

        bench.play(story())

    def test_secrets_travel_as_a_file(self, bench: Bench) -> None:
        async def story() -> None:
            await bench.accepted(launch(job=SECRET))
            file = bench.root / "runs" / "inst-1" / "secrets"
            assert (file.read_text(), file.stat().st_mode & 0o777) == ("export TOKEN=very-secret\n", 0o600)
            assert "very-secret" not in str(bench.transport.asked)

        bench.play(story())

    def test_a_full_home_holds_only_that_job_back(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        fill_up(bench, monkeypatch)

        async def story() -> None:
            refusal, accepted = await bench.attempt(launch(job=SECRET), launch(2))
            assert isinstance(refusal, Refusal) and refusal.transient and "No space left" in refusal.message
            assert isinstance(accepted, Accepted)

        bench.play(story())


class TestUnwritable:
    """A root that takes no file refuses jobs of every form; a full one has them wait."""

    def submit(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, job: Job) -> Refusal:
        bench.root.touch()
        with pytest.raises(OverspanError) as caught:
            asyncio.run(LocalTransport().write(f"{bench.root}/runs/inst-1/file", b""))

        async def write(path: str, data: bytes, mode: int = 0o600) -> None:
            raise caught.value

        monkeypatch.setattr(bench.transport, "write", write)
        found: list[Refusal] = []

        async def story() -> None:
            (answer,) = await bench.attempt(launch(job=job))
            assert isinstance(answer, Refusal)
            found.append(answer)

        bench.play(story())
        return found[0]

    @pytest.mark.parametrize("job", [SECRET, GROUP], ids=["single", "group"])
    def test_no_job_waits_for_a_root_that_takes_no_file(
        self, job: Job, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refusal = self.submit(bench, monkeypatch, job)
        assert not refusal.transient and "Not a directory" in refusal.message

    def test_a_group_is_told_what_to_mend(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "\nset `root` of the cluster to a folder" in self.submit(bench, monkeypatch, GROUP).message

    def test_a_single_job_whose_folder_cannot_be_made_is_told_alike(self) -> None:
        assert not read_failure("mkdir: cannot create directory ‘/r’: Permission denied", 1).transient
        failure = read_failure("mkdir: cannot create directory ‘/r’: No space left on device", 1)
        assert failure.transient and not failure.uncertain and failure.remedy


class TestDoubt:
    @pytest.mark.parametrize("trouble", [Trouble.TIMED_OUT, Trouble.LOST])
    def test_what_is_there_is_found(self, trouble: Trouble, bench: Bench) -> None:
        bench.transport.fail("sbatch", trouble, 1)

        async def story() -> None:
            answer = await bench.accepted(launch())
            assert (answer.native_id, bench.count("sbatch")) == ("1", 1)

        bench.play(story())

    @pytest.mark.parametrize("second", [None, Trouble.TIMED_OUT])
    def test_what_is_not_there_twice_is_submitted_again_held_and_released(
        self, second: Trouble | None, bench: Bench
    ) -> None:
        """Also where the second one is in doubt itself."""
        bench.transport.fail("sbatch", Trouble.DROPPED, 1)
        if second is not None:
            bench.transport.fail("sbatch", second, 1)
        bench.transport.behave = lambda job: Behaviour(None)

        async def story() -> None:
            began = bench.world.now()
            answer = await bench.accepted(launch())
            assert bench.world.now() - began >= 10
            assert bench.count("sbatch") == 2
            (job,) = bench.slurm.jobs.values()
            assert job.request.hold and not job.held
            assert ("scontrol", "release", answer.native_id) in bench.transport.asked

        bench.play(story())

    def test_what_comes_late_is_the_one_that_stays(self, bench: Bench) -> None:
        bench.transport.fail("sbatch", Trouble.LATE, 1)
        bench.transport.behave = lambda job: Behaviour(None)

        async def story() -> None:
            answer = await bench.accepted(launch())
            assert bench.count("sbatch") == 2 and bench.alive() == [int(answer.native_id)]

        bench.play(story())

    @pytest.mark.parametrize(("verb", "after"), [("scontrol", 1), ("squeue", 2)])
    def test_what_was_submitted_held_is_released_although_the_controller_is_away_meanwhile(
        self, verb: str, after: int, bench: Bench
    ) -> None:
        """As for seconds after it was killed. `after`: what is asked before it comes through."""
        bench.transport.fail("sbatch", Trouble.DROPPED, 1)
        bench.transport.fail(verb, Trouble.REFUSED, 1, after=after)
        bench.transport.behave = lambda job: Behaviour(None)

        async def story() -> None:
            answer = await bench.accepted(launch())
            assert bench.count("sbatch") == 2
            assert not bench.slurm.jobs[int(answer.native_id)].held and bench.alive() == [int(answer.native_id)]

        bench.play(story())

    def test_what_comes_late_is_the_one_that_stays_although_the_controller_is_away_meanwhile(
        self, bench: Bench
    ) -> None:
        bench.transport.fail("sbatch", Trouble.LATE, 1)
        bench.transport.fail("scancel", Trouble.REFUSED, 1)
        bench.transport.behave = lambda job: Behaviour(None)

        async def story() -> None:
            answer = await bench.accepted(launch())
            assert bench.count("sbatch") == 2 and bench.alive() == [int(answer.native_id)]
            assert not bench.slurm.jobs[int(answer.native_id)].held

        bench.play(story())

    def test_a_release_that_is_killed_on_the_login_node_is_made_again(self, bench: Bench) -> None:
        bench.transport.fail("sbatch", Trouble.DROPPED, 1)
        bench.transport.fail("scontrol", Done(137, b"", b""), 1, after=1)
        bench.transport.behave = lambda job: Behaviour(None)

        async def story() -> None:
            answer = await bench.accepted(launch())
            assert not bench.slurm.jobs[int(answer.native_id)].held

        bench.play(story())

    def test_a_surplus_job_that_slurm_cancels_for_nobody_keeps_no_other_from_its_start(self, bench: Bench) -> None:
        bench.transport.fail("sbatch", Trouble.LATE, 1)
        refused = b"scancel: error: Kill job error on job id 2: Requested operation is presently disabled"
        bench.transport.fail("scancel", Done(1, b"", refused))
        bench.transport.behave = lambda job: Behaviour(None)

        async def story() -> None:
            first = await bench.accepted(launch())
            second = await bench.accepted(launch(2))
            assert not bench.slurm.jobs[int(first.native_id)].held and second.native_id != first.native_id

        bench.play(story())

    def test_what_an_earlier_process_submitted_held_is_released(self, bench: Bench) -> None:
        number = bench.add("inst-1-0", "HELD")

        async def story() -> None:
            answer = await bench.begin_again().accepted(launch())
            assert answer.native_id == str(number) and not bench.slurm.jobs[number].held
            assert bench.count("sbatch") == 0

        bench.play(story())

    def test_what_nobody_wants_any_more_is_looked_for_and_never_submitted(self, bench: Bench) -> None:
        """Three looks: nobody would look again after them."""
        bench.transport.fail("sbatch", Trouble.DROPPED, 1)

        async def story() -> None:
            with pytest.raises(TimedOut):
                await bench.attempt(launch())
            began = bench.world.now()
            (refusal,) = await bench.submit(replace(launch(), wanted=False))
            assert isinstance(refusal, Refusal) and bench.world.now() - began >= 20
            assert (refusal.message, refusal.transient) == (NOT_HERE, False)
            assert bench.count("sbatch") == 1 and bench.slurm.jobs == {}

        bench.play(story())

    def test_what_nobody_wants_any_more_is_found_and_stays_held(self, bench: Bench) -> None:
        number = bench.add("inst-1-0", "HELD")
        unwanted = replace(launch(), wanted=False)

        async def story() -> None:
            later = bench.begin_again()
            answer = await later.accepted(replace(unwanted, job=replace(unwanted.job, held=True)))
            assert answer.native_id == str(number) and bench.slurm.jobs[number].held
            assert bench.count("sbatch") == 0

        bench.play(story())

    def test_what_has_ended_long_ago_is_found_in_the_accounting(self, bench: Bench) -> None:
        async def story() -> None:
            number = bench.slurm.submit([Request(comment="overspan=inst-1-0", script="#!/bin/sh")])
            await bench.sleep(400)
            assert bench.slurm.jobs == {}
            answer = await bench.begin_again().accepted(submitted_long_ago(bench))
            assert (answer.native_id, bench.count("sbatch")) == (str(number), 0)

        bench.play(story())

    def test_an_earlier_process_may_have_submitted_it(self, bench: Bench) -> None:
        number = bench.add("inst-1-0", "RUNNING")

        async def story() -> None:
            assert (await bench.begin_again().accepted(launch())).native_id == str(number)
            assert bench.count("sbatch") == 0

        bench.play(story())

    def test_no_answer_to_a_look_is_no_look(self, bench: Bench) -> None:
        bench.transport.fail("sbatch", Trouble.DROPPED, 1)

        async def story() -> None:
            with pytest.raises(TimedOut):
                await bench.attempt(launch())
            silence = bench.transport.fail("squeue", Trouble.REFUSED)
            for _ in range(5):
                await asyncio.sleep(20)
                with pytest.raises(Unreachable):
                    await bench.attempt(launch())
            assert bench.count("sbatch") == 1
            bench.transport.faults.remove(silence)
            await bench.accepted(launch())
            assert bench.count("sbatch") == 2

        bench.play(story())

    def test_a_controller_that_goes_down_meanwhile_changes_nothing(self, bench: Bench) -> None:
        bench.transport.fail("sbatch", Trouble.DROPPED, 1)
        bench.transport.fail("sbatch", Trouble.REFUSED, 2)

        async def story() -> None:
            answer = await bench.accepted(launch())
            (job,) = bench.slurm.jobs.values()
            assert (str(job.id), job.request.hold) == (answer.native_id, True)
            assert ("scontrol", "release", answer.native_id) in bench.transport.asked

        bench.play(story())

    def test_others_of_the_batch_are_not_submitted_again(self, bench: Bench) -> None:
        bench.transport.fail("sbatch", Trouble.DROPPED, 1, after=1)

        async def story() -> None:
            await bench.submit(launch(1), launch(2), launch(3))
            assert bench.count("sbatch") == 4 and len(bench.slurm.jobs) == 3

        bench.play(story())

    def test_one_that_ran_and_ended_while_it_was_in_doubt_is_the_one_that_counts(self, bench: Bench) -> None:
        bench.transport.fail("sbatch", Trouble.LATE, 1)
        bench.slurm.site.start = 0.0
        bench.transport.behave = lambda job: Behaviour(0.0)

        async def story() -> None:
            answer = await bench.accepted(launch())
            assert bench.slurm.jobs[int(answer.native_id)].state == "COMPLETED"
            (other,) = (job for job in bench.slurm.jobs.values() if str(job.id) != answer.native_id)
            assert (other.state, other.start) == ("CANCELLED", 0.0)

        bench.play(story())


def submitted_long_ago(bench: Bench, launches: int = 0) -> Launch:
    """A launch whose job is as old as the world."""
    wanted = launch(launches=launches)
    return replace(wanted, job=replace(wanted.job, submitted_at=bench.world.now() - 2000))


class TestGroups:
    def test_a_group_brings_its_files_and_the_application_once(self, bench: Bench) -> None:
        async def story() -> None:
            answer, _ = await bench.attempt(launch(job=GROUP), launch(2))
            run, library = bench.root / "runs" / "inst-1", bench.root / "lib" / name_archive()
            assert isinstance(answer, Accepted)
            assert parse_any(answer.handle) == GroupHandle(1, 0, 30, str(run), (GroupPart(1),))
            assert {file.name for file in run.iterdir()} >= {"plan.0.json", "placement.0.json"}
            assert library.read_bytes().startswith(b"PK")
            library.write_bytes(b"as it was")
            await bench.attempt(launch(3, job=replace(GROUP, id=3)))
            assert library.read_bytes() == b"as it was"

        bench.play(story())

    def test_what_fits_on_no_nodes_is_refused_with_the_reason(self, bench: Bench) -> None:
        async def story() -> None:
            wide = read_file("name: g\nnum_nodes: 4\nrun: x\n", 1)
            refusal, accepted = await bench.attempt(launch(job=wide), launch(2))
            assert isinstance(refusal, Refusal) and not refusal.transient
            assert refusal.message.startswith("Requested node configuration is not available\nthere are 3 nodes")
            assert isinstance(accepted, Accepted)

        bench.play(story())

    def test_a_full_root_holds_the_group_back(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        fill_up(bench, monkeypatch)

        async def story() -> None:
            (refusal,) = await bench.attempt(launch(job=GROUP))
            assert isinstance(refusal, Refusal) and refusal.transient and "No space left" in refusal.message

        bench.play(story())

    @pytest.mark.parametrize(("state", "restarts"), [("RUNNING", 0), ("COMPLETING", 1)])
    def test_the_next_launch_is_a_new_allocation_and_the_earlier_one_is_ended(
        self, state: str, restarts: int, bench: Bench
    ) -> None:
        """Also one that Slurm has requeued."""
        left = bench.add("inst-1-0", state, restarts)

        async def story() -> None:
            answer = await bench.accepted(launch(launches=1, job=GROUP))
            assert answer.native_id != str(left)
            assert ("scancel", str(left)) in bench.transport.asked
            assert (bench.root / "runs" / "inst-1" / "plan.1.json").exists()

        bench.play(story())

    def test_a_group_in_doubt_is_found(self, bench: Bench) -> None:
        bench.transport.fail("sbatch", Trouble.TIMED_OUT, 1)

        async def story() -> None:
            assert parse_group((await bench.accepted(launch(job=GROUP))).handle).parts == (GroupPart(1),)
            assert bench.count("sbatch") == 1

        bench.play(story())


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
    def test_the_next_launch_is_the_job_that_slurm_has_requeued_whatever_it_shows(
        self, state: str, bench: Bench
    ) -> None:
        number = bench.add("inst-1-0", state, 1)

        async def story() -> None:
            handle = parse_handle((await bench.accepted(launch(launches=1))).handle)
            assert (handle.native, handle.run, handle.launch) == (number, 1, 1)
            assert bench.count("sbatch") == 0

        bench.play(story())

    def test_each_launch_is_the_next_run_of_it(self, bench: Bench) -> None:
        number = bench.add("inst-1-0", "PENDING", 3)

        async def story() -> None:
            for launches in (1, 2, 3):
                handle = parse_handle((await bench.accepted(launch(launches=launches))).handle)
                assert (handle.native, handle.run) == (number, launches)
            assert bench.count("sbatch") == 0

        bench.play(story())

    def test_one_that_slurm_holds_stays_held(self, bench: Bench) -> None:
        number = bench.add("inst-1-0", "HELD", 1)

        async def story() -> None:
            await bench.accepted(launch(launches=1))
            assert bench.slurm.jobs[number].held

        bench.play(story())

    @pytest.mark.parametrize("state", ["COMPLETING", "STAGE_OUT"])
    def test_nothing_is_submitted_while_it_is_not_to_be_seen_whether_it_comes_back(
        self, state: str, bench: Bench
    ) -> None:
        number = bench.add("inst-1-0", state)

        async def story() -> None:
            (refusal,) = await bench.attempt(launch(launches=1))
            assert isinstance(refusal, Refusal) and refusal.transient and refusal.reason == "Cleaning"
            bench.slurm.jobs[number].flag = "NODE_FAIL"
            assert (await bench.accepted(launch(launches=1))).native_id != str(number)
            assert bench.count("sbatch") == 1

        bench.play(story())

    def test_one_that_is_over_is_not_taken_up(self, bench: Bench) -> None:
        bench.add("inst-1-0", "NODE_FAIL")

        async def story() -> None:
            await bench.accepted(launch(launches=1))
            assert bench.count("sbatch") == 1

        bench.play(story())

    def test_a_run_that_the_queue_has_forgotten_is_not_run_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first run of it is lost with its node; the second has ended, too, before anybody looks."""
        bench = Bench(SlurmWorld(tmp_path, monkeypatch))
        bench.transport.behave = lambda job: Behaviour(1.0 if job.restarts else None)

        async def story() -> None:
            number = bench.slurm.submit([Request(comment="overspan=inst-1-0", script="#!/bin/sh")])
            await bench.sleep(5)
            bench.slurm.set_down(bench.slurm.jobs[number].nodes[0])
            await bench.sleep(1000)
            assert bench.slurm.jobs == {}
            handle = parse_handle((await bench.accepted(submitted_long_ago(bench, 1))).handle)
            assert (handle.native, handle.run) == (number, 1)
            assert (await bench.accepted(submitted_long_ago(bench, 2))).native_id != str(number)

        bench.play(story())
