"""What holds for a worker of a pool whichever way it has to the daemon: by connection, by mailbox, by exec.

The worker's connections and the daemon's half of each way are the real ones; the worker itself is played. The login
node is this machine, and a command in a pod runs here.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, play, turn
from tests.unit.controller.pool_scenes import FILE, JOB, read_real

from overspan.adapters.kubernetes.api.executing import ExecCommand
from overspan.adapters.kubernetes.launches import mailboxes as pod_mailboxes
from overspan.adapters.kubernetes.launches.mailboxes import PodMailboxes
from overspan.adapters.kubernetes.manifests.scripts import RUN_DIR
from overspan.adapters.mailboxes import Mailboxes
from overspan.adapters.pool import cluster as pool_cluster
from overspan.adapters.slurm.files.mailboxes import SlurmMailboxes
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.bridge.api.app import build_app
from overspan.bridge.api.server import UnixServer, bind_socket
from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller.features.pools import mailboxes as routes
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.model.events import Event, NodeEnded, event_to_document
from overspan.bridge.readers.submission import Submission
from overspan.bridge.runtime.pool.connection import DaemonAddress, Dismissed, WorkerAddress, WorkerConnection
from overspan.bridge.runtime.pool.exchanges import END_LINE, FEATURES
from overspan.bridge.runtime.pool.mailbox import MailboxAddress
from overspan.bridge.runtime.pool.outputs import OUTPUT

WORD = "abc"
PYTHON = "python3"


class FarCluster(FakeCluster):
    """A cluster whose jobs cannot connect to the daemon."""

    mailboxes: Mailboxes | None = None

    def state(self) -> dict[str, Any]:
        return {"mailboxes": self.mailboxes}


class Way(Protocol):
    """The way under test: the daemon's half of it, and where the worker's begins."""

    name: str
    cluster: FarCluster
    address: WorkerAddress

    def prepare(self, bench: Bench) -> None:
        """Make settings, before the daemon's start."""

    async def serve(self, bench: Bench) -> None:
        """The daemon has started, maybe anew."""

    async def end(self) -> None:
        """The daemon has ended, or was killed."""

    def tear(self) -> None:
        """Send half of a message, and none of its rest."""

    def is_torn_answered(self) -> bool:
        """Whether the daemon has taken it for a message."""
        ...


class ByConnection:
    """HTTP over a socket."""

    name = "socket"

    def __init__(self, folder: Path) -> None:
        self.cluster = FarCluster()
        self._path = str(folder / "span.sock")
        self.address: WorkerAddress = DaemonAddress("socket", self._path)
        self._server: UnixServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None
        self._torn = b""

    def prepare(self, bench: Bench) -> None:
        return

    async def serve(self, bench: Bench) -> None:
        self._server = UnixServer(build_app(bench.controller))
        self._listener = bind_socket(self._path)
        self._serving = asyncio.ensure_future(self._server.serve([self._listener]))
        await until(lambda: self._server is not None and self._server.started)

    async def end(self) -> None:
        assert self._server is not None and self._serving is not None and self._listener is not None
        self._server.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await self._serving
        self._listener.close()

    def tear(self) -> None:
        with socket.socket(socket.AF_UNIX) as half:
            half.connect(self._path)
            half.sendall(b'POST /v1/pool/exchange HTTP/1.1\r\nHost: span\r\nContent-Length: 100\r\n\r\n{"job":1,')
            half.shutdown(socket.SHUT_WR)
            half.settimeout(60)
            self._torn = half.recv(65536)

    def is_torn_answered(self) -> bool:
        return b" 200 " in self._torn


class ByMailbox:
    """Files in a folder, which a cluster's own program visits."""

    def __init__(self, folder: Path, name: str, mailboxes: Mailboxes) -> None:
        self.name = name
        self.cluster = FarCluster()
        self.cluster.mailboxes = mailboxes
        self._folder = folder
        self.address: WorkerAddress = MailboxAddress(str(folder))

    def prepare(self, bench: Bench) -> None:
        bench.settings = Settings(clusters={"far": ClusterSettings(kind="slurm")}, default_cluster="far")

    async def serve(self, bench: Bench) -> None:
        self._folder.mkdir(0o700, exist_ok=True)
        # As the job of a worker does before it waits for its program.
        (self._folder / "python").write_text(f"{PYTHON}\n")
        await until(lambda: (self._folder / "start").exists())

    async def end(self) -> None:
        return

    def tear(self) -> None:
        head = json.dumps({"id": "torn.1", "path": "/v1/pool/exchange", "size": 100})
        (self._folder / "tell.request").write_text(f'{head}\n{{"job":1,')

    def is_torn_answered(self) -> bool:
        return (self._folder / "tell.answer").exists()


class LoginNode(SlurmMailboxes):
    """A login node that is this machine."""

    wait = 1.0

    def __init__(self, folder: Path) -> None:
        super().__init__(LocalTransport(), PYTHON)
        self._folder = folder

    def find_folder(self, handle: str) -> str:
        return str(self._folder)

    def find_library(self, handle: str) -> str:
        return ""


class PlayedExec:
    """A connection to an API server whose pods are this machine: `execute` runs the command here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def execute(self, command: ExecCommand, timeout: float) -> tuple[int, str]:
        words = [word.replace(RUN_DIR, str(self._folder.parent)) for word in command.words]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            # The end of the input is not told.
            process.stdin.write(command.line.decode())
            process.stdin.flush()
            said = process.stdout.read()
            return process.wait(timeout), said


def open_exec(folder: Path, patch: pytest.MonkeyPatch) -> ByMailbox:
    """The way into a pod."""
    pod = SimpleNamespace(
        namespace="n", name="p", started_at=1.0, ended=False, attempt=0, run=0
    )  # fmt: skip

    async def find(handle: object) -> object:
        return handle

    launches: Any = SimpleNamespace(find=find, pods=lambda watched: [pod])
    connection: Any = PlayedExec(folder)
    patch.setattr(pod_mailboxes, "parse_handle", lambda handle: handle)
    mailboxes = PodMailboxes(connection, launches)
    patch.setattr(mailboxes, "wait", 1.0)
    patch.setattr(mailboxes, "find_folder", lambda handle: str(folder))
    return ByMailbox(folder, "exec", mailboxes)


@pytest.fixture(params=["socket", "mailbox", "exec"])
def way(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Way:
    """Each way."""
    monkeypatch.setattr(routes, "IDLE_SECONDS", 0.1)
    folder = tmp_path / "mailbox"
    if request.param == "socket":
        return ByConnection(tmp_path)
    if request.param == "mailbox":
        return ByMailbox(folder, "mailbox", LoginNode(folder))
    return open_exec(folder, monkeypatch)


async def until(fact: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until a fact is true."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not fact():
        assert asyncio.get_running_loop().time() < deadline, "the fact did not come true"
        await asyncio.sleep(0.005)


class PlayedWorker:
    """The worker that job 1 is, as far as the daemon can tell."""

    def __init__(self, way: Way, word: str = WORD) -> None:
        self.word = word
        self._connections = [way.address.open(name) for name in ("ask", "tell", "output")]
        self._ask, self._tell, self._output = self._connections
        self.held: dict[str, dict[str, int]] = {}

    def close(self) -> None:
        """Close its connections."""
        for connection in self._connections:
            connection.close()

    async def call(self, function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """In a thread of its own, since one that waits for an answer that never comes must hold up nothing."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[dict[str, Any]] = loop.create_future()

        def settle(answer: dict[str, Any], error: Exception | None) -> None:
            if not done.done():
                done.set_result(answer) if error is None else done.set_exception(error)

        def work() -> None:
            answer: dict[str, Any] = {}
            fault: Exception | None = None
            try:
                answer = function()
            except Exception as error:
                fault = error
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, answer, fault)

        threading.Thread(target=work, daemon=True).start()
        return await done

    def _message(self, journals: dict[str, Any], wait: float) -> dict[str, Any]:
        said = {"held": dict(self.held), "journals": journals, "features": list(FEATURES)}
        return {"job": 1, "word": self.word, "wait": wait, **said}

    async def _exchange(self, connection: WorkerConnection, message: dict[str, Any]) -> dict[str, Any]:
        """As the real one it says it again where there is no answer yet: the first words in a mailbox do not count."""
        for _ in range(3):
            try:
                return await self.call(lambda: connection.exchange(message))
            except OSError as error:
                if "answered 503" not in str(error):
                    raise
        raise AssertionError("it is never answered")

    async def ask(self, wait: float = 0.0) -> dict[str, Any]:
        """Ask for news."""
        return await self._exchange(self._ask, self._message({}, wait))

    async def tell(self, handle: str, offset: int, text: str) -> dict[str, Any]:
        """Tell what a journal has got behind an offset."""
        return await self._exchange(self._tell, self._message({handle: {"offset": offset, "text": text}}, 0.0))

    async def print(self, handle: str, offset: int, data: bytes) -> dict[str, Any]:
        """Send a piece of output."""
        stream = {"task": "run", "node": 0, "attempt": 0, "run": 0, "stream": "output"}
        text = base64.b64encode(data).decode()
        piece = {"handle": handle, "number": 0, "stream": stream, "offset": offset, "data": text}
        message = {"job": 1, "word": self.word, **piece}
        return await self.call(lambda: self._output.post(OUTPUT, message))

    async def take_lease(self, wait: float = 20.0) -> str:
        """Wait for a lease, and hold it."""
        answer = await self.ask(wait)
        (handle,) = answer["leases"]
        self.held[handle] = {"sent": 0, "orders": 0}
        return str(handle)


class WayScene:
    """A pool of one worker, which is job 1, by a way; and jobs that wait for it."""

    def __init__(self, bench: Bench, way: Way) -> None:
        self.bench, self.way = bench, way
        self.worker = PlayedWorker(way)

    async def open(self) -> None:
        """Make the pool, and let its worker's job run."""
        await self.bench.controller.pools.apply("p", Submission("job_file", FILE.format(more=""), user="me"))
        await until(lambda: "1.0" in self.way.cluster.journals and self.bench.job(1).launch == 0)
        await turn()
        self.way.cluster.tell("1.0", *begin(self.bench.job(1), self.bench.clock.now))
        await until(lambda: self.bench.state(1) == "RUNNING")
        await self.way.serve(self.bench)

    async def send(self, text: str = JOB) -> int:
        """Submit a job to the pool."""
        job = await self.bench.submit(text, kind="job_file")
        await until(lambda: self.find_handle(job) != "")
        return job

    async def lease(self) -> tuple[int, str]:
        """Submit a job that the worker has a lease of: its number, and the handle."""
        await self.worker.ask()
        job = await self.send()
        return job, await self.worker.take_lease()

    async def run(self) -> tuple[int, str, str, str]:
        """Submit a job whose start the worker has told: its number, the handle, and the two parts of its journal."""
        job, handle = await self.lease()
        start, end = self.journal(job)
        await self.worker.tell(handle, 0, start)
        await self.until_state(job, "RUNNING")
        return job, handle, start, end

    def find_handle(self, job: int) -> str:
        entry = self.bench.controller.recorder.registry.get(job)
        return "" if entry is None else entry.handle

    async def restart(self) -> None:
        """Kill the daemon, and start another."""
        self.worker.close()
        await self.way.end()
        await self.bench.kill()
        await self.bench.start()
        await self.way.serve(self.bench)

    def show(self) -> dict[str, Any]:
        """The worker as `span pool show` has it."""
        (worker,) = self.bench.controller.pools.describe("p")[0]["workers"]
        return dict(worker)

    def journal(self, job: int) -> tuple[str, str]:
        """What the journal of a job has at its start, and what follows at its end."""
        facts, now = self.bench.job(job), self.bench.clock.now
        task = facts.tasks[0].name
        first = begin(facts, now)[1:]
        last = NodeEnded(now, task, len(facts.tasks[0].attempts), 0, exit_code=0)
        return write(*first), write(last) + END_LINE.decode()

    async def until_state(self, job: int, state: str) -> None:
        await until(lambda: self.bench.state(job) == state)


def write(*events: Event) -> str:
    """Lines of a journal."""
    return "".join(json.dumps(event_to_document(event)) + "\n" for event in events)


@pytest.fixture
def scene(way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Plays a scene."""

    def run(story: Callable[[WayScene], Awaitable[None]]) -> None:
        def prepare(bench: Bench) -> None:
            bench.state_dir, bench.reader = str(tmp_path / "state"), read_real
            os.makedirs(bench.state_dir, exist_ok=True)
            way.prepare(bench)
            monkeypatch.setattr(pool_cluster, "time", SimpleNamespace(time=bench.clock))

        async def play_scene(bench: Bench) -> None:
            made = WayScene(bench, way)
            await made.open()
            try:
                await story(made)
            finally:
                made.worker.close()
                bench.controller.end_waits()
                await way.end()

        play(play_scene, way.cluster, prepare)

    return run


Play = Callable[[Callable[[WayScene], Awaitable[None]]], None]


def test_a_worker_registers_and_its_way_is_told(scene: Play, way: Way) -> None:
    async def story(each: WayScene) -> None:
        assert each.show()["state"] == "STARTING"
        answer = await each.worker.ask()
        assert answer["root"] and not answer["leases"]
        assert (each.show()["state"], each.show()["way"]) == ("READY", way.name)

    scene(story)


def test_a_question_that_waits_gets_the_lease_of_a_job_that_comes(scene: Play) -> None:
    async def story(each: WayScene) -> None:
        await each.worker.ask()
        waiting = asyncio.ensure_future(each.worker.take_lease())
        job = await each.send()
        handle = await waiting
        assert handle == each.find_handle(job)
        await until(lambda: each.bench.job(job).granted_at is not None)
        assert each.show()["jobs"] == [job]

    scene(story)


def test_a_group_is_leased(scene: Play) -> None:
    async def story(each: WayScene) -> None:
        await each.worker.ask()
        group = await each.send("name: g\n" + JOB + "num_nodes: 2\n")
        assert await each.worker.take_lease() == each.find_handle(group)
        assert [place.index for place in each.bench.job(group).placements] == [0, 1]

    scene(story)


def test_start_output_and_end_of_a_job_arrive(scene: Play) -> None:
    async def story(each: WayScene) -> None:
        job, handle, start, end = await each.run()
        assert await each.worker.print(handle, 0, b"one\n") == {"format": 1, "taken": True}
        assert (await each.worker.print(handle, 4, b"two\n"))["taken"]
        await each.worker.tell(handle, len(start), end)
        await each.until_state(job, "COMPLETED")
        (printed,) = Path(each.bench.state_dir).rglob("outputs/*")
        assert printed.read_bytes() == b"one\ntwo\n"
        assert each.show()["jobs"] == []

    scene(story)


def test_a_worker_whose_job_is_over_is_dismissed_and_its_words_count_no_more(scene: Play) -> None:
    async def story(each: WayScene) -> None:
        job, *_ = await each.run()
        each.way.cluster.lose("1.0")
        await until(lambda: each.bench.job(1).over)
        if each.way.name == "socket":
            # Nobody visits the mailbox of a job that is over, so its last words are read at most by chance.
            with pytest.raises(Dismissed):
                await each.worker.ask()
        await until(lambda: each.bench.job(job).granted_at is None)

    scene(story)


def test_a_process_that_another_has_replaced_is_dismissed(scene: Play) -> None:
    async def story(each: WayScene) -> None:
        job, handle = await each.lease()
        later = PlayedWorker(each.way, "def")
        await later.ask()
        later.close()
        with pytest.raises(Dismissed):
            await each.worker.tell(handle, 0, each.journal(job)[0])
        assert each.bench.state(job) != "RUNNING"

    scene(story)


def test_a_worker_that_was_away_keeps_its_lease(scene: Play) -> None:
    async def story(each: WayScene) -> None:
        job, handle = await each.lease()
        each.bench.clock.advance(100)
        assert each.show()["state"] == "SILENT"
        start, end = each.journal(job)
        await each.worker.tell(handle, 0, start + end)
        await each.until_state(job, "COMPLETED")
        assert each.show()["state"] == "READY"

    scene(story)


def test_what_is_told_twice_counts_once(scene: Play) -> None:
    async def story(each: WayScene) -> None:
        job, handle = await each.lease()
        start, end = each.journal(job)
        for _ in range(2):
            await each.worker.tell(handle, 0, start)
            assert (await each.worker.print(handle, 0, b"once\n"))["taken"]
        await each.worker.tell(handle, 0, start + end)
        await each.until_state(job, "COMPLETED")
        (printed,) = Path(each.bench.state_dir).rglob("outputs/*")
        assert printed.read_bytes() == b"once\n"
        (task,) = each.bench.job(job).tasks
        assert len(task.attempts) == 1

    scene(story)


def test_what_comes_in_another_order_is_asked_for_again(scene: Play) -> None:
    async def story(each: WayScene) -> None:
        job, handle = await each.lease()
        start, end = each.journal(job)
        each.worker.held[handle]["sent"] = len(start + end)
        answer = await each.worker.tell(handle, len(start), end)
        assert answer["places"] == {handle: 0}
        assert each.bench.state(job) != "COMPLETED"
        await each.worker.tell(handle, 0, start + end)
        await each.until_state(job, "COMPLETED")

    scene(story)


def test_an_order_reaches_the_worker_until_it_has_it(scene: Play) -> None:
    async def story(each: WayScene) -> None:
        job, handle, start, _ = await each.run()
        each.worker.held[handle]["sent"] = len(start)
        waiting = asyncio.ensure_future(each.worker.ask(20.0))
        await each.bench.controller.orders.cancel(CancelRequest((str(job),)))
        (first,) = (await waiting)["orders"][handle]
        (again,) = (await each.worker.ask(20.0))["orders"][handle]
        assert first == again and first["event"]["event"] == "Cancel"
        each.worker.held[handle]["orders"] = int(first["seq"])
        assert handle not in (await each.worker.ask())["orders"]

    scene(story)


def test_a_new_daemon_goes_on_with_the_lease(scene: Play) -> None:
    async def story(each: WayScene) -> None:
        job, handle, start, end = await each.run()
        await each.restart()
        answer = await each.worker.ask()
        assert not answer["leases"] and not answer["drop"]
        await each.worker.tell(handle, len(start), end)
        await each.until_state(job, "COMPLETED")
        assert each.bench.job(job).launch == 0

    scene(story)


def test_half_a_message_does_no_harm(scene: Play, way: Way) -> None:
    async def story(each: WayScene) -> None:
        job, handle = await each.lease()
        await asyncio.to_thread(way.tear)
        await each.worker.ask()
        assert not way.is_torn_answered()
        assert (each.show()["state"], each.show()["jobs"], each.bench.state(job)) == ("READY", [job], "CONFIGURING")
        start, end = each.journal(job)
        await each.worker.tell(handle, 0, start + end)
        await each.until_state(job, "COMPLETED")
        (task,) = each.bench.job(job).tasks
        assert (len(task.attempts), each.bench.job(job).launch) == (1, 0)

    scene(story)


def test_what_is_no_message_is_refused_and_the_next_one_counts(scene: Play) -> None:
    async def story(each: WayScene) -> None:
        connection: WorkerConnection = each.way.address.open("output")
        wrong: list[tuple[str, dict[str, Any]]] = [
            (OUTPUT, {"job": 1}),
            ("/v1/pool/exchange", {"job": 1, "word": "../x", "held": {}, "journals": {}, "wait": 0}),
        ]
        for path, message in wrong:
            with pytest.raises(OSError, match="no message of a worker"):
                await each.worker.call(partial(connection.post, path, message))
        connection.close()
        assert (await each.worker.ask())["root"]

    scene(story)


def test_a_drained_worker_gets_no_more_and_finishes_what_it_holds(scene: Play) -> None:
    async def story(each: WayScene) -> None:
        job, handle = await each.lease()
        await each.bench.controller.pools.drain("p", [1])
        await each.send()
        assert not (await each.worker.ask())["leases"] and each.bench.job(1).ending is None
        start, end = each.journal(job)
        await each.worker.tell(handle, 0, start + end)
        await each.until_state(job, "COMPLETED")
        each.bench.clock.advance(5)
        await until(lambda: each.bench.job(1).ending is not None or bool(each.way.cluster.orders))

    scene(story)
