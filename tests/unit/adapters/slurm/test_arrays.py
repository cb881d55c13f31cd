"""Native arrays: what goes into one sbatch, how elements are found again, how a throttle is shared."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.slurm_jobs import Behaviour, NativeJob, Request
from tests.fakes.slurm_transport import Trouble
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.adapters.slurm.links import SITE, Link
from tests.unit.adapters.slurm.records import mark, record
from tests.unit.adapters.slurm.samples import NOW, read_file, read_script
from tests.unit.adapters.slurm.submissions import AT_LIMIT, Bench, launch, play

from overspan.adapters.contract import Accepted, Launch, Refusal
from overspan.adapters.slurm.commands.queries import name_record
from overspan.adapters.slurm.commands.sacct import read_accounts
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.handles import Handle, parse_handle
from overspan.adapters.slurm.observation.outcomes import Phase
from overspan.adapters.slurm.observation.projection import view_ended_array
from overspan.adapters.slurm.orders.command_lines import cancel_words, merge_words, share_answer
from overspan.adapters.slurm.rendering.renderer import ClusterFacts, Renderer, name_run
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.submission.arrays import (
    MOST,
    ArrayShare,
    Key,
    Lookup,
    count_shares,
    earlier_keys,
    find_keys,
    find_room,
    identify,
    make_units,
    share_limit,
)
from overspan.adapters.slurm.submission.in_doubt import SubmissionAnswer
from overspan.adapters.slurm.submission.submitter import call_together
from overspan.adapters.slurm.submission.throttles import Throttles
from overspan.adapters.slurm.transports.rate_limit import Bucket, RateLimit, RateLimited
from overspan.adapters.slurm.transports.transport import Call, Done
from overspan.bridge.model.access_documents import find_token
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.errors import TimedOut, Unreachable
from overspan.bridge.model.ids import parse_array
from overspan.bridge.model.job import Job, new_element

HEAD = read_script("#!/bin/sh\n#SBATCH --array=0-99\ntrue\n", number=50)
SWEEP = read_file("name: sweep\narray: 0-99\nrun: train\n", 50)


def launches(indices: str, head: Job = HEAD, number: int = 0, throttle: int | None = None) -> list[Launch]:
    """Launches of elements; the job of index i is number 60 + i."""
    jobs = [new_element(head, index, 60 + index) for index in parse_array(indices).indices()]
    return [Launch(f"inst-{job.id}-{number}", replace(job, launch=number), throttle=throttle) for job in jobs]


def element(array: int, index: int, state: str = "PENDING", token: str = "inst-50-0", raw: int = 0) -> QueueRecord:
    """An element as `squeue --array` tells it: one that waits has its array's number."""
    return replace(record(raw or array, token, state, 0), shown=f"{array}_{index}", array_job=array, array_index=index)


def rest(array: int, indices: str, token: str = "inst-50-0") -> QueueRecord:
    """What waits of an array, as one record."""
    return replace(record(array, token, "PENDING", 0), array_job=array, waiting=parse_array(indices))


class ArrayBench(Bench):
    """Submissions of an array's elements."""

    def add_element(self, index: int) -> NativeJob:
        """An element that was submitted before, and runs."""
        self.transport.behave = lambda job: Behaviour(None)
        self.slurm.submit([Request(comment=mark("inst-50-0"), script="#!/bin/sh")], (index,))
        self.slurm.catch_up(self.world.now() + 5)
        return next(job for job in self.slurm.jobs.values() if job.index == index)

    def take(self, *wanted: Launch) -> list[SubmissionAnswer]:
        """Submit, and nothing else."""
        found: list[SubmissionAnswer] = []

        async def story() -> None:
            found.extend(await self.submit(*wanted))

        self.play(story())
        return found

    def arrays(self) -> list[str]:
        """The --array value of each sbatch."""
        return [
            word.partition("=")[2] for words in self.transport.asked for word in words if word.startswith("--array=")
        ]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArrayBench:
    return ArrayBench(SlurmWorld(tmp_path, monkeypatch))


def accepted(answers: Sequence[SubmissionAnswer]) -> list[Handle]:
    return [parse_handle(answer.handle) for answer in answers if isinstance(answer, Accepted)]


def give_access(job: int) -> str:
    """What a job is given to reach the daemon."""
    return json.dumps({"format": 1, "host": "h", "port": 1, "certificate": "", "token": f"{job}.secret"})


class TestUnits:
    def test_elements_of_one_array_are_one_submission(self, bench: ArrayBench) -> None:
        answers = bench.take(*launches("1-3,7", throttle=2))
        assert bench.arrays() == ["1-3,7%2"] and bench.count("sbatch") == 1
        assert [handle.name for handle in accepted(answers)] == ["1_1", "1_2", "1_3", "1_7"]
        assert [handle.job for handle in accepted(answers)] == [61, 62, 63, 67]
        assert isinstance(answers[0], Accepted) and answers[0].native_id == "1_1"

    def test_what_differs_in_more_than_the_index_is_a_submission_of_its_own(self, bench: ArrayBench) -> None:
        first, second, third, fourth = launches("1-4")
        held = replace(second, job=replace(second.job, held=True))
        again = replace(third, token="inst-63-1", job=replace(third.job, launch=1))
        bench.take(first, held, again, fourth)
        assert sorted(bench.arrays()) == ["1,4", "2", "3"]

    def test_each_has_its_own_token_in_one_file_that_goes_with_the_array(self, bench: ArrayBench) -> None:
        async def story() -> None:
            handles: list[str] = []
            for indices in ("1-2", "3"):
                wanted = [replace(one, access=give_access(one.job.id)) for one in launches(indices)]
                handles += map(str, accepted(await bench.submit(*wanted)))
            files = sorted(bench.root.glob("runs/inst-50/access/*.json"), key=lambda path: path.stat().st_size)
            assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 2
            (last, both) = (json.loads(file.read_text()) for file in files)
            assert (last["host"], last["tokens"]) == ("h", {"3": "63.secret"})
            assert [find_token(both, {"SLURM_ARRAY_TASK_ID": index}) for index in "12"] == ["61.secret", "62.secret"]
            assert "secret" not in str([job.request for job in bench.slurm.jobs.values()])
            references = bench.submitter.references
            references.note_watched(handles)
            await references.release(str(bench.root), "inst", handles[2:], ())
            assert all(file.exists() for file in files)
            await references.release(str(bench.root), "inst", (), ())
            assert not list(bench.root.glob("runs/*/access/*"))

        bench.play(story())
        assert bench.arrays() == ["1-2", "3"]

    def test_the_site_s_largest_index_and_the_largest_array(self) -> None:
        small = make_units(launches("8-11"), lambda launch: "same", 10)
        assert [unit.elements for unit in small] == [{8: 68, 9: 69}, {10: 70}, {11: 71}]
        many = [Launch(f"i-{60 + n}-0", new_element(HEAD, n, 60 + n)) for n in range(MOST + 1)]
        assert [len(unit.launches) for unit in make_units(many, lambda launch: 0, 1 << 20)] == [MOST, 1]

    def test_a_site_that_takes_fewer_gets_half_and_the_rest_waits(self, bench: ArrayBench) -> None:
        bench.transport.fail("sbatch", AT_LIMIT, 2)
        answers = bench.take(*launches("0-9"))
        assert bench.arrays() == ["0-9", "0-4", "0-1"]
        assert len(accepted(answers)) == 2
        refusals = [answer for answer in answers if isinstance(answer, Refusal)]
        assert len(refusals) == 8 and all(one.transient for one in refusals)
        assert {one.reason for one in refusals} == {"AssocMaxSubmitJobLimit"}

    def test_a_task_s_script_tells_each_element_its_number(self) -> None:
        elements = launches("2,7", SWEEP)
        facts = ClusterFacts(SITE, elements={2: 62, 7: 67})
        text = Renderer(Settings(), "/r").render(elements[0], facts).call.stdin.decode()
        assert "OVERSPAN_JOB_ID=$((SLURM_ARRAY_TASK_ID + 60))" in text
        odd = Renderer(Settings(), "/r").render(elements[0], replace(facts, elements={2: 62, 7: 90})).call.stdin
        head = odd.decode().partition("\nnode=")[0]
        for index, number in (("2", "62"), ("7", "90")):
            words = ["sh", "-c", f"{head}\necho $OVERSPAN_JOB_ID $SKYPILOT_TASK_ID"]
            done = subprocess.run(words, env={"SLURM_ARRAY_TASK_ID": index}, capture_output=True, text=True, check=True)
            assert done.stdout == f"{number} overspan-{number}-sweep\n"

    @pytest.mark.parametrize(
        ("array", "ranks"), [("4-6", {4: 0, 5: 1, 6: 2}), ("0-9:3", {0: 0, 3: 1, 9: 3}), ("2,7,9", {2: 0, 7: 1, 9: 2})]
    )
    def test_a_task_s_script_tells_each_element_its_rank(self, array: str, ranks: dict[int, int]) -> None:
        elements = launches(array, read_file(f"name: sweep\narray: '{array}'\nrun: train\n", 50))
        facts = ClusterFacts(SITE, elements={index: 60 + index for index in ranks})
        text = Renderer(Settings(), "/r").render(elements[0], facts).call.stdin.decode()
        head = text.partition("\nnode=")[0]
        for index, rank in ranks.items():
            words = ["sh", "-c", f"{head}\necho $SKYPILOT_JOB_RANK $SKYPILOT_NUM_JOBS"]
            environment = {"SLURM_ARRAY_TASK_ID": str(index)}
            done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
            assert done.stdout == f"{rank} {len(elements)}\n"

    def test_elements_have_the_array_s_run_directory(self) -> None:
        assert {name_run(launch) for launch in launches("1-3", SWEEP)} == {"inst-50"}


class TestFinding:
    def test_a_token_and_an_index_name_one_launch(self) -> None:
        (first,) = launches("3")
        (second,) = launches("3", number=2)
        assert identify(first) == Key("inst-50-0", 3)
        assert identify(second) == Key("inst-50-2", 3)
        assert earlier_keys(second) == [Key("inst-50-1", 3), Key("inst-50-0", 3)]

    def test_waiting_and_running_elements_are_found_split_or_not(self) -> None:
        records = [element(9, 1, "RUNNING", raw=10), rest(9, "2-4%2"), record(11, "inst-9-0", "RUNNING", 0)]
        found = find_keys(records, [Key("inst-50-0", index) for index in (1, 3, 5)] + [Key("inst-9-0")])
        assert [[one.raw for one in found[key]] for key in found] == [[10], [9], [], [11]]
        lookup = Lookup(records)
        assert (lookup.find(9, 2), lookup.find(9, 5), lookup.find(11)) == (records[1], None, records[2])

    def test_a_list_that_was_cut_off_may_have_an_element(self) -> None:
        cut = replace(rest(9, "1"), waiting=parse_array("1")._replace(ranges=()))
        assert Lookup([cut]).find(9, 77) is cut

    @pytest.mark.parametrize("trouble", [Trouble.LOST, Trouble.DROPPED])
    def test_elements_in_doubt_are_looked_up_and_run_once(self, bench: ArrayBench, trouble: Trouble) -> None:
        bench.transport.fail("sbatch", trouble, 1)
        handles = accepted(bench.take(*launches("1-3")))
        assert [handle.name for handle in handles] == ["1_1", "1_2", "1_3"]
        assert bench.count("sbatch") == (1 if trouble is Trouble.LOST else 2)
        assert {job.array_job for job in bench.slurm.jobs.values()} == {1}
        released = [words for words in bench.transport.asked if words[:2] == ("scontrol", "release")]
        assert released == ([] if trouble is Trouble.LOST else [("scontrol", "release", "1_1,1_2,1_3")])

    def test_what_comes_late_stays_and_the_second_of_it_is_ended(self, bench: ArrayBench) -> None:
        bench.transport.fail("sbatch", Trouble.LATE, 1)
        bench.transport.fail("sbatch", Trouble.DROPPED, 1)
        bench.transport.behave = lambda job: Behaviour(None)

        async def story() -> None:
            for index in ("1", "2"):
                with pytest.raises(TimedOut):
                    await bench.attempt(*launches(index))
            answers = await bench.submit(*launches("1-2"))
            assert [handle.name for handle in accepted(answers)] == ["1_1", "2_2"]
            bench.slurm.catch_up(bench.world.now() + 5)
            assert {job.name for job in bench.slurm.jobs.values() if not job.over} == {"1_1", "2_2"}

        bench.world.play(story())

    def test_an_earlier_process_may_have_submitted_some(self, bench: ArrayBench) -> None:
        bench.add_element(1)
        bench.slurm.submit([Request(comment=mark("inst-50-0"), hold=True)], (2,))
        answers = bench.begin_again().take(*launches("1-2"))
        assert [handle.name for handle in accepted(answers)] == ["1_1", "2_2"]
        assert bench.count("sbatch") == 0

    @pytest.mark.parametrize("flag", ["", "PENDING", "COMPLETING", "SPECIAL_EXIT", "COMPLETED"])
    def test_a_requeued_element_is_taken_up_by_its_next_launch(self, bench: ArrayBench, flag: str) -> None:
        job = bench.add_element(4)
        job.restarts, job.flag = 1, flag
        (handle,) = accepted(bench.take(*launches("4", number=1)))
        assert (handle.name, handle.launch, bench.count("sbatch")) == ("1_4", 1, 0)

    def test_records_of_the_accounting_are_told_apart(self) -> None:
        line = "{}\x1f{}\x1f" + "\x1f" * 15 + "\n"
        text = line.format("9_1", 10) + line.format("9_[2-4%2]", 9) + line.format("7", 7) + line.format("9_5.batch", 9)
        names = [sorted(name_record(one, ["9_1", "9_3", "9_9", "9", "7"])) for one in read_accounts(text).records]
        assert names == [["9_1"], ["9", "9_3"], ["7"], []]

    def test_an_array_that_was_ended_whole_ends_its_elements(self) -> None:
        ended = replace(record(9, "inst-50-0", "CANCELLED", 0), end=NOW)
        view = view_ended_array(ended, [], NOW)
        assert view is not None and (view.outcome.phase, view.outcome.cause) == (Phase.ENDED, Cause.CANCEL)
        assert view_ended_array(record(9, "inst-50-0", "COMPLETED", 0), [], NOW) is None
        assert view_ended_array(element(9, 5, "CANCELLED"), [], NOW) is None


class TestHandles:
    def test_an_element_s_handle_says_all(self, bench: ArrayBench) -> None:
        (handle,) = accepted(bench.take(*launches("7")))
        assert (handle.native, handle.index, handle.array, handle.name) == (1, 7, 50, "1_7")
        assert parse_handle(str(handle)) == handle

    def test_handles_of_earlier_versions_are_read(self) -> None:
        handle = parse_handle("s.42.0.7.0.0.1.30.main||")
        assert (handle.native, handle.index, handle.name) == (42, None, "42")


class TestCancel:
    def test_a_waiting_element_is_never_ended_by_its_state(self) -> None:
        lines = cancel_words("9_3", False)
        assert not any("--state=PENDING" in words for words in lines if words[2] == "scancel")

    def test_many_are_ended_by_one_command_in_the_same_order(self) -> None:
        asked = [words for name in ("9_1", "9_2") for words in cancel_words(name, False)]
        merged, places = merge_words([*asked, ("scontrol", "hold", "9_3")])
        assert [words[-2:] for words in merged] == [("9_1", "9_2")] * 3 + [("hold", "9_3")]
        assert places == [0, 1, 2, 0, 1, 2, 3]

    def test_a_hint_comes_behind_what_it_is_about(self) -> None:
        asked = [(word, str(name)) for name in (1, 2) for word in ("write", "scancel")]
        merged, _ = merge_words(asked)
        assert merged == [("write", "1"), ("write", "2"), ("scancel", "1", "2")]

    def test_an_answer_for_many_is_told_apart(self) -> None:
        said = b"scancel: error: Kill job error on job id 9_5: Invalid job id specified\n"
        words, done = ("timeout", "20", "scancel", "9_5", "9_55"), Done(1, b"", said)
        assert share_answer(done, words, "9_5") == Done(1, b"", said.strip())
        assert share_answer(done, words, "9_55") == Done(0, b"", b"")
        down = Done(1, b"", b"scancel: error: Unable to contact slurm controller\n")
        assert share_answer(down, words, "9_55") == down
        assert share_answer(None, words, "9_5") is None


class TestLanes:
    def test_answers_are_in_order_and_a_lane_that_was_not_run_is_told(self) -> None:
        def answer(words: Sequence[str]) -> Done:
            if link.commands[-1] == ("1",):
                raise Unreachable("no link")
            return Done(0, words[0].encode(), b"")

        link = Link()
        link.answer = answer
        found = play(call_together(link, [Call([str(number)]) for number in range(10)], 10))
        assert link.trips == [4, 3, 3]
        assert [one.text if isinstance(one, Done) else str(one) for one in found] == [
            "no link" if number % 3 == 1 else str(number) for number in range(10)
        ]

    def test_a_site_with_a_limit_gets_one_after_the_other(self) -> None:
        link = Link()
        paced = RateLimited(link)
        paced.bucket = Bucket(RateLimit(100, 100))
        play(call_together(paced, [Call(["x"])] * 10, 10))
        assert link.trips == [10]

    def test_what_was_accepted_beside_a_lane_without_a_link_is_kept(self, bench: ArrayBench) -> None:
        bench.transport.fail("sbatch", Trouble.UNREACHABLE, 1)
        ones = [launch(number) for number in range(1, 6)]

        async def story() -> None:
            with pytest.raises(Unreachable):
                await bench.attempt(*ones)
            assert bench.slurm.jobs
            assert len(accepted(await bench.submit(*ones))) == 5 == len(bench.slurm.jobs)

        bench.world.play(story())


class TestThrottle:
    def test_one_native_array_has_the_limit(self) -> None:
        shares = count_shares([element(9, 1, "RUNNING"), element(9, 2), element(9, 3)])
        assert shares == {9: ArrayShare(9, 1, 2, None)}
        assert share_limit(2, shares) == {9: 2}
        assert share_limit(2, {9: ArrayShare(9, 1, 2, 2)}) == {}
        assert share_limit(None, {9: ArrayShare(9, 1, 2, 2)}) == {9: 0}

    @pytest.mark.parametrize(
        ("shares", "changes"),
        [
            # The oldest first; what it cannot use goes on.
            ([ArrayShare(9, 3, 1, 5), ArrayShare(10, 0, 8, 1)], {9: 4}),
            ([ArrayShare(9, 2, 0, 5), ArrayShare(10, 0, 8, 1)], {10: 3}),
            ([ArrayShare(9, 0, 8, 5), ArrayShare(10, 0, 8, 1)], {}),
        ],
    )
    def test_several_share_it(self, shares: list[ArrayShare], changes: dict[int, int]) -> None:
        assert share_limit(5, {share.native: share for share in shares}) == changes

    def test_the_room_beside_them(self) -> None:
        assert find_room(5, [ArrayShare(9, 3, 1, 5)]) == 1
        assert find_room(5, [ArrayShare(9, 3, 9, 5)]) == 0
        assert find_room(5, [ArrayShare(9, 2, 0, 5), ArrayShare(10, 1, 9, 2)]) == 1
        assert find_room(5, []) == 5

    def test_an_element_waits_where_there_is_no_room(self, bench: ArrayBench) -> None:
        bench.transport.behave = lambda job: Behaviour(10)

        async def story() -> None:
            await bench.submit(*launches("1-5", throttle=2))
            full = await bench.submit(*launches("6-7", throttle=2))
            assert {(one.transient, one.reason) for one in full if isinstance(one, Refusal)} == {
                (True, "JobArrayTaskLimit")
            }
            # Four of five have ended.
            await asyncio.sleep(25)
            assert len(accepted(await bench.submit(*launches("6-7", throttle=2)))) == 2

        bench.world.play(story())
        assert bench.arrays() == ["1-5%2", "6-7%1"]

    def test_a_change_reaches_slurm_once_it_is_known_what_there_is(self, bench: ArrayBench) -> None:
        async def story() -> None:
            with pytest.raises(Unreachable):
                await Throttles(bench.asked).set_limit(50, 3)
            throttles = Throttles(bench.asked)
            throttles.note_watched(accepted(await bench.submit(*launches("1-5", throttle=2))))
            await throttles.set_limit(50, 3)
            await throttles.set_limit(50, 3)
            await throttles.set_limit(50, None)

        bench.world.play(story())
        told = [words[2:] for words in bench.transport.asked if words[:2] == ("scontrol", "update")]
        assert told == [("JobId=1", "ArrayTaskThrottle=3"), ("JobId=1", "ArrayTaskThrottle=0")]
