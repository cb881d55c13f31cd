"""The local cluster's files in odd moments: strays, full disks, an absent daemon, open folders."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Collection
from pathlib import Path

import pytest

from overspan.adapters.contract import Launch
from overspan.adapters.local.files import journals
from overspan.adapters.local.files.ended_runs import forget_runs
from overspan.adapters.local.files.launch_files import LaunchFiles, append_lines, mark_ended
from overspan.adapters.local.launches import launches
from overspan.adapters.local.launches.launches import GrantFacts, LocalLaunch
from overspan.adapters.local.launches.observation import Reports
from overspan.adapters.local.queue.booking import Bookings
from overspan.adapters.local.queue.capacity import Capacity
from overspan.adapters.local.supervisors import supervisors
from overspan.adapters.local.supervisors.forkserver import Forked
from overspan.adapters.local.supervisors.supervisors import Supervisors
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.shortages import EX_TEMPFAIL

MACHINE = Capacity(4000, 4096)


def record(root: Path, number: int = 7) -> LocalLaunch:
    launches.make_root(str(root))
    place = LaunchFiles(str(root), number, 0)
    job = new_job(number, JobSpec("j", (TaskSpec("j", run="true"),)), 3.0)
    run = launches.make_run(place, Launch("tok", job), MACHINE)
    run.booking = Bookings(MACHINE).book(run.handle, run.ticket.variants)
    run.addresses = ("127.1.1.1",)
    launches.write_grant(run, GrantFacts("local", 1.0, "here", "auto", "boot"))
    return run


def forget(root: Path, before: float, live: Collection[int] = (), known: Collection[int] = ()) -> int:
    async def find_known(jobs: Collection[int]) -> Collection[int]:
        return set(jobs).intersection(known)

    return asyncio.run(forget_runs(str(root), before, live, find_known))


def test_a_stray_file_or_one_broken_launch_does_not_hide_the_others(tmp_path: Path) -> None:
    run = record(tmp_path)
    (tmp_path / "tickets" / ".nfs0001").write_text("")
    broken = record(tmp_path, 8).place
    Path(broken.ticket).write_text("torn")
    Path(broken.plan).write_text('{"format": 1}')
    assert [found.handle for found in launches.load_launches(str(tmp_path), MACHINE, "boot")] == [run.handle]


def test_a_launch_that_ended_long_ago_unseen_is_kept_for_whoever_asks(tmp_path: Path) -> None:
    run = record(tmp_path)
    append_lines(run.place.journal, [journals.END])
    for path in [Path(run.place.folder), *Path(run.place.folder).iterdir()]:
        os.utime(path, (1000.0, 1000.0))
    assert launches.load_launches(str(tmp_path), MACHINE, "boot") == []
    assert forget(tmp_path, 2000.0) == 0
    assert os.path.exists(run.place.journal)


def test_an_old_run_directory_stays_while_its_job_waits_again(tmp_path: Path) -> None:
    run = record(tmp_path)
    mark_ended(run.place)
    assert forget(tmp_path, 2e12, live=(7,)) == 0 and os.path.exists(run.place.plan)
    assert forget(tmp_path, 2e12, live=(8,)) == 1 and not os.path.exists(run.place.folder)


def test_what_a_job_has_left_stays_as_long_as_it_is_known(tmp_path: Path) -> None:
    """It may live on another cluster for longer than the retention, and the time of its data counts from its end."""
    run = record(tmp_path)
    mark_ended(run.place)
    data = tmp_path / "data/7/0123/files"
    data.mkdir(parents=True)
    (tmp_path / "runs/notes").mkdir()
    assert forget(tmp_path, 2e12, known=(7,)) == 0
    assert data.is_dir() and os.path.exists(run.place.plan)
    assert forget(tmp_path, 2e12, known=(8,)) == 1
    assert not (tmp_path / "data/7").exists() and not os.path.exists(run.place.folder)
    assert (tmp_path / "runs/notes").is_dir()


def test_a_root_that_others_can_write_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o777)
    with pytest.raises(PermissionError):
        launches.make_root(str(root))
    root.chmod(0o700)
    launches.make_root(str(root))


def test_a_torn_line_in_an_inbox_is_cut_off(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox.jsonl"
    inbox.write_text('{"run":"/a","launch":0}\n{"run":"/to')
    supervisors._append_inbox(str(tmp_path), [LaunchFiles(str(tmp_path), 7, 0)])
    assert [line["launch"] for line in journals.read_lines(str(inbox))] == [0, 0]


def test_a_living_supervisor_that_could_not_be_told_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = LaunchFiles(str(tmp_path), 7, 0)
    told: list[LaunchFiles] = []

    def append(folder: str, found: list[LaunchFiles]) -> None:
        if not told:
            told.append(place)
            raise OSError(errno.ENOSPC, "full")
        told.extend(found)

    async def scene() -> None:
        ends: list[str] = []
        hosts = Supervisors(str(tmp_path), "/nowhere/python", lambda name: [place], ends.append)
        host = hosts._host("shared-0")
        host.pid, host.watched = os.getpid(), True
        monkeypatch.setattr(supervisors, "_append_inbox", append)
        monkeypatch.setattr(Supervisors, "wake", lambda self, name: None)
        await hosts.hand("shared-0", [place])
        assert ends == [] and host.deaths == 0
        async with asyncio.timeout(60):
            while len(told) < 2:
                await asyncio.sleep(0.01)
        hosts.close()

    asyncio.run(scene())
    assert told == [place, place]


def test_marks_of_launches_that_nobody_follows_are_dropped(tmp_path: Path) -> None:
    async def scene() -> None:
        launches.make_root(str(tmp_path))
        reports = Reports(str(tmp_path), {})
        for number in range(3000):
            place = LaunchFiles(str(tmp_path), number, 0)
            reports._followed[place.handle] = "5"
            reports.mark(place.handle)
        await reports.collect({})
        assert not reports._dirty and not reports._followed

    asyncio.run(scene())


class FakeTime:
    """The module `time`, whose monotonic clock a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Scene:
    """Supervisors that are started and end on paper."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends: list[str] = []
        self.status: int | None = None
        self.error: OSError | None = None
        self.place = LaunchFiles(str(folder), 7, 0)
        self.hosts = Supervisors(str(folder), "/nowhere/python", lambda name: [self.place], self.ends.append)
        monkeypatch.setattr(kernel, "open_pidfd", lambda pid: None)
        monkeypatch.setattr(Supervisors, "_spawn", lambda hosts, host: self.spawn())
        monkeypatch.setattr(Supervisors, "wake", lambda hosts, name: None)

    def spawn(self) -> Forked:
        if self.error is not None:
            raise self.error
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.setblocking(False)
        with theirs:
            if self.status is not None:
                theirs.send(f"ended {self.status}\n".encode())
        return Forked(1 << 22, 1, line)

    async def start(self) -> supervisors.SupervisorProcess:
        await self.hosts.hand("7.0", [self.place])
        return self.hosts._host("7.0")

    async def delay(self) -> float:
        """Seconds until the next supervisor is started."""
        host = self.hosts._host("7.0")
        self.hosts.revive("7.0")
        assert host.timer is not None
        delay = host.timer.when() - asyncio.get_running_loop().time()
        host.timer.cancel()
        host.timer = None
        return delay


def test_what_the_machine_is_short_of_is_no_death_of_a_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        scene = Scene(tmp_path, monkeypatch)
        scene.error = OSError(errno.EAGAIN, "no process left")
        for _ in range(20):
            host = await scene.start()
        assert (host.pid, host.deaths, len(scene.ends)) == (0, 0, 20)
        assert "ulimit -u" in scene.hosts.find_shortage("7.0")
        assert 0.5 < await scene.delay() <= 1.0
        # One that was started, and found the machine short itself.
        scene.error, scene.status = None, EX_TEMPFAIL
        host = await scene.start()
        assert scene.hosts.find_shortage("7.0") == ""
        scene.hosts._note_end(host)
        assert (host.deaths, len(scene.ends)) == (0, 21)
        assert scene.hosts.find_shortage("7.0")

    asyncio.run(play())


def test_the_next_supervisor_comes_at_once_however_often_working_ones_were_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        scene = Scene(tmp_path, monkeypatch)
        for _ in range(12):
            host = await scene.start()
            scene.hosts.note_work("7.0")
            scene.hosts._note_end(host)
            assert await scene.delay() <= 0
        # Those that tell nothing are slowed down, and nobody waits half a minute.
        for _ in range(12):
            scene.hosts._note_end(await scene.start())
        assert 1 < await scene.delay() <= 5.0

    asyncio.run(play())


def test_supervisors_that_are_killed_are_started_again_for_longer_than_those_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        scene, clock = Scene(tmp_path, monkeypatch), FakeTime()
        monkeypatch.setattr(supervisors, "time", clock)
        for _ in range(7):
            scene.status = 1
            scene.hosts._note_end(await scene.start())
        assert not scene.hosts.is_hopeless("7.0")
        scene.hosts._note_end(await scene.start())
        assert scene.hosts.is_hopeless("7.0")
        # A kernel that is short of memory kills whatever it finds, for a while.
        scene.status = None
        scene.hosts._note_end(await scene.start())
        assert not scene.hosts.is_hopeless("7.0")
        clock.now += 121
        scene.hosts._note_end(await scene.start())
        assert scene.hosts.is_hopeless("7.0")
        host = await scene.start()
        scene.hosts.note_work("7.0")
        scene.hosts._note_end(host)
        assert not scene.hosts.is_hopeless("7.0")

    asyncio.run(play())


def test_the_end_of_a_supervisor_takes_nothing_from_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        scene = Scene(tmp_path, monkeypatch)
        scene.hosts._note_end(await scene.start())
        host = await scene.start()
        # What it was given has ended before the first one's end is looked at.
        await scene.hosts.forget("7.0")
        assert scene.hosts._host("7.0") is host and os.path.exists(f"{host.folder}/inbox.jsonl")
        scene.hosts._note_end(host)
        await scene.hosts.forget("7.0")
        assert "7.0" not in scene.hosts and not os.path.exists(host.folder)

    asyncio.run(play())


def test_a_supervisor_that_dies_while_it_is_told_is_watched_when_it_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        scene = Scene(tmp_path, monkeypatch)
        host = await scene.start()

        def die(folder: str, found: list[LaunchFiles]) -> None:
            scene.hosts._note_end(host)

        monkeypatch.setattr(supervisors, "_append_inbox", die)
        await scene.start()
        assert (host.pid, host.watched, scene.ends) == (0, False, ["7.0"])

    asyncio.run(play())
