"""The daemon's visits of workers that cannot connect to it: where they fail, and which workers have them."""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, play, turn
from tests.unit.controller.pool_scenes import FILE, read_real

from overspan.adapters.mailboxes import Mailboxes
from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller.features.pools import mailboxes as routes
from overspan.bridge.model.errors import InvalidRequest, Unreachable
from overspan.bridge.model.spec import Backoff
from overspan.bridge.readers.submission import Submission
from overspan.bridge.runtime.pool.mailbox_visit import visit


class PlayedMailboxes:
    """Folders of this machine, each named after its worker's handle."""

    way, python, together, wait = "mailbox", "python3", True, 0.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trouble = ""
        self.visits = 0

    def find_folder(self, handle: str) -> str:
        return str(self.folder / handle)

    def find_library(self, handle: str) -> str:
        return ""

    async def run(self, handle: str, line: bytes, seconds: float) -> str:
        self.visits += 1
        await asyncio.sleep(0.001)
        if self.trouble:
            raise Unreachable(self.trouble)
        _, _, order = zlib.decompress(base64.b64decode(line)).decode().partition("\0")
        return "welcome\n" + base64.b64encode(zlib.compress(json.dumps(visit(json.loads(order))).encode())).decode()


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

    def start(self, handle: str) -> None:
        """Let a launch of the worker begin, with an empty mailbox."""
        (self.mailboxes.folder / handle).mkdir(0o700)
        self.cluster.tell(handle, *begin(self.bench.job(1), self.bench.clock.now))

    def ask(self, handle: str, own: str, job: int = 1) -> None:
        """Leave a question in the mailbox of a launch."""
        body = json.dumps({"job": job, "word": own.partition(".")[0], "held": {}, "journals": {}, "wait": 0})
        head = json.dumps({"id": own, "path": "/v1/pool/exchange", "size": len(body)})
        (self.mailboxes.folder / handle / "ask.request").write_text(f"{head}\n{body}")

    async def greet(self, handle: str = "1.0") -> None:
        """Let a process leave its first request, which says nothing yet."""
        self.ask(handle, "a.0")
        await self.hear(handle, "a.0")

    async def hear(self, handle: str, own: str) -> tuple[int, dict[str, Any]]:
        """The answer of a question: status and document."""
        path = self.mailboxes.folder / handle / "ask.answer"
        await until(lambda: path.exists() and own in path.read_text())
        head, body = path.read_text().split("\n", 1)
        return json.loads(head)["status"], json.loads(body)

    def show(self) -> dict[str, Any]:
        """The worker as `span pool show` has it."""
        (worker,) = self.bench.controller.pools.describe("p")[0]["workers"]
        return dict(worker)


async def until(fact: Callable[[], bool]) -> None:
    """Wait until a fact is true."""
    deadline = asyncio.get_running_loop().time() + 60
    while not fact():
        assert asyncio.get_running_loop().time() < deadline, "the fact did not come true"
        await asyncio.sleep(0.001)


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


def test_an_answer_that_could_not_be_left_is_left_later(scene: Play) -> None:
    async def story(each: MailScene) -> None:
        await each.open()
        folder = each.mailboxes.folder / "1.0"
        await each.greet()
        each.ask("1.0", "a.1")
        await each.hear("1.0", "a.1")
        (folder / "ask.answer").unlink()
        (folder / "ask.answer").mkdir()
        each.ask("1.0", "a.2")
        await until(lambda: "ask.answer" in each.show()["reason"] or "directory" in each.show()["reason"])
        (folder / "ask.answer").rmdir()
        assert (await each.hear("1.0", "a.2"))[0] == 200

    scene(story)


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
