"""Jobs that wait for other jobs: kinds, chains, arrays, singletons, and restarts in between."""

from __future__ import annotations

import pytest
from tests.unit.controller.elements import element, run
from tests.unit.controller.fakes import Bench, end, play, start_job, turn, until

from overspan.bridge.controller.orders.requests import CancelRequest, Update
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.readers.dependencies import parse_dependency
from overspan.bridge.readers.submission import Submission


async def finish(bench: Bench, job_id: int, exit_code: int = 0) -> None:
    """Let a running job end."""
    bench.cluster.tell(f"{job_id}.0", *end(bench.job(job_id), bench.clock.now, exit_code))
    await until(lambda: bench.job(job_id).over)
    await turn()


@pytest.mark.parametrize(
    ("kind", "exit_code", "goes"),
    [
        ("afterok", 0, True),
        ("afterok", 1, False),
        ("afternotok", 1, True),
        ("afternotok", 0, False),
        ("afterany", 0, True),
        ("afterany", 3, True),
        ("aftercorr", 0, True),
    ],
)
def test_what_an_end_means_to_those_that_wait(kind: str, exit_code: int, goes: bool) -> None:
    async def scene(bench: Bench) -> None:
        first = await start_job(bench)
        second = await bench.submit(f"two needs={kind}:{first}")
        await turn()
        assert bench.job(second).reason == "Dependency" and bench.cluster.submits == 1
        await finish(bench, first, exit_code)
        if goes:
            await until(lambda: f"{second}.0" in bench.cluster.journals)
        else:
            assert (bench.state(second), bench.job(second).reason) == ("PENDING", "DependencyNeverSatisfied")

    play(scene)


def test_a_dependency_that_can_never_be_met_cancels_where_it_is_asked_to() -> None:
    async def scene(bench: Bench) -> None:
        first = await start_job(bench)
        second = await bench.submit(f"two kill needs=afterok:{first}")
        await finish(bench, first, 1)
        assert (bench.state(second), bench.job(second).reason) == ("CANCELLED", "DependencyNeverSatisfied")

    play(scene)


def test_after_counts_minutes_from_the_start() -> None:
    async def scene(bench: Bench) -> None:
        first = await bench.submit("one hold")
        second = await bench.submit(f"two needs=after:{first}+2")
        await turn()
        assert bench.job(second).reason == "Dependency"
        await bench.controller.orders.cancel(CancelRequest((str(first),)))
        await turn()
        # The end of what never started counts as a start.
        assert f"{second}.0" not in bench.cluster.journals
        bench.clock.advance(121)
        await until(lambda: f"{second}.0" in bench.cluster.journals)
        third = await start_job(bench)
        fourth = await bench.submit(f"four needs=after:{third}+2")
        await turn()
        assert f"{fourth}.0" not in bench.cluster.journals
        bench.clock.advance(121)
        await until(lambda: f"{fourth}.0" in bench.cluster.journals)

    play(scene)


def test_any_of_several_is_enough_and_all_are_needed_otherwise() -> None:
    async def scene(bench: Bench) -> None:
        first, second = await start_job(bench, "a"), await start_job(bench, "b")
        either = await bench.submit(f"c needs=afterok:{first}?afterok:{second}")
        both = await bench.submit(f"d needs=afterok:{first},afterok:{second}")
        await finish(bench, first, 1)
        await turn()
        assert bench.job(either).reason == "Dependency" and bench.job(both).reason == "DependencyNeverSatisfied"
        await finish(bench, second)
        await until(lambda: f"{either}.0" in bench.cluster.journals)

    play(scene)


def test_a_diamond_runs_its_middle_at_once() -> None:
    async def scene(bench: Bench) -> None:
        top = await start_job(bench, "top")
        left, right = [await bench.submit(f"{name} needs=afterok:{top}") for name in ("left", "right")]
        bottom = await bench.submit(f"bottom needs=afterok:{left}:{right}")
        await finish(bench, top)
        await until(lambda: {f"{left}.0", f"{right}.0"} <= set(bench.cluster.journals))
        assert f"{bottom}.0" not in bench.cluster.journals

    play(scene)


def test_needs_of_jobs_that_nobody_knows_are_met() -> None:
    """Measured on Slurm 22.05."""

    async def scene(bench: Bench) -> None:
        jobs = [await bench.submit(f"one needs={kind}:99") for kind in ("afterok", "afternotok", "afterany")]
        waits = await bench.submit(f"one needs=afterok:{jobs[0]}")
        await until(lambda: len(bench.cluster.journals) == 3)
        await turn()
        assert sorted(bench.cluster.journals) == [f"{job_id}.0" for job_id in jobs]
        assert bench.job(waits).reason == "Dependency"

    play(scene)


def test_an_end_that_a_killed_daemon_saw_still_counts() -> None:
    async def scene(bench: Bench) -> None:
        first = await start_job(bench)
        second = await bench.submit(f"two needs=afterok:{first}")
        await turn()
        bench.cluster.tell(f"{first}.0", *end(bench.job(first), bench.clock.now))
        await until(lambda: bench.repository.jobs[first].job.over)
        await bench.kill()
        assert bench.repository.jobs[second].job.reason == "Dependency"
        await bench.start()
        await until(lambda: f"{second}.0" in bench.cluster.journals)
        assert [job.id for job in bench.cluster.launched] == [first, second]

    play(scene)


def test_only_one_of_a_name_runs_at_a_time() -> None:
    async def scene(bench: Bench) -> None:
        first = await start_job(bench)
        second, third = [await bench.submit("one needs=singleton") for _ in range(2)]
        other = await bench.submit("other needs=singleton")
        await until(lambda: f"{other}.0" in bench.cluster.journals)
        assert bench.job(second).reason == bench.job(third).reason == "Dependency"
        await finish(bench, first)
        await until(lambda: f"{second}.0" in bench.cluster.journals)
        assert bench.job(third).reason == "Dependency"

    play(scene)


def test_an_operator_changes_what_a_job_waits_for() -> None:
    async def scene(bench: Bench) -> None:
        first = await start_job(bench)
        second = await bench.submit(f"two needs=afterok:{first}")
        await turn()
        assert bench.job(second).reason == "Dependency" and f"{second}.0" not in bench.cluster.journals
        await bench.controller.orders.update(str(second), Update({"dependency": parse_dependency("")}))
        await until(lambda: f"{second}.0" in bench.cluster.journals)
        assert bench.state(first) == "RUNNING"

    play(scene)


def test_an_array_is_waited_for_as_a_whole_and_by_element() -> None:
    async def scene(bench: Bench) -> None:
        array = await bench.submit("one array=0-1")
        await turn()
        one = await bench.submit(f"x needs=afterok:{array}_1")
        every = await bench.submit(f"y needs=afterok:{array}")
        await turn()
        await run(bench, 1, exit_code=0, array=array)
        await until(lambda: f"{one}.0" in bench.cluster.journals)
        assert bench.job(every).reason == "Dependency"
        await run(bench, 0, exit_code=0, array=array)
        await until(lambda: f"{every}.0" in bench.cluster.journals)

    play(scene)


def test_aftercorr_pairs_the_elements_of_two_arrays() -> None:
    async def scene(bench: Bench) -> None:
        first = await bench.submit("one array=0-2")
        await turn()
        second = await bench.submit(f"two array=0-2 needs=aftercorr:{first}")
        await turn()
        await run(bench, 1, exit_code=0, array=first)
        await run(bench, 2, exit_code=4, array=first)
        follower = element(bench, 1, second)
        await until(lambda: f"{follower.id}.0" in bench.cluster.journals)
        await until(lambda: element(bench, 2, second).reason == "DependencyNeverSatisfied")
        assert f"{element(bench, 0, second).id}.0" not in bench.cluster.journals
        await run(bench, 1, exit_code=0, array=second)
        await run(bench, 0, exit_code=0, array=first)
        await run(bench, 0, exit_code=0, array=second)
        assert not bench.job(second).over

    play(scene)


def test_a_job_that_joined_a_group_ends_with_it() -> None:
    async def scene(bench: Bench) -> None:
        group = await start_job(bench, "a b")
        member, other = await bench.submit(f"x hold parent={group}"), await bench.submit("y hold")
        assert bench.controller.joined_jobs.members(group) == [member]
        await bench.controller.orders.cancel(CancelRequest((str(group),)))
        await until(lambda: bool(bench.cluster.orders))
        bench.cluster.tell(f"{group}.0", bench.cluster.orders[0].event)
        await until(lambda: bench.state(member) == "CANCELLED")
        assert bench.state(other) == "PENDING"
        with pytest.raises(InvalidRequest, match="has ended"):
            await bench.submit(f"z parent={group}")

    play(scene)


def test_a_job_that_nobody_knows_is_noted() -> None:
    async def scene(bench: Bench) -> None:
        first = await bench.submit("one")
        wanted = f"one needs=afterok:{first}:99999,afterany:88888"
        answer = await bench.controller.submit(Submission("script", wanted, user="me"))
        said = "no job {} is known, so the need of it counts as met, as in Slurm"
        assert answer.notes == (said.format(99999), said.format(88888))
        known = await bench.controller.submit(Submission("script", f"one needs=afterok:{first}", user="me"))
        assert known.notes == ()

    play(scene)
