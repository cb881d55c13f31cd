"""The daemon's visits of workers that cannot connect to it: where they fail, and which workers have them."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
import threading
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, play, turn
from tests.unit.controller.pool_scenes import FILE, read_real

from overspan.adapters.abilities import WorkerMessage
from overspan.adapters.mailboxes import Mailboxes
from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller.features.pools import mailboxes as routes
from overspan.bridge.controller.features.pools.pools import Pools
from overspan.bridge.model.errors import InvalidRequest, Unreachable
from overspan.bridge.model.spec import Backoff
from overspan.bridge.readers.submission import Submission
from overspan.bridge.runtime.pool import mailbox_visit
from overspan.bridge.runtime.pool.mailbox_visit import visit


class PlayedMailboxes:
    """Folders of this machine, each named after its worker's handle."""

    way, python, together, wait = "mailbox", "python3", True, 0.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trouble = self.trouble_of_answers = ""
        """Why no visit succeeds, or none that has an answer to leave."""
        self.visits = 0
        self.waited = -1.0
        """How long the last visit might wait for something new."""

    def find_folder(self, handle: str) -> str:
        return str(self.folder / handle)

    def find_library(self, handle: str) -> str:
        return ""

    async def run(self, handle: str, line: bytes, seconds: float) -> str:
        self.visits += 1
        await asyncio.sleep(0.001)
        if self.trouble:
            raise Unreachable(self.trouble)
        _, _, text = zlib.decompress(base64.b64decode(line)).decode().partition("\0")
        order = json.loads(text)
        self.waited = order["wait"]
        if self.trouble_of_answers and any(box["answers"] for box in order["boxes"].values()):
            raise Unreachable(self.trouble_of_answers)
        return "welcome\n" + base64.b64encode(zlib.compress(json.dumps(visit(order)).encode())).decode()


class FarCluster(FakeCluster):
    """A cluster whose jobs cannot connect to the daemon."""

    mailboxes: Mailboxes | None = None

    def state(self) -> dict[str, Any]:
        return {"mailboxes": self.mailboxes}


class MailScene:
    """A pool of one worker, job 1, on a cluster with mailboxes."""

    def __init__(self, bench: Bench, cluster: FarCluster, mailboxes: PlayedMailboxes) -> None:
        self.bench, self.cluster, self.mailboxes = bench, cluster, mailboxes

    async def open(self) -> None:
        """Make the pool, and let its worker's job run."""
        await self.bench.controller.pools.apply("p", Submission("job_file", FILE.format(more=""), user="me"))
        await until(lambda: "1.0" in self.cluster.journals)
        await turn()
        self.start("1.0")
        await until(lambda: self.bench.state(1) == "RUNNING")

    def start(self, handle: str, job: int = 1) -> None:
        """Let a launch of a worker begin, with an empty mailbox."""
        (self.mailboxes.folder / handle).mkdir(0o700)
        self.cluster.tell(handle, *begin(self.bench.job(job), self.bench.clock.now))

    def ask(self, handle: str, own: str, job: int = 1, wait: float = 0.0, lane: str = "ask") -> None:
        """Leave a question in the mailbox of a launch."""
        body = json.dumps({"job": job, "word": own.partition(".")[0], "held": {}, "journals": {}, "wait": wait})
        head = json.dumps({"id": own, "path": "/v1/pool/exchange", "size": len(body)})
        (self.mailboxes.folder / handle / f"{lane}.request").write_text(f"{head}\n{body}")

    async def greet(self, handle: str = "1.0") -> None:
        """Let a process leave its first request, which says nothing yet."""
        self.ask(handle, "a.0")
        await self.hear(handle, "a.0")

    async def hear(self, handle: str, own: str, lane: str = "ask") -> tuple[int, dict[str, Any]]:
        """The answer of a question: status and document."""
        path = self.mailboxes.folder / handle / f"{lane}.answer"
        await until(lambda: path.exists() and own in path.read_text())
        head, body = path.read_text().split("\n", 1)
        return json.loads(head)["status"], json.loads(body)

    def note_served(self, monkeypatch: pytest.MonkeyPatch) -> list[WorkerMessage]:
        """The messages that the daemon answers from here on."""
        pools = self.bench.controller.pools
        exchange, served = pools.exchange, list[WorkerMessage]()

        async def note(message: WorkerMessage) -> dict[str, Any]:
            served.append(message)
            return await exchange(message)

        monkeypatch.setattr(pools, "exchange", note)
        return served

    def show(self) -> dict[str, Any]:
        """The worker as `span pool show` has it."""
        return next(dict(each) for each in self.bench.controller.pools.describe("p")[0]["workers"] if each["job"] == 1)


async def until(fact: Callable[[], bool]) -> None:
    """Wait until a fact is true."""
    deadline = asyncio.get_running_loop().time() + 60
    while not fact():
        assert asyncio.get_running_loop().time() < deadline, "the fact did not come true"
        await asyncio.sleep(0.001)


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """While it is set, the disk of the mailboxes is full: nothing can be left there, and all can be read."""
    full, replace = threading.Event(), mailbox_visit._replace

    def write(folder: int, name: str, data: bytes) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(folder, name, data)

    monkeypatch.setattr(mailbox_visit, "_replace", write)
    return full


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Plays a scene; without mailboxes where the cluster is to have none."""
    monkeypatch.setattr(routes, "AGAIN", Backoff(first=0.01, factor=1.0, limit=0.01, jitter=0.0))
    monkeypatch.setattr(routes, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(routes, "GATHER_SECONDS", 0.0)

    def run(story: Callable[[MailScene], Awaitable[None]], *, mailboxes: bool = True, **far: Any) -> None:
        cluster, played = FarCluster(), PlayedMailboxes(tmp_path)
        cluster.mailboxes = played if mailboxes else None

        def prepare(bench: Bench) -> None:
            bench.state_dir, bench.reader = str(tmp_path / "state"), read_real
            settings = ClusterSettings(kind="slurm", **far)
            bench.settings = Settings(clusters={"far": settings}, default_cluster="far")

        play(lambda bench: story(MailScene(bench, cluster, played)), cluster, prepare)

    return run


Play = Callable[..., None]


def test_what_hinders_the_visits_is_told_and_they_go_on_when_it_is_over(scene: Play) -> None:
    async def story(each: MailScene) -> None:
        await each.open()
        await each.greet()
        each.mailboxes.trouble = "no route to the login node"
        await until(lambda: each.show()["reason"] == "no route to the login node")
        each.ask("1.0", "a.1")
        before = each.mailboxes.visits
        await until(lambda: each.mailboxes.visits > before + 2)
        each.mailboxes.trouble = ""
        status, document = await each.hear("1.0", "a.1")
        assert (status, document["leases"], each.show()["state"], each.show()["reason"]) == (200, {}, "READY", "")

    scene(story)


def test_an_answer_that_could_not_be_left_is_kept_and_its_trouble_is_told_until_it_is(
    scene: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk can be read: visits that look go on, and must not hide what the others cannot do."""
    full = fill_disk(monkeypatch)

    async def story(each: MailScene) -> None:
        await each.open()
        await each.greet()
        served = each.note_served(monkeypatch)
        full.set()
        each.ask("1.0", "a.1")
        await until(lambda: "No space left" in each.show()["reason"])
        last, reasons = each.mailboxes.visits + 30, set()
        while each.mailboxes.visits < last:
            reasons.add("No space left" in each.show()["reason"])
            await asyncio.sleep(0)
        assert reasons == {True}
        full.clear()
        assert (await each.hear("1.0", "a.1"))[0] == 200
        await until(lambda: not each.show()["reason"])
        assert len(served) == 1

    scene(story)


def test_an_answer_that_waits_for_a_question_outlasts_the_trouble_of_another_thread(
    scene: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = fill_disk(monkeypatch)

    async def story(each: MailScene) -> None:
        await each.open()
        await each.greet()
        served = each.note_served(monkeypatch)
        each.ask("1.0", "a.1", wait=20.0)
        await turn()
        full.set()
        each.ask("1.0", "a.2", lane="tell")
        await until(lambda: "No space left" in each.show()["reason"])
        full.clear()
        await each.hear("1.0", "a.2", lane="tell")
        visits = each.mailboxes.visits
        await until(lambda: each.mailboxes.visits > visits + 5)
        each.bench.controller.end_waits()
        assert (await each.hear("1.0", "a.1"))[0] == 200
        assert [message.wait for message in served] == [20.0, 0.0]

    scene(story)


def test_a_program_that_cannot_be_left_is_brought_again_after_a_pause(
    scene: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "AGAIN", Backoff(first=600.0, factor=1.0, limit=600.0, jitter=0.0))
    monkeypatch.setattr(Pools, "build_program", lambda pools: b"zip")
    full = fill_disk(monkeypatch)
    full.set()

    async def story(each: MailScene) -> None:
        await each.open()
        await until(lambda: "No space left" in each.show()["reason"])
        await asyncio.sleep(0.1)
        before = each.mailboxes.visits
        await asyncio.sleep(0.3)
        assert each.mailboxes.visits == before

    scene(story)


def test_what_cannot_be_left_is_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "AGAIN", Backoff(first=1.0, factor=2.0, limit=30.0, jitter=0.0))
    box = routes.WorkerMailbox(1, "1.0", answers={"ask": {}})
    assert [box.note_refused(100.0) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert not box.is_due(routes.VisitKind.BRING, 129.0) and box.is_due(routes.VisitKind.BRING, 130.0)
    box.note_left({}, 130.0)
    assert box.note_refused(130.0) == 1


def test_a_failure_to_bring_what_nobody_waits_for_any_more_is_told_no_longer(scene: Play) -> None:
    async def story(each: MailScene) -> None:
        await each.open()
        await each.greet()
        each.mailboxes.trouble_of_answers = "the connection was cut"
        each.ask("1.0", "a.1")
        await until(lambda: each.show()["reason"] == "the connection was cut")
        each.ask("1.0", "a.2", wait=20.0)
        await until(lambda: not each.show()["reason"])

    scene(story)


def test_one_mailbox_in_trouble_says_so_alone(scene: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(each: MailScene) -> None:
        await each.bench.controller.pools.apply("p", Submission("job_file", FILE.format(more="").replace("1", "2", 1)))
        await until(lambda: {"1.0", "2.0"} <= each.cluster.journals.keys())
        await turn()
        for job in (1, 2):
            each.start(f"{job}.0", job)
        await until(lambda: each.bench.state(1) == each.bench.state(2) == "RUNNING")
        (each.mailboxes.folder / "1.0").chmod(0o777)
        each.ask("2.0", "b.0", job=2)
        await each.hear("2.0", "b.0")
        await until(lambda: "not this user's own" in each.show()["reason"])
        workers = {worker["job"]: worker for worker in each.bench.controller.pools.describe("p")[0]["workers"]}
        assert workers[2]["reason"] == ""

    scene(story)


def test_workers_that_hold_nothing_are_looked_at_once_a_visit_but_waited_for_behind_an_answer(
    scene: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlayedMailboxes, "wait", 0.001)

    async def story(each: MailScene) -> None:
        await each.open()
        await each.greet()
        await until(lambda: each.mailboxes.waited == 0.001)
        each.ask("1.0", "a.1", wait=20.0)
        await until(lambda: each.mailboxes.waited == 0.0)
        before = each.mailboxes.visits
        await until(lambda: each.mailboxes.visits > before + 3)
        assert each.mailboxes.waited == 0.0
        each.bench.controller.end_waits()
        await each.hear("1.0", "a.1")
        await until(lambda: each.mailboxes.waited == 0.001)

    scene(story)


def test_a_question_that_does_not_come_is_waited_for_no_longer() -> None:
    box = routes.WorkerMailbox(1, "1.0", answers={"ask": {}}, busy=False)
    box.note_left(dict(box.answers), 100.0)
    assert not box.is_quiet(100.0 + routes.EXPECT_SECONDS - 0.1) and box.is_quiet(100.0 + routes.EXPECT_SECONDS)


def test_what_a_dead_worker_has_left_is_no_sign_of_life(scene: Play) -> None:
    """The daemon is away while the worker's process dies and its job is begun anew: its request is still there."""

    async def story(each: MailScene) -> None:
        await each.open()
        await each.greet()
        each.ask("1.0", "dead.7")
        await each.hear("1.0", "dead.7")
        await each.bench.kill()
        await each.bench.start()
        text = "pool: p\nresources: {cpus: 1}\nmax_recoveries: 0\nrun: 'true'\n"
        job = await each.bench.submit(text, kind="job_file")
        visits = each.mailboxes.visits
        await until(lambda: each.mailboxes.visits > visits + 3)
        assert each.show()["state"] == "STARTING" and each.bench.job(job).granted_at is None
        for own in ("fresh.1", "fresh.2"):
            each.ask("1.0", own)
            await each.hear("1.0", own)
        await until(lambda: each.bench.job(job).granted_at is not None)
        assert each.show()["state"] == "READY" and not each.bench.job(job).over

    scene(story)


def test_a_worker_speaks_for_itself_alone(scene: Play) -> None:
    async def story(each: MailScene) -> None:
        await each.open()
        each.ask("1.0", "a.1", job=2)
        status, document = await each.hear("1.0", "a.1")
        assert status == 403 and "denied" in document["error"]["message"]
        assert each.show()["state"] == "STARTING"

    scene(story)


def test_visits_end_with_the_worker(scene: Play) -> None:
    async def story(each: MailScene) -> None:
        await each.open()
        await each.greet()
        await each.bench.controller.pools.delete("p", "")
        each.cluster.lose("1.0")
        await until(lambda: each.bench.job(1).over)
        await turn()
        count = each.mailboxes.visits
        await asyncio.sleep(0.05)
        assert each.mailboxes.visits == count

    scene(story)


@pytest.mark.parametrize(
    ("far", "way"),
    [
        ({}, "mailbox"),
        ({"daemon_address": "here"}, "port"),
        ({"daemon_address": "login:7433", "daemon_tunnel": True}, "tunnel"),
    ],
)
def test_a_worker_goes_by_its_mailbox_where_its_cluster_has_no_address(
    scene: Play, far: dict[str, Any], way: str
) -> None:
    async def story(each: MailScene) -> None:
        await each.open()
        await turn()
        assert each.show()["way"] == way
        assert ("span pool work" in each.bench.job(1).spec.tasks[0].run) == bool(far)
        await asyncio.sleep(0.02)
        assert bool(each.mailboxes.visits) == (not far)

    scene(story, **far)


def test_a_worker_without_any_way_is_refused(scene: Play) -> None:
    async def story(each: MailScene) -> None:
        with pytest.raises(InvalidRequest, match="could not reach this daemon") as refused:
            await each.open()
        assert "far.daemon_address" in refused.value.remedy
        assert not each.cluster.journals

    scene(story, mailboxes=False)


def test_a_worker_that_may_be_here_or_there_is_refused(scene: Play) -> None:
    async def story(each: MailScene) -> None:
        text = "pool: {workers: 1}\nresources: {any_of: [{infra: slurm/far, cpus: 1}, {infra: local, cpus: 1}]}\n"
        with pytest.raises(InvalidRequest, match="two ways to this daemon") as refused:
            await each.bench.controller.pools.apply("p", Submission("job_file", text, user="me"))
        assert "class of its own" in refused.value.remedy

    scene(story)


def test_a_worker_that_may_be_where_an_address_is_the_only_way_or_where_there_is_none_is_refused(scene: Play) -> None:
    """`far` has mailboxes and no address, `wide` an address and no mailboxes: it is `far` that lacks something."""

    async def story(each: MailScene) -> None:
        wide = ClusterSettings(kind="slurm", daemon_address="login:7433")
        each.bench.settings.clusters["wide"], each.bench.others["wide"] = wide, FarCluster()
        await each.bench.kill()
        await each.bench.start()
        text = "pool: {workers: 1}\nresources: {any_of: [{infra: slurm/far, cpus: 1}, {infra: slurm/wide, cpus: 1}]}\n"
        with pytest.raises(InvalidRequest, match="two ways to this daemon: far has no `daemon_address`") as refused:
            await each.bench.controller.pools.apply("p", Submission("job_file", text, user="me"))
        assert "clusters.far.daemon_address" in refused.value.remedy and "class of its own" in refused.value.remedy

    scene(story)
