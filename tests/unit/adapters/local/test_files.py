"""The files of a launch: tickets, grants, orders, journals, logs."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from overspan.adapters.contract import Launch, LogRequest
from overspan.adapters.local.files import journals, launch_files
from overspan.adapters.local.files.journals import Wake, read_news
from overspan.adapters.local.files.launch_files import LaunchFiles
from overspan.adapters.local.files.logs import read_log
from overspan.adapters.local.launches import launches, observation
from overspan.adapters.local.launches.launches import GrantFacts, LocalLaunch
from overspan.adapters.local.launches.observation import Reports
from overspan.adapters.local.queue.booking import Bookings
from overspan.adapters.local.queue.capacity import Capacity
from overspan.adapters.log_index import FileRange, find_range
from overspan.bridge.model.documents import decode
from overspan.bridge.model.errors import InvalidRequest, NotFound
from overspan.bridge.model.events import (
    Cancel,
    Event,
    Hold,
    LaunchLost,
    NodeStarted,
    Preempt,
    SetNice,
    SetPriority,
    SetTime,
    Suspend,
    event_to_document,
)
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Gpus, Gres, Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec

MACHINE = Capacity(4000, 4096, ("A100", "A100"))
FACTS = GrantFacts("local", 5.0, "here", "auto", "boot-1")
BOOKED = Capacity(4000, 0, MACHINE.gpus)


@pytest.fixture
def place(tmp_path: Path) -> LaunchFiles:
    launches.make_root(str(tmp_path))
    return LaunchFiles(str(tmp_path), 7, 0)


def make_job() -> Job:
    resources = Resources(cpus=0.5, memory_mib=0, gpus=(Gpus(1, "A100"),))
    tasks = (TaskSpec("a", run="x", num_nodes=2, resources=resources, secrets={"KEY": "hidden"}), TaskSpec("b"))
    return new_job(7, JobSpec("j", tasks, group=True), 3.0)


def make_waiting(place: LaunchFiles) -> LocalLaunch:
    return launches.make_run(place, Launch("tok", make_job(), {"A": "b"}), BOOKED)


def record(place: LaunchFiles) -> LocalLaunch:
    """A launch that was granted."""
    run = make_waiting(place)
    book(run)
    launches.write_grant(run, FACTS)
    return run


def book(run: LocalLaunch) -> None:
    run.booking = Bookings(BOOKED).book(run.handle, run.ticket.variants)
    assert run.booking is not None
    run.addresses = tuple(f"127.1.1.{number}" for number in range(1, 4))
    run.host = "7.0"


def list_files(place: LaunchFiles) -> list[str]:
    return sorted(str(path.relative_to(place.root)) for path in Path(place.root).rglob("*") if path.is_file())


def write(path: str, *documents: Any, end: str = "\n") -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n".join(json.dumps(document) for document in documents) + end)


def test_a_plan_holds_the_job_and_is_for_nobody_else(place: LaunchFiles) -> None:
    record(place)
    plan = json.loads(Path(place.plan).read_text())
    assert decode(Job, plan["job"]) == make_job()
    assert (plan["format"], plan["token"], plan["environment"], plan["cluster"]) == (1, "tok", {"A": "b"}, "local")
    for path in (place.plan, place.ticket):
        assert os.stat(path).st_mode & 0o777 == 0o600
    for path in (place.folder, f"{place.root}/runs", f"{place.root}/tickets", f"{place.root}/hosts"):
        assert os.stat(path).st_mode & 0o777 == 0o700
    assert launches.find_launch(place) == "tok"
    assert launches.find_launch(LaunchFiles(place.root, 8, 0)) is None


def test_a_ticket_is_read_as_written(place: LaunchFiles) -> None:
    run = record(place)
    assert launch_files.read_ticket(place) == run.ticket
    need = run.ticket.variants[0][0].need._replace(gres=(Gres("x", "y", 2),))
    strange = run.ticket._replace(variants=((run.ticket.variants[0][0]._replace(need=need),),))
    launch_files.write_ticket(place, strange)
    assert launch_files.read_ticket(place) == strange


def test_a_torn_ticket_is_made_again_from_the_plan(place: LaunchFiles) -> None:
    run = record(place)
    Path(place.ticket).write_text('{"format":1,"tok')
    (loaded,) = launches.load_launches(place.root, BOOKED, "boot-1")
    assert (loaded.ticket, loaded.booking) == (run.ticket, run.booking)
    assert launch_files.read_ticket(place) == run.ticket


def test_a_granted_launch_comes_back_with_all_it_holds(place: LaunchFiles) -> None:
    run = record(place)
    (loaded,) = launches.load_launches(place.root, MACHINE, "boot-1")
    assert (loaded.booking, loaded.addresses, loaded.host) == (run.booking, run.addresses, "7.0")
    members = json.loads(Path(place.grant).read_text())["members"]
    assert members[1] == ["a", 1, "here", "127.1.1.2", [1]]


def test_what_waits_has_no_files_and_what_was_ordered_meanwhile_goes_with_the_grant(place: LaunchFiles) -> None:
    run = make_waiting(place)
    launches.note_event(run, SetPriority(1.0, 9))
    run.kept += [("o1", SetTime(2.0, 60)), ("o2", Cancel(3.0, task="b"))]
    assert list_files(place) == [] and not launches.has_files(place)
    book(run)
    launches.write_grant(run, FACTS)
    assert (run.launch, run.kept, run.orders) == (None, [], 2)
    (loaded,) = launches.load_launches(place.root, BOOKED, "boot-1")
    launches.read_tokens(loaded)
    assert (loaded.rank.behind, loaded.tokens, loaded.orders) == (-9, {"o1", "o2"}, 2)


@pytest.mark.parametrize("failing", ["plan", "orders", "grant"])
def test_a_grant_that_cannot_be_written_leaves_nothing(
    place: LaunchFiles, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail_for(write: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
        def fail(path: str, data: Any) -> None:
            if f"/{failing}." in path:
                raise OSError(errno.ENOSPC, "full")
            write(path, data)

        return fail

    run = make_waiting(place)
    run.kept.append(("o1", SetTime(2.0, 60)))
    book(run)
    with monkeypatch.context() as patch:
        patch.setattr(launches, "write_document", fail_for(launch_files.write_document))
        patch.setattr(launches, "append_lines", fail_for(launch_files.append_lines))
        with pytest.raises(OSError, match="full"):
            launches.write_grant(run, FACTS)
    assert list_files(place) == [] and run.launch is not None
    launches.write_grant(run, FACTS)
    assert [line["seq"] for line in journals.read_lines(place.orders)] == [1]


@pytest.mark.parametrize("left", [["tickets/7.0"], ["tickets/7.0", "runs/7/plan.0.json", "runs/7/queue.0.jsonl"]])
def test_what_a_crash_or_an_earlier_version_left_of_a_waiting_launch_goes(place: LaunchFiles, left: list[str]) -> None:
    record(place)
    os.unlink(place.grant)
    Path(place.queue).touch()
    for name in set(list_files(place)) - set(left):
        os.unlink(f"{place.root}/{name}")
    assert launches.load_launches(place.root, MACHINE, "boot-1") == []
    assert list_files(place) == [] and not os.path.exists(place.folder)


def test_priority_and_nice_change_the_place_each_on_its_own(place: LaunchFiles) -> None:
    run = record(place)
    for event, behind in (
        (SetNice(1.0, 7), 7),
        (SetPriority(2.0, 10), -3),
        (SetNice(3.0, -2), -12),
        (SetPriority(4.0, 0), -2),
    ):
        launches.note_event(run, event)
        assert (run.rank.behind, run.nice) == (behind, -2 if event.at > 2 else 7)


def test_what_was_ordered_of_a_running_launch_comes_back(place: LaunchFiles) -> None:
    run = record(place)
    (loaded,) = launches.load_launches(place.root, MACHINE, "boot-1")
    assert (loaded.leaving, loaded.granted_at, loaded.ends_by) == (False, 5.0, None)
    launches.write_orders(run, [("o1", SetPriority(1.0, 9)), ("o2", Preempt(2.0, True, 5, "job 9"))])
    write(place.orders, {"seq": 3, "token": "o3", "event": {"event": "OfALaterVersion"}})
    (loaded,) = launches.load_launches(place.root, MACHINE, "boot-1")
    assert (loaded.leaving, loaded.rank.behind) == (True, -9)


def test_a_limit_in_force_says_when_the_room_comes_back(place: LaunchFiles) -> None:
    job = new_job(7, JobSpec("j", (TaskSpec("a", time=100),)), 3.0)
    run = launches.make_run(place, Launch("tok", job), MACHINE)
    run.granted_at = 50.0
    assert run.ends_by == 150.0
    launches.note_event(run, SetTime(60.0, 200))
    assert run.ends_by == 250.0
    launches.note_event(run, Suspend(61.0))
    assert run.ends_by is None


def test_after_a_reboot_what_had_begun_is_lost_and_the_rest_waits(place: LaunchFiles) -> None:
    record(place)
    assert launches.load_launches(place.root, MACHINE, "boot-2") == []
    assert list_files(place) == [] and not launches.has_files(place)
    record(place)
    write(place.journal, {"format": 1}, end="\n{torn")
    assert launches.load_launches(place.root, MACHINE, "boot-2") == []
    (event,) = read_news(place, "").events
    assert isinstance(event, LaunchLost) and event.cause == "node"
    assert journals.is_over(place)


def test_a_plan_of_another_format_is_left_alone(place: LaunchFiles) -> None:
    record(place)
    Path(place.ticket).write_text("")
    Path(place.plan).write_text('{"format": 99, "token": "x"}')
    assert launches.load_launches(place.root, MACHINE, "boot-1") == []
    assert os.path.exists(place.ticket)


def test_orders_are_numbered_on_and_a_torn_line_is_cut(place: LaunchFiles) -> None:
    run = record(place)
    launches.read_tokens(run)
    launches.write_orders(run, [("o1", Cancel(1.0)), ("o2", Cancel(2.0))])
    with open(place.orders, "ab") as file:
        file.write(b'{"seq":3,"tok')
    again = LocalLaunch(place, run.ticket, run.rank)
    launches.read_tokens(again)
    assert (again.orders, again.tokens) == (2, {"o1", "o2"})
    launches.write_orders(again, [("o3", Cancel(3.0))])
    assert [line["seq"] for line in journals.read_lines(place.orders)] == [1, 2, 3]
    assert Path(place.orders).read_bytes().count(b"\n") == 3


def test_what_happened_while_it_waited_is_told_before_its_journal(place: LaunchFiles) -> None:
    async def story() -> None:
        run = make_waiting(place)
        reports = Reports(place.root, {place.handle: run})
        held, urgent, started = Hold(1.0), SetPriority(2.0, 3), NodeStarted(3.0, "a", 0, 0)

        async def ask(cursor: str) -> tuple[tuple[Event, ...], str]:
            found = await reports.collect({place.handle: cursor})
            return (found[0].events, found[0].cursor) if found else ((), cursor)

        assert await ask("") == ((), "")
        reports.tell(place.handle, [held])
        events, first = await ask("")
        assert events == (held,) and first.startswith("q:")
        assert await ask(first) == ((), first)
        reports.tell(place.handle, [urgent])
        book(run)
        launches.write_grant(run, FACTS)
        write(place.journal, {"format": 1}, event_to_document(started))
        reports.mark(place.handle)
        events, second = await ask(first)
        assert events == (urgent, started) and second.isdecimal()
        assert await ask(second) == ((), second)
        # The store was ahead of the cursor of an earlier life, of which nothing is left.
        assert (await ask("q:1234:1"))[0] == (held, urgent, started)

    asyncio.run(story())


def test_what_ends_after_its_grant_is_told_although_something_was_told_before(place: LaunchFiles) -> None:
    async def story() -> None:
        run = make_waiting(place)
        runs = {place.handle: run}
        reports = Reports(place.root, runs)
        reports.tell(place.handle, [SetPriority(2.0, 3)])
        (told,) = await reports.collect({place.handle: ""})
        book(run)
        launches.write_grant(run, FACTS)
        started = NodeStarted(3.0, "a", 0, 0)
        write(place.journal, {"format": 1}, event_to_document(started))
        # It is over before anybody looks.
        reports.mark(place.handle)
        del runs[place.handle]
        (report,) = await reports.collect({place.handle: told.cursor})
        assert report.events == (started,) and not reports.has_left(place.handle)

    asyncio.run(story())


def test_what_was_read_of_a_launch_that_waits_again_since_is_not_told(
    place: LaunchFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        runs = {place.handle: record(place)}
        reports = Reports(place.root, runs)
        write(place.journal, {"format": 1}, event_to_document(LaunchLost(3.0, 0, "cancel")))

        def read_late(*asked: Any) -> Any:
            news = read_news(*asked)
            runs[place.handle] = make_waiting(place)
            return news

        monkeypatch.setattr(observation, "read_news", read_late)
        assert await reports.collect({place.handle: ""}) == []

    asyncio.run(story())


def test_the_end_of_a_launch_that_waited_is_told_until_nobody_asks(place: LaunchFiles) -> None:
    async def story() -> None:
        runs = {place.handle: make_waiting(place)}
        reports = Reports(place.root, runs)
        reports.tell(place.handle, [Cancel(1.0)])
        del runs[place.handle]
        reports.leave(place.handle)
        assert reports.has_left(place.handle)
        for _ in range(2):
            (report,) = await reports.collect({place.handle: ""})
            assert report.events == (Cancel(1.0),) and not report.gone
            reports.forget([place.handle])
        assert await reports.collect({place.handle: report.cursor}) == [] and not reports.suspects
        reports.forget([])
        assert not reports.has_left(place.handle)

    asyncio.run(story())


def test_half_a_line_is_no_news(place: LaunchFiles) -> None:
    record(place)
    line = json.dumps(event_to_document(Hold(1.0)))
    write(place.journal, {"format": 1}, end="\n" + line[:10])
    before = read_news(place, "")
    assert before.events == ()
    with open(place.journal, "a", encoding="utf-8") as file:
        file.write(line[10:] + "\n")
    assert read_news(place, before.cursor).events == (Hold(1.0),)


def test_lines_of_a_later_version_are_passed_over(place: LaunchFiles) -> None:
    record(place)
    write(place.journal, {"event": "Teleport"}, ["?"], event_to_document(Hold(1.0)))
    assert read_news(place, "").events == (Hold(1.0),)


@pytest.mark.parametrize(
    ("text", "over"),
    [("", False), ('{"end":true}\n', True), ('{"end":true}', False), ('{"a":1}\n{"end":true}\n', True), ("x\n", False)],
)
def test_the_end_of_a_journal_is_a_whole_line(place: LaunchFiles, text: str, over: bool) -> None:
    record(place)
    Path(place.journal).write_text(text)
    assert journals.has_ended(place.journal) is over


def test_handles_are_checked(place: LaunchFiles) -> None:
    assert launch_files.parse_handle(place.root, "7.0") == place
    for wrong in ("7", "7.x", "../7.0", "", "7.0.1"):
        with pytest.raises(InvalidRequest):
            launch_files.parse_handle(place.root, wrong)


def test_a_wake_up_names_each_launch_once(tmp_path: Path) -> None:
    told: list[str] = []
    wake = Wake(str(tmp_path / "wake"), told.append)
    wake.open()
    try:
        wake.read()
        assert told == []
        os.write(wake.fd, b"1.0\n2.0\n1.0\n3.")
        wake.read()
        assert sorted(told) == ["1.0", "2.0"]
        os.write(wake.fd, b"1\n")
        wake.read()
        assert told[-1] == "3.1"
    finally:
        wake.close()
    wake.open()
    wake.close()


def line(task: str, attempt: int, stream: str, path: str, start: int = 0, run: int = 0) -> dict[str, Any]:
    return {"task": task, "node": 0, "attempt": attempt, "run": run, "stream": stream, "path": path, "start": start}


def test_the_part_of_an_attempt_is_found() -> None:
    lines = [line("a", 0, "output", "/o"), line("a", 0, "error", "/e"), line("a", 1, "output", "/o", 40)]
    assert find_range(lines, LogRequest("7.0", "a")) == FileRange("/o", 40, None)
    assert find_range(lines, LogRequest("7.0", "a", attempt=0)) == FileRange("/o", 0, 40)
    assert find_range(lines, LogRequest("7.0", "", attempt=0, stream="error")) == FileRange("/e", 0, None)
    assert find_range(lines, LogRequest("7.0", "a", stream="error")) is None
    assert find_range(lines, LogRequest("7.0", "b")) is None
    assert find_range(lines, LogRequest("7.0", "a", node=1)) is None
    again = [line("a", 0, "output", "/o"), line("a", 0, "output", "/o", 10, run=1)]
    assert find_range(again, LogRequest("7.0", "a")) == FileRange("/o", 0, None)


def test_logs_are_cut_and_counted_from_the_end(place: LaunchFiles, tmp_path: Path) -> None:
    record(place)
    output = tmp_path / "out"
    output.write_bytes(b"0123456789")
    write(place.streams, line("a", 0, "output", str(output)), line("a", 1, "output", str(output), 4))
    assert read_log(place, LogRequest("7.0", "a", attempt=0)).data == b"0123"
    part = read_log(place, LogRequest("7.0", "a", offset=-2))
    assert (part.data, part.offset, part.size) == (b"89", 4, 6)
    assert read_log(place, LogRequest("7.0", "a", offset=99)).data == b""
    output.unlink()
    with pytest.raises(NotFound, match="cannot be read"):
        read_log(place, LogRequest("7.0", "a"))
    os.mkfifo(output)
    with pytest.raises(NotFound, match="not a file"):
        read_log(place, LogRequest("7.0", "a"))
