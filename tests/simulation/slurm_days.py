"""One seed of the real Slurm adapter: users, a fake Slurm in which everything happens, and daemons that die."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.slurm_controller import FakeSlurm, Site
from tests.fakes.slurm_jobs import Behaviour, NativeJob
from tests.fakes.slurm_supervisor import FakeSupervisor, Key
from tests.simulation.clockwork import START, Chaos, LoopTimers, SteppedStore
from tests.simulation.links import Link
from tests.simulation.lives import Lives
from tests.simulation.orders import Orders
from tests.simulation.promises import check_timeline, check_whole

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.slurm.cluster import SlurmCluster
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.controller import ControllerParts
from overspan.bridge.controller.submission.parsing import read
from overspan.bridge.model.job import Job
from overspan.bridge.model.states import State
from overspan.bridge.readers.submission import Submission

MISCHIEF = 300.0
"""Seconds of simulated time in which things go wrong."""
SETTLING = 6000.0
CLUSTER = {"kind": "slurm", "transport": "ssh", "host": "login"}
GROUP = """\
name: {name}
execution: parallel
primary_tasks: [first]
---
name: first
num_nodes: {nodes}
resources: {{cpus: 2}}
max_restarts_on_errors: {budget}
run: {work}
---
name: second
resources: {{cpus: 1}}
run: work 5000 0 1
"""
PIPELINE = """\
name: {name}
---
name: first
num_nodes: {nodes}
resources: {{cpus: 2}}
max_restarts_on_errors: {budget}
run: {work}
---
name: second
num_nodes: {nodes}
resources: {{cpus: 1}}
run: work 5 0 1
"""


class SlurmDays:
    """The world of one seed."""

    def __init__(self, seed: int, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.chaos = Chaos(seed)
        self.folder = folder
        self.loop = asyncio.get_running_loop()
        chance = self.chaos.random
        site = Site(
            kill_wait=chance.choice((5.0, 30.0)),
            epilog=chance.choice((0.0, 0.0, 20.0)),
            min_job_age=chance.choice((60.0, 300.0)),
            accounting_lag=chance.choice((0.0, 0.0, 15.0)),
            accounting=chance.random() < 0.85,
        )
        if not site.accounting:
            # How a job ended that such a Slurm has forgotten is known to nobody.
            site.min_job_age = 3600.0
        self.slurm = FakeSlurm(START, site)
        self.link = Link(self.slurm, folder, self.now, self.chaos)
        self.link.behave, self.link.programs = self._behave, lambda task: read_work(task.run)
        self.link.on_program = self._note_program
        started = self.slurm.on_start
        self.slurm.on_start = lambda native: (self._note_start(native), started(native))[1]  # type: ignore[func-returns-value]
        self._set_down = self.slurm.set_down
        patch.setattr(self.slurm, "set_down", self._lose)
        patch.setattr(time, "time", self.now)
        patch.setattr(time, "monotonic", self.loop.time)
        # Work takes no processor time: pauses that follow what was used would be of other lengths each time.
        patch.setattr(time, "thread_time", lambda: 0.0)
        patch.setattr("overspan.adapters.slurm.cluster.find_process_start", self.now)
        self.lives = Lives(self.chaos, self._make_parts)
        self.orders = Orders(self.lives, MISCHIEF)
        self.wrong: list[str] = []
        self.started: list[tuple[float, str]] = []
        """When a program of the users' has started, and whose."""
        self.touched: set[str] = set()
        """The names of jobs to which somebody did something in Slurm that may end them."""
        self._alive: dict[str, list[Callable[[], bool]]] = {}

    @property
    def starts(self) -> int:
        """How many programs were started."""
        return len(self.started)

    def now(self) -> float:
        """Seconds since 1970."""
        return START + self.loop.time()

    def _make_parts(self, store: SteppedStore) -> ControllerParts:
        settings = Settings.model_validate({"clusters": {"fake": CLUSTER}, "default_cluster": "fake"})

        def open_any(config: ClusterConfig) -> SlurmCluster:
            return SlurmCluster(config, self.link)

        return ControllerParts(
            store, settings, str(self.folder / "state"), LoopTimers(), self.now, read, lambda kind: open_any
        )

    # --- what programs do --------------------------------------------------------------------------------------------

    def _lose(self, node: str, reason: str = "test") -> None:
        """A node is lost, and what runs there with it."""
        self.touched.update(self.slurm.jobs[number].request.name for number in self.slurm.nodes[node].given)
        self._set_down(node, reason)

    def _behave(self, native: NativeJob) -> Behaviour:
        work = read_work(native.request.script)
        if self.chaos.happens(0.03):
            launch = self.chaos.random.choice(("silent", "prolog"))
            self.touched.add(native.request.name)
            return Behaviour(work.seconds, work.code, on_term=work.on_term, launch=launch)
        return work

    def _note_start(self, native: NativeJob) -> None:
        if native.behaviour is not None and native.behaviour.seconds is not None:
            index = "" if native.index is None else f"_{native.index}"
            self._note(f"{native.request.name}{index}", native, lambda: True)

    def _note_program(self, supervisor: FakeSupervisor, key: Key) -> None:
        name = f"{supervisor.job.spec.name}/{key[0]}/{key[2]}"
        self._note(name, supervisor.native, lambda: key in supervisor.running)

    def _note(self, name: str, native: NativeJob, runs: Callable[[], bool]) -> None:
        """A program starts: nothing of the same place in the same job may run."""
        run = native.run

        def alive() -> bool:
            return native.run == run and bool(native.flag or native.state == "RUNNING") and runs()

        others = [one for one in self._alive.get(name, ()) if one()]
        self._check_wanted(name)
        if others:
            self.wrong.append(f"{name} started at {self.slurm.now - START:.1f} while another of it runs")
        self._alive[name] = [*others, alive]
        self.started.append((self.slurm.now, name))

    def _check_wanted(self, name: str) -> None:
        """Nothing starts of what the daemon has told as over."""
        for entry in self.lives.controller.recorder.registry:
            job = entry.job
            if job.over and name.partition("/")[0] == name_job(job):
                self.wrong.append(f"{name} started at {self.slurm.now - START:.1f}, and was told as {job.state.value}")

    # --- the run -----------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        """The whole run."""
        number = self.chaos.random.randint(2, 7)
        self.lives.staying.add(asyncio.current_task())  # type: ignore[arg-type]
        users = [self.lives.stay(self._use(place)) for place in range(number)]
        others = [self.lives.stay(self._meddle()), self.lives.stay(self.lives.keep())]
        await asyncio.sleep(MISCHIEF)
        self.chaos.calm = True
        await asyncio.gather(*users)
        others.pop(0).cancel()
        self._repair()
        await self._settle()
        await self.check()
        for task in others:
            task.cancel()
        self.lives.bury()
        await asyncio.gather(*others, return_exceptions=True)

    async def _use(self, number: int) -> None:
        await asyncio.sleep(self.chaos.random.uniform(0, MISCHIEF / 2))
        await self.orders.submit(self._make_submission(f"job-{number}"))
        await self.orders.meddle()

    def _make_submission(self, name: str) -> Submission:
        chance = self.chaos.random
        seconds, code, on_term = chance.choice((1, 20, 90)), chance.choice((0, 0, 3)), chance.choice(("0", "3", "none"))
        work = f"work {seconds} {code} {on_term}"
        kind = chance.choice(("script", "script", "array", "task", "group", "pipeline"))
        options = [f"--job-name={name}", *(one for one in ("--hold", "--begin=now+30") if chance.random() < 0.15)]
        if kind == "task":
            text = f"name: {name}\nrun: {work}\n" + ("slurm: {requeue: ''}\n" if chance.random() < 0.5 else "")
        elif kind == "group":
            text = GROUP.format(name=name, nodes=chance.choice((1, 2)), budget=chance.choice((0, 2)), work=work)
        elif kind == "pipeline":
            text = PIPELINE.format(
                name=name, nodes=chance.choice((1, 1, 2)), budget=chance.choice((0, 0, 2)), work=work
            )
        else:
            options.append("--requeue" if chance.random() < 0.7 else "--no-requeue")
            options += ["--array=0-4" + chance.choice(("", "%2"))] * (kind == "array")
            text = "#!/bin/bash\n" + "".join(f"#SBATCH {option}\n" for option in options) + work + "\n"
        form = "script" if kind in ("script", "array") else "job_file"
        return Submission(form, text, name, command=("sbatch", name), directory="/home/ada", user="ada", name=name)

    async def _meddle(self) -> None:
        """Things happen in Slurm, and operators do something about them."""
        chance = self.chaos.random
        while True:
            await asyncio.sleep(chance.uniform(5, 60))
            self.slurm.catch_up(self.now())
            jobs = [job for job in self.slurm.jobs.values() if job.state == "RUNNING"]
            what = chance.choice(("requeue", "hold", "down", "down", "drain", "cancel", "none"))
            node = chance.choice(sorted(self.slurm.nodes))
            if what in ("down", "drain"):
                (self.slurm.set_down if what == "down" else self.slurm.drain)(node)
                self.loop.call_later(chance.uniform(5, 60), self._resume, node)
            elif jobs and what != "none":
                job = chance.choice(jobs)
                self.touched.add(job.request.name)
                if what == "cancel":
                    self.slurm.cancel(job, 0)
                else:
                    self.slurm.requeue(job, what == "hold")

    def _resume(self, node: str) -> None:
        self.slurm.catch_up(self.now())
        self.slurm.resume(node)

    def _repair(self) -> None:
        for node in self.slurm.nodes:
            self._resume(node)

    async def _settle(self) -> None:
        """Release what is held, and wait for the end of every job."""
        deadline = self.now() + SETTLING
        while True:
            live = [stored.job for stored in await self.lives.find() if not stored.job.over]
            if not live and not await self.lives.ask(lambda daemon: self.lives.store.outbox()):
                return
            assert self.now() < deadline, f"not over: {[(job.id, job.state, job.reason, job.held) for job in live]}"
            await self.orders.release([job for job in live if job.held or "eld" in job.reason])
            self._repair()
            await asyncio.sleep(10.0)

    # --- the promises ------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """What has to be so when everything is over."""
        await asyncio.sleep(120)
        self.slurm.catch_up(self.now())
        assert self.wrong == [], self.wrong
        jobs = {item.job.id: item.job for item in await self.lives.find()}
        check_whole(self.orders.answered, jobs)
        for job in jobs.values():
            check_timeline(job, await self.lives.timeline(job.id))
            if job.array is None or job.element is not None:
                self._check_truth(job)
        left = [job.name for job in self.slurm.jobs.values() if not job.over]
        assert left == [], f"left in Slurm: {left}"
        given = {node.name: node.given for node in self.slurm.nodes.values() if node.given}
        assert given == {}, f"not given back: {given}"
        for entry in self.lives.controller.recorder.registry:
            assert entry.job == jobs[entry.job.id], "memory is not what the store says"

    def _check_truth(self, job: Job) -> None:
        """The job ended as its work did, with a cause."""
        name = name_job(job)
        assert job.ended_at is not None, name
        assert job.state is State.COMPLETED or job.reason or job.exit_code, f"{name} is {job.state} without a cause"
        if self._asked(job) & self.orders.disturbed or job.spec.name in self.touched:
            return
        work = read_work(job.spec.tasks[0].run)
        state = State.FAILED if work.code else State.COMPLETED
        assert (job.state, job.exit_code) == (state, work.code), f"{name} is {job.state} ({job.reason}) {job.exit_code}"
        assert any(whose.partition("/")[0] == name for _, whose in self.started), f"{name} has not started"

    def _asked(self, job: Job) -> set[int]:
        """The numbers by which users name a job."""
        return {job.id} if job.element is None else {job.id, job.element.array}


def name_job(job: Job) -> str:
    """A job's name, with its place in its array."""
    return job.spec.name if job.element is None else f"{job.spec.name}_{job.element.index}"


def read_work(text: str) -> Behaviour:
    """`work SECONDS CODE ON_TERM` in a script or a task."""
    found = re.search(r"work (\S+) (\d+) (none|\d+)", text)
    assert found is not None, text
    return Behaviour(float(found[1]), int(found[2]), on_term=None if found[3] == "none" else float(found[3]))
