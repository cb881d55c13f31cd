"""Random histories of a pool: a job runs once an attempt, never twice at once, whoever dies, whatever is repeated.

The store keeps what the adapter reports, as the daemon does; workers are played: each says how far it is, in any order,
also late and twice, and a dead one may still speak.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import count_examples

from overspan.adapters.abilities import DeclaredWorker, HeldLaunch, WorkerKind, WorkerMessage
from overspan.adapters.contract import Accepted, ClusterConfig, Launch, Order, Report, SomeUnanswered
from overspan.adapters.cursors import Cursors
from overspan.adapters.pool import cluster
from overspan.adapters.pool.cluster import PoolCluster
from overspan.adapters.pool.launches import NO_LEASE, WorkerLease
from overspan.bridge.model.errors import Denied
from overspan.bridge.model.events import Cancel, Granted, LaunchLost
from overspan.bridge.model.job import Job, Placement, new_job
from overspan.bridge.model.records import replace
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.runtime.pool.exchanges import FEATURES

TASK = TaskSpec("t", run="true", resources=Resources(cpus=1))
WORKER = TaskSpec("worker", resources=Resources(cpus=2))
END = '{"end":true}\n'


@dataclass
class StoredLaunch:
    """What the store has of a job: its present launch, and what was reported of it."""

    job: Job
    accepted: bool = False
    cursor: str = ""
    over: bool = False
    launches: list[int] = field(default_factory=list)
    """Which launches were told as begun, in order."""


@dataclass
class PlayedWorker:
    """A worker process: the journals of its launches, and how much of each it has sent."""

    job: int
    word: str
    journals: dict[str, str] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    orders: dict[str, int] = field(default_factory=dict)
    alive: bool = True
    known: PoolCluster | None = None
    """The daemon's adapter that it has spoken to last."""

    def runs(self, handle: str) -> bool:
        """Whether the program of a launch runs in it."""
        return self.alive and not self.journals.get(handle, END).endswith(END)


class Histories(RuleBasedStateMachine):
    """The machine; each rule is one step of somebody."""

    folder: Path
    live = True
    """Whether the pool is given cursors that tell what has moved, as by the daemon."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, StoredLaunch] = {}
        self.workers: dict[int, PlayedWorker] = {}
        self.dead: list[PlayedWorker] = []
        self.runs: list[str] = []
        """Every launch that any worker has ever begun."""
        self.number = 100
        self.cursors = Cursors()
        self.pool = self.open()

    def open(self) -> PoolCluster:
        """A daemon begins, with what the store has."""
        return PoolCluster(
            ClusterConfig(
                "p", "pool", state=str(self.folder), list_cursors=self.list_cursors, find_launch=self.find_launch
            )
        )

    def list_cursors(self) -> dict[str, str]:
        return {name(each.job): each.cursor for each in self.jobs.values() if each.accepted and not each.over}

    def note_cursors(self) -> dict[str, str]:
        stored = self.list_cursors()
        for handle, cursor in stored.items():
            self.cursors.put(handle, cursor)
        for handle in self.cursors.keys() - stored.keys():
            self.cursors.leave(handle)
        return self.cursors if self.live else stored

    def find_launch(self, handle: str) -> Launch | None:
        stored = self.jobs.get(int(handle.partition(".")[0]))
        if stored is None or stored.over or name(stored.job) != handle:
            return None
        return Launch(f"token-{handle}", stored.job)

    def call(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run(make())

    # --- the daemon ---------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.start_worker()
        self.submit(3)

    @rule(count=st.integers(1, 3))
    def submit(self, count: int) -> None:
        for _ in range(count):
            number = len(self.jobs) + 1
            self.jobs[number] = StoredLaunch(new_job(number, JobSpec("j", (TASK,)), 0.0))
        self.send("with its report")

    @rule(stored=st.sampled_from(["with its report", "alone", ""]))
    def send(self, stored: str) -> None:
        """Make the submissions that are owed, and those again of which no answer was stored."""
        owed = [each for each in self.jobs.values() if not each.accepted and not each.over]
        answers = self.call(lambda: self.pool.submit([Launch(f"token-{name(each.job)}", each.job) for each in owed]))
        for each, answer in zip(owed, answers, strict=True):
            assert isinstance(answer, Accepted) and answer.handle == name(each.job)
            each.accepted = stored != ""
            if answer.report is not None and stored == "with its report":
                self.keep(answer.report)

    @rule(stored=st.booleans())
    def observe(self, stored: bool) -> None:
        """Read the reports; where the store fails, nothing is kept of them."""
        found = self.call(lambda: self.pool.observe(self.note_cursors(), 0))
        for report in found.reports if stored else ():
            self.keep(report)

    def keep(self, report: Report) -> None:
        stored = self.jobs[int(report.handle.partition(".")[0])]
        assert name(stored.job) == report.handle and not report.gone
        stored.cursor = report.cursor
        for event in report.events:
            if isinstance(event, Granted):
                assert stored.job.granted_at is None, "one lease a launch"
                places = tuple(Placement(task, index, node, "", gpus) for task, index, node, _, gpus in event.members)
                stored.job = replace(stored.job, granted_at=event.at, placements=places)
            elif isinstance(event, LaunchLost):
                fresh = new_job(stored.job.id, stored.job.spec, 0.0)
                stored.job, stored.cursor, stored.accepted = replace(fresh, launch=stored.job.launch + 1), "", False
                return
            elif isinstance(event, Cancel):
                # It waited, so the order ends it.
                stored.over = True
                return
            else:
                stored.launches.append(stored.job.launch)
        if stored.job.granted_at is not None and self.is_ended(report):
            stored.over = True

    def is_ended(self, report: Report) -> bool:
        """Whether the report's cursor is behind the journal's last line."""
        offset = int(report.cursor.rpartition(":")[2])
        journals = [each.journals.get(report.handle, "") for each in (*self.workers.values(), *self.dead)]
        return any(len(text) == offset and text.endswith(END) for text in journals)

    @rule()
    def release(self) -> None:
        handles = list(self.list_cursors())
        owed = [f"token-{name(each.job)}" for each in self.jobs.values() if not each.accepted]
        self.call(lambda: self.pool.release("i", handles, owed))

    @rule()
    def restart(self) -> None:
        """The daemon is killed, and another one begins."""
        self.pool = self.open()
        self.declare()

    def declare(self) -> None:
        live = [DeclaredWorker(each.job, f"p-{each.job}", WORKER) for each in self.workers.values()]
        self.pool.declare(live, [WorkerKind(WORKER)])

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """An order is taken once, and again where its answer was lost."""
        handles = list(self.list_cursors())
        if handles:
            handle = data.draw(st.sampled_from(handles))
            stored = self.jobs[int(handle.partition(".")[0])]
            if stored.job.granted_at is None:
                # Where a lease was told and its worker has not spoken since, it is asked again later.
                with contextlib.suppress(SomeUnanswered):
                    self.call(lambda: self.pool.order([Order(f"c-{handle}", handle, Cancel(1.0))]))

    # --- workers ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.workers) < 3)
    @rule()
    def start_worker(self) -> None:
        self.number += 1
        self.workers[self.number] = PlayedWorker(self.number, "a")
        self.declare()

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def kill_worker(self, data: st.DataObject) -> None:
        """Its cluster says that the job is over: only then its processes are surely gone."""
        worker = self.workers.pop(data.draw(st.sampled_from(sorted(self.workers))))
        worker.alive = False
        self.dead.append(worker)
        self.declare()

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def restart_worker(self, data: st.DataObject) -> None:
        """A worker's process dies, and its job starts another one, which speaks first of all."""
        old = self.workers[data.draw(st.sampled_from(sorted(self.workers)))]
        old.alive = False
        self.dead.append(old)
        self.workers[old.job] = PlayedWorker(old.job, chr(ord(old.word) + 1))
        # A daemon that never met the old process knows nothing of it.
        if old.known is self.pool:
            self.speak(self.workers[old.job], 0.0)
            with pytest.raises(Denied):
                self.speak(old, 1.0)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), heard=st.booleans(), share=st.sampled_from([0.0, 0.5, 1.0]))
    def exchange(self, data: st.DataObject, heard: bool, share: float) -> None:
        """A worker speaks; its answer may be lost."""
        worker = self.workers[data.draw(st.sampled_from(sorted(self.workers)))]
        answer = self.speak(worker, share)
        if heard:
            self.obey(worker, answer)

    @precondition(lambda self: self.workers)
    @rule(rounds=st.integers(1, 3), share=st.sampled_from([0.0, 1.0]))
    def go_on(self, rounds: int, share: float) -> None:
        """Some time passes in which all goes well."""
        for _ in range(rounds):
            for worker in self.workers.values():
                self.obey(worker, self.speak(worker, share))
            for _ in range(2):
                # The second one shows the adapter what the first one has stored.
                self.observe(True)

    @precondition(lambda self: self.list_gone())
    @rule(data=st.data())
    def late_word(self, data: st.DataObject) -> None:
        """What a worker had said arrives after the end of its job: nothing follows from it."""
        worker = data.draw(st.sampled_from(self.list_gone()))
        with pytest.raises(Denied):
            self.speak(worker, 1.0)

    @precondition(lambda self: any(each.runs(handle) for each in self.workers.values() for handle in each.journals))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """A program ends."""
        running = [(each, handle) for each in self.workers.values() for handle in each.journals if each.runs(handle)]
        worker, handle = data.draw(st.sampled_from(running))
        worker.journals[handle] += line("NodeEnded") + END

    def list_gone(self) -> list[PlayedWorker]:
        """The processes whose jobs are over."""
        return [worker for worker in self.dead if worker.job not in self.workers]

    def speak(self, worker: PlayedWorker, share: float) -> dict[str, Any]:
        journals = {}
        for handle, text in worker.journals.items():
            sent = worker.sent.get(handle, 0)
            part = text[sent:][: int(len(text[sent:]) * share)]
            part = part[: part.rfind("\n") + 1]
            if part:
                journals[handle] = (sent, part)
        held = {
            handle: HeldLaunch(worker.sent.get(handle, 0), worker.orders.get(handle, 0)) for handle in worker.journals
        }
        message = WorkerMessage(worker.job, worker.word, held, journals, features=frozenset(FEATURES))
        answer: dict[str, Any] = self.call(lambda: self.pool.exchange(message))
        worker.known = self.pool
        return answer

    def obey(self, worker: PlayedWorker, answer: dict[str, Any]) -> None:
        for handle in answer["leases"]:
            if handle not in worker.journals:
                assert self.jobs[int(handle.partition(".")[0])].job.granted_at is not None, "stored before it is told"
                worker.journals[handle] = line("Launch") + line("NodeStarted")
                self.runs.append(handle)
        for handle, place in answer["places"].items():
            worker.sent[handle] = place
        for handle, orders in answer["orders"].items():
            worker.orders[handle] = orders[-1]["seq"]
        for handle in answer["drop"]:
            worker.journals.pop(handle, None)
            worker.sent.pop(handle, None)

    # --- what holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def no_job_runs_twice_at_once(self) -> None:
        running = [handle for each in self.workers.values() for handle in each.journals if each.runs(handle)]
        jobs = [handle.partition(".")[0] for handle in running]
        assert len(set(jobs)) == len(jobs), running

    @invariant()
    def a_launch_begins_once(self) -> None:
        assert len(set(self.runs)) == len(self.runs), self.runs

    @invariant()
    def what_is_told_of_a_launch_is_told_once(self) -> None:
        for stored in self.jobs.values():
            # Launch, NodeStarted, NodeEnded.
            assert all(stored.launches.count(number) <= 3 for number in set(stored.launches))

    @invariant()
    def no_worker_has_more_than_it_can(self) -> None:
        for worker in self.workers.values():
            assert sum(worker.runs(handle) for handle in worker.journals) <= 2

    def teardown(self) -> None:
        """In the end all that was submitted has run, or was cancelled."""
        self.start_worker()
        for _ in range(8 * (len(self.jobs) + 2)):
            self.send("with its report")
            self.observe(True)
            for worker in self.workers.values():
                self.obey(worker, self.speak(worker, 1.0))
                for handle in worker.journals:
                    if worker.runs(handle):
                        worker.journals[handle] += line("NodeEnded") + END
            self.release()
        left = [name(each.job) for each in self.jobs.values() if not each.over]
        assert not left, left
        assert not any(worker["jobs"] for worker in self.pool.list_workers()), "all that was held is given back"


def name(job: Job) -> str:
    """The handle of a job's present launch."""
    return f"{job.id}.{job.launch}"


def line(kind: str) -> str:
    """A line of a journal."""
    documents = {
        "Launch": {"event": "Launch", "at": 1.0, "task": "t", "attempt": 0},
        "NodeStarted": {"event": "NodeStarted", "at": 1.0, "task": "t", "attempt": 0, "node": 0},
        "NodeEnded": {"event": "NodeEnded", "at": 2.0, "task": "t", "attempt": 0, "node": 0},
    }
    return json.dumps(documents[kind]) + "\n"


@pytest.mark.parametrize("live", [False, True], ids=["cursors", "what has moved"])
def test_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: bool) -> None:
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.0)
    kind: Any = type("Machine", (Histories,), {"folder": tmp_path, "live": live})
    machine = kind.TestCase
    machine.settings = settings(
        max_examples=count_examples(40), stateful_step_count=50, deadline=None, suppress_health_check=[*HealthCheck]
    )
    machine().runTest()
    assert WorkerLease() == NO_LEASE, "nothing was written into what all launches that wait share"
