"""Orders on sets over a link that is a script: who gets which line, and when a new native job is submitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.slurm_jobs import Behaviour, Request
from tests.fakes.slurm_transport import Trouble
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.adapters.slurm.samples import NOW, read_file
from tests.unit.adapters.slurm.set_facts import STANDS
from tests.unit.adapters.slurm.set_orders import Bench
from tests.unit.adapters.slurm.submissions import play

from overspan.adapters import first_observation
from overspan.adapters.contract import Decider, Launch, Refusal
from overspan.adapters.slurm.groups.files import render_placement_file, render_plan_file
from overspan.adapters.slurm.groups.handles import PartCursor, parse_group_cursor
from overspan.adapters.slurm.groups.limits import read_limits
from overspan.adapters.slurm.groups.ordering import withdraw_parts_words
from overspan.adapters.slurm.groups.parts import narrow
from overspan.adapters.slurm.groups.placement import plan_group
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.model import events


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_nothing_is_ordered_before_the_set_was_looked_at(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_observation, "SECONDS", 0)

    async def story() -> None:
        answer = await bench.order(events.Launch(NOW, "a", 0))
        assert answer is not None and answer.transient
        await bench.look()
        assert await bench.order(events.Launch(NOW, "a", 0)) is None
        assert bench.orders_of("a") == ["Launch"] and bench.orders_of("b") == []

    play(story())


def test_each_task_gets_its_own_lines_and_a_signal_to_all_goes_to_all(bench: Bench) -> None:
    async def story() -> None:
        await bench.look()
        kill = events.Terminate(NOW, "b", 0, "cancel", NOW + 30)
        assert await bench.order(kill, "one") is None
        assert await bench.order(kill, "one") is None
        assert await bench.order(events.Signal(NOW, 10), "two") is None
        assert await bench.order(events.HoldOver(NOW), "three") is None
        assert bench.orders_of("a") == ["Signal"]
        assert bench.orders_of("b") == ["Terminate", "Signal"]

    play(story())


def test_a_supervisor_that_has_begun_is_woken(bench: Bench) -> None:
    async def story() -> None:
        bench.write("b", STANDS["b"])
        await bench.look()
        bench.link.commands.clear()
        await bench.order(events.Launch(NOW, "b", 0), "one")
        assert [words[-1] for words in bench.link.commands if "scancel" in words] == ["102"]

    play(story())


def test_the_next_attempt_is_for_the_job_that_stands(bench: Bench) -> None:
    async def story() -> None:
        await bench.look()
        assert await bench.order(events.Launch(NOW, "b", 1)) is None
        assert bench.orders_of("b") == ["Launch"] and bench.replacer.asked == []

    play(story())


@pytest.mark.parametrize("why", ["closed", "ended", "over"])
def test_a_job_that_takes_no_more_orders_is_replaced(bench: Bench, why: str) -> None:
    async def story() -> None:
        if why == "closed":
            (bench.member("b") / "closed.0").touch()
        elif why == "ended":
            bench.be(102, "NODE_FAIL")
        else:
            bench.cursor = bench.cursor.put(replace(bench.cursor.part("b"), over=True))
        await bench.look()
        launch = events.Launch(NOW, "b", 1)
        answer = await bench.order(launch)
        assert answer is not None and answer.transient, "it is owed until the new job is noted"
        assert bench.replacer.asked == [("b", 1)] and bench.orders_of("b") == []
        (report,) = await bench.look()
        part = parse_group_cursor(bench.handle, report.cursor).part("b")
        assert (part.first, part.native) == (1, 201)
        bench.cursor = bench.cursor.put(PartCursor(201, "b", 1))
        await bench.look()
        assert await bench.order(launch) is None
        assert bench.replacer.asked == [("b", 1)]

    play(story())


def test_a_replacement_that_cannot_be_submitted_stays_owed(bench: Bench) -> None:
    async def story() -> None:
        bench.be(102, "NODE_FAIL")
        await bench.look()
        bench.replacer.error = "Invalid qos specification"
        answer = await bench.order(events.Launch(NOW, "b", 1))
        assert answer is not None and answer.transient and answer.message == "Invalid qos specification"

    play(story())


def test_a_replacement_that_slurm_refuses_is_the_end_of_the_order(bench: Bench) -> None:
    async def story() -> None:
        bench.be(102, "NODE_FAIL")
        await bench.look()
        bench.replacer.refusal = "Invalid qos specification"
        answer = await bench.order(events.Launch(NOW, "b", 1))
        assert answer == Refusal("tok", "Invalid qos specification")

    play(story())


def test_a_first_attempt_whose_job_is_gone_ends_so_that_the_next_has_another(bench: Bench) -> None:
    async def story() -> None:
        await bench.look()
        (bench.member("b") / "closed.0").touch()
        launch = events.Launch(NOW, "b", 0)
        answer = await bench.order(launch)
        assert answer is not None and answer.transient
        bench.cursor = bench.cursor.put(replace(bench.cursor.part("b"), over=True))
        await bench.look()
        answer = await bench.order(launch)
        assert answer is not None and answer.transient
        (report,) = await bench.look()
        assert [(type(event), event.cause) for event in report.events if isinstance(event, events.NodeEnded)] == [
            (events.NodeEnded, "node")
        ]
        bench.cursor = parse_group_cursor(bench.handle, report.cursor)
        assert await bench.look() == []
        assert await bench.order(launch) is None
        assert bench.replacer.asked == []

    play(story())


def test_only_a_set_that_waits_is_withdrawn(bench: Bench) -> None:
    async def story() -> None:
        await bench.look()
        assert await bench.order(events.Expire(NOW, "failover"), "one") is None
        assert not any("scancel" in words for words in bench.link.commands)
        bench.cursor = replace(bench.cursor, granted=False)
        await bench.look()
        assert await bench.order(events.Expire(NOW, "failover"), "two") is None
        assert [words[-2:] for words in bench.link.commands if "withdraw" in words] == [("all", "101,102")]
        (report,) = await bench.look()
        assert events.Expire(NOW, "failover") in report.events

    play(story())


def test_a_waiting_set_is_held_and_changed_as_a_whole(bench: Bench) -> None:
    async def story() -> None:
        await bench.look()
        bench.link.commands.clear()
        assert await bench.order(events.Hold(NOW), "one") is None
        assert await bench.order(events.SetNice(NOW, 50), "two") is None
        assert set(bench.link.commands) == {
            ("scontrol", "hold", "101"),
            ("scontrol", "hold", "102"),
            ("scontrol", "update", "JobId=101", "Nice=50"),
            ("scontrol", "update", "JobId=102", "Nice=50"),
        }

    play(story())


def test_a_suspension_stops_every_job_and_is_told(bench: Bench) -> None:
    async def story() -> None:
        await bench.look()
        assert await bench.order(events.Suspend(NOW)) is None
        assert {words[-1] for words in bench.link.commands if "suspend" in words} == {"101", "102"}
        assert bench.orders_of("a") == ["Suspend"]
        (report,) = await bench.look()
        assert report.events == (events.Suspend(NOW),)

    play(story())


def plan_limits(bench: Bench, limits: dict[str, int]) -> None:
    """Leave the files of native jobs whose tasks have these wall times, in seconds."""
    tasks = "".join(f"---\nname: {name}\ntime: {seconds}s\nrun: x\n" for name, seconds in limits.items())
    launch = Launch("t", read_file(f"name: g\nexecution: parallel\nrestart: task\n{tasks}"))
    for task in limits:
        job = narrow(launch.job, task)
        plan = render_plan_file(launch, launch.job, "rig", True, Decider.DAEMON)
        (bench.member(task) / "plan.0.json").write_bytes(plan)
        (bench.member(task) / "placement.0.json").write_bytes(render_placement_file("t", plan_group(job)))


def updates(bench: Bench) -> list[tuple[str, ...]]:
    return [words[2:] for words in bench.link.commands if words[:2] == ("scontrol", "update")]


def test_a_new_wall_time_changes_the_native_jobs_that_it_is_about(bench: Bench) -> None:
    async def story() -> None:
        plan_limits(bench, {"a": 3600, "b": 600})
        await bench.look()
        longer = events.SetTime(NOW, 7200, "b")
        assert await bench.order(longer, "one") is None
        # The grace of 30 s and the margin of a minute are in it.
        assert updates(bench) == [("JobId=102", "TimeLimit=02:01:30")]
        (report,) = await bench.look()
        assert report.events == (longer,)
        bench.cursor = parse_group_cursor(bench.handle, report.cursor)
        bench.link.commands.clear()
        shorter = events.SetTime(NOW, 300)
        assert await bench.order(shorter, "two") is None
        assert updates(bench) == [("JobId=101", "TimeLimit=00:06:30"), ("JobId=102", "TimeLimit=00:06:30")]
        (report,) = await bench.look()
        assert report.events == (shorter,)
        assert await read_limits(bench.handle, bench.link) == [longer, shorter]

    play(story())


def test_a_wall_time_that_slurm_refuses_is_not_in_force(bench: Bench) -> None:
    async def story() -> None:
        plan_limits(bench, {"a": 3600, "b": 600})
        await bench.look()
        bench.link.answer = lambda words: Done(1, b"", b"Access/permission denied for job 102\n")
        answer = await bench.order(events.SetTime(NOW, 7200, "b"))
        assert answer is not None and not answer.transient and "Access/permission denied" in answer.message
        assert await bench.look() == []
        assert await read_limits(bench.handle, bench.link) == []

    play(story())


def test_a_set_is_called_by_its_present_native_jobs(bench: Bench) -> None:
    async def story() -> None:
        bench.be(102, "NODE_FAIL")
        await bench.look()
        await bench.order(events.Launch(NOW, "b", 1))
        (report,) = await bench.look()
        assert report.native_id == "101,201"

    play(story())


def test_a_set_is_withdrawn_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs 1 and 5 have started, 2 has ended, and all others wait."""
    world = SlurmWorld(tmp_path, monkeypatch)
    world.transport.behave = lambda job: Behaviour(1.0 if job.id == 2 else None)
    for number in range(1, 270):
        world.slurm.submit([Request(script="#!/bin/sh", hold=number not in (1, 2, 5))])
    world.slurm.catch_up(world.now() + 5)

    async def withdraw(names: list[str], together: bool) -> tuple[int, str, list[str]]:
        world.transport.commands.clear()
        done = await world.transport.run(withdraw_parts_words(names, together))
        _, *commands = world.transport.commands
        others = [" ".join(words) for words in commands if "StartTime=now+1hour" not in words]
        return done.rc, done.err.decode(), others

    async def story() -> None:
        assert await withdraw(["3", "2", "4"], True) == (0, "", ["scancel 3 4"])
        # What has its nodes stands at the start gate, since another has none and gets none any more.
        assert await withdraw(["6", "1"], True) == (0, "", ["scancel 6 1"])
        late = "Job is no longer pending execution for job 5\n"
        assert await withdraw(["5", "2"], True) == (1, late, [])
        assert await withdraw(["7", "5"], False) == (1, late, ["scontrol update JobId=7 StartTime=now"])
        many = [str(number) for number in range(10, 260)]
        assert await withdraw(many, True) == (0, "", [" ".join(["scancel", *many])])
        # Many that wait are put off together.
        assert [words[2].count(",") + 1 for words in world.transport.commands if words[0] == "scontrol"] == [
            100,
            100,
            50,
        ]
        world.transport.fail("scontrol", Trouble.REFUSED)
        code, said, commands = await withdraw(["8", "9"], True)
        assert (code, commands) == (1, []) and "Unable to contact" in said

    world.play(story())
