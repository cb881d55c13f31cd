"""One seed of the real Kubernetes adapter: users, a fake cluster in which everything happens, and daemons that die."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_objects import Document
from tests.simulation.clockwork import START, Chaos, LoopTimers, SteppedStore
from tests.simulation.fibers import Condition, Event, FiberLoop, Threading
from tests.simulation.kubernetes_nodes import NODES, Nodes, Program, read_work
from tests.simulation.kubernetes_wire import SimulatedConnection, Wire
from tests.simulation.lives import Lives
from tests.simulation.machine import Machine
from tests.simulation.orders import Orders
from tests.simulation.promises import check_timeline, check_whole

from overspan.adapters.contract import Adapter, ClusterConfig
from overspan.adapters.kubernetes.api import watch
from overspan.adapters.kubernetes.cluster import KubernetesCluster
from overspan.adapters.kubernetes.launches import soft_gang
from overspan.adapters.kubernetes.logs import live_logs
from overspan.adapters.kubernetes.manifests.names import JOB, MANAGED_BY
from overspan.adapters.kubernetes.observation.records import INDEX, TASK
from overspan.adapters.kubernetes.settings import read_settings
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.controller import ControllerParts
from overspan.bridge.controller.submission.parsing import read
from overspan.bridge.model.job import Job
from overspan.bridge.model.states import State
from overspan.bridge.readers.submission import Submission

_FOLLOWED: Callable[..., Any] = live_logs._FollowedLog
MISCHIEF = 300.0
"""Seconds of simulated time in which things go wrong."""
SETTLING = 12000.0
TIDYING = 660.0
"""How long what is left over may stay: a daemon looks for it each LOOK_SECONDS (releasing.py)."""
LATE = 120.0
"""How long after the end of a job a pod of its may start that waits at no start gate: its submission was under way,
or nobody could take it back sooner. It is ended then."""
CLUSTER = {"kind": "kubernetes", "image": "busybox", "cpus": 1, "gang": "soft", "gang_timeout": 60}
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


class KubernetesDays:
    """The world of one seed."""

    def __init__(self, seed: int, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.chaos = Chaos(seed)
        self.folder = folder
        (folder / "home").mkdir(parents=True)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, FiberLoop)
        self.loop, self.fibers = loop, loop.fibers
        self._patch_modules(patch)
        self.api = KubernetesApi(self.now)
        self.lives = Lives(self.chaos, self._make_parts)
        self.nodes = Nodes(self.api, self.chaos, self.lives.stay, self._note_start)
        self.nodes.touch = lambda pod: self.touched.add(read_job(pod))
        self.api.objects.changed = Condition(self.fibers, self.nodes.look)  # type: ignore[assignment]
        self.wire = Wire(self.api, self.fibers, self.chaos)
        self.orders = Orders(self.lives, MISCHIEF)
        self.dead = self.chaos.random.choice(("", "", NODES[0]))
        """A node that does not come back before all jobs are over."""
        self.widest = 3 if self.dead else 4
        """Nodes of the largest groups, for which there is room in the end."""
        self.wrong: list[str] = []
        self.started: list[tuple[float, int]] = []
        """When a program of the users' has started, and of which job."""
        self.touched: set[int] = set()
        """Jobs to whose pods somebody did something that may end them."""
        self._alive: dict[tuple[int, str, str], list[Program]] = {}

    def _patch_modules(self, patch: pytest.MonkeyPatch) -> None:
        """Time, chance and threads are this world's."""
        threads = Threading(self.fibers)
        chance = random.Random(self.chaos.random.random())
        patch.setattr(time, "time", self.now)
        patch.setattr(time, "monotonic", self.loop.time)
        # Work takes no processor time: pauses that follow what was used would be of other lengths each time.
        patch.setattr(time, "thread_time", lambda: 0.0)
        patch.setattr(watch, "threading", threads)
        patch.setattr(live_logs, "threading", threads)
        patch.setattr(
            live_logs, "_FollowedLog", lambda *all, **named: _FOLLOWED(*all, closed=Event(self.fibers), **named)
        )
        for module in (watch, soft_gang):
            patch.setattr(module, "random", chance)
        names = SimpleNamespace(uuid4=lambda: uuid.UUID(int=chance.getrandbits(128)))
        patch.setattr("tests.fakes.kubernetes_objects.uuid", names)

    @property
    def starts(self) -> int:
        """How many programs were started."""
        return len(self.started)

    def now(self) -> float:
        """Seconds since 1970."""
        return START + self.loop.time()

    def _make_parts(self, store: SteppedStore) -> ControllerParts:
        self.fibers.bury()
        settings = Settings.model_validate({"clusters": {"fake": CLUSTER}, "default_cluster": "fake"})

        def open_any(config: ClusterConfig) -> Adapter:
            if config.kind != "kubernetes":
                # Nothing is submitted there.
                return Machine(self.chaos, config.name)
            return KubernetesCluster(config, SimulatedConnection(read_settings(config), self.wire))

        return ControllerParts(
            store, settings, str(self.folder / "state"), LoopTimers(), self.now, read, lambda kind: open_any
        )

    # --- what programs do --------------------------------------------------------------------------------------------

    def _note_start(self, program: Program) -> None:
        """A program starts: nothing of the same place in the same job may run, and nothing that was told as over."""
        pod, at = program.document, self.loop.time()
        notes, job = pod["metadata"]["annotations"], read_job(pod)
        place = job, notes[TASK], notes[INDEX]
        name = pod["metadata"]["name"]
        others = [one for one in self._alive.get(place, ()) if one.runs]
        if others:
            self.wrong.append(f"{name} started at {at:.1f} while {others[0].document['metadata']['name']} runs")
        self._alive[place] = [*others, program]
        for entry in self.lives.controller.recorder.registry:
            over_at = entry.job.ended_at
            if entry.job.id == job and over_at is not None and (program.waits or self.now() > over_at + LATE):
                self.wrong.append(f"{name} started at {at:.1f}, and was told as {entry.job.state.value}")
        self.started.append((at, job))

    # --- the run -----------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        """The whole run."""
        number = self.chaos.random.randint(2, 7)
        self.lives.staying.add(asyncio.current_task())  # type: ignore[arg-type]
        keeper, story = self.lives.stay(self.lives.keep()), self.lives.stay(self._tell(number))
        done, _ = await asyncio.wait((keeper, story), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        keeper.cancel()
        self.lives.bury()
        await asyncio.gather(keeper, return_exceptions=True)

    async def _tell(self, number: int) -> None:
        users = [self.lives.stay(self._use(place)) for place in range(number)]
        others = self.lives.stay(self._meddle())
        await asyncio.sleep(MISCHIEF)
        self.chaos.calm = True
        await asyncio.gather(*users)
        others.cancel()
        if self.dead:
            self.nodes.lose(self.dead)
        self._repair()
        await self._settle()
        self.nodes.restore(self.dead or NODES[0])
        await self.check()

    async def _use(self, number: int) -> None:
        await asyncio.sleep(self.chaos.random.uniform(0, MISCHIEF / 2))
        await self.orders.submit(self._make_submission(f"job-{number}"))
        await self.orders.meddle()

    def _make_submission(self, name: str) -> Submission:
        chance = self.chaos.random
        seconds, code, on_term = chance.choice((1, 20, 90)), chance.choice((0, 0, 3)), chance.choice(("0", "3", "none"))
        work = f"work {seconds} {code} {on_term}"
        kind = chance.choice(("script", "script", "array", "task", "group", "group", "pipeline"))
        options = [f"--job-name={name}", *(one for one in ("--hold", "--begin=now+30") if chance.random() < 0.15)]
        if kind == "task":
            text = f"name: {name}\nrun: {work}\n"
        elif kind == "group":
            text = GROUP.format(
                name=name, nodes=chance.choice((1, 2, self.widest)), budget=chance.choice((0, 2)), work=work
            )
        elif kind == "pipeline":
            text = PIPELINE.format(
                name=name, nodes=chance.choice((1, 1, 2)), budget=chance.choice((0, 0, 2)), work=work
            )
        else:
            options.append("--requeue" if chance.random() < 0.7 else "--no-requeue")
            options += ["--array=0-4" + chance.choice(("", "%2"))] * (kind == "array")
            text = "#!/bin/bash\n" + "".join(f"#SBATCH {option}\n" for option in options) + work + "\n"
        form = "script" if kind in ("script", "array") else "job_file"
        home = str(self.folder / "home")
        return Submission(form, text, name, command=("sbatch", name), directory=home, user="ada", name=name)

    async def _meddle(self) -> None:
        """Things happen in the cluster, and operators do something about them."""
        chance, streams = self.chaos.random, self.api.streams
        while True:
            await asyncio.sleep(chance.uniform(5, 60))
            pods = [pod for pod in self.nodes.list_pods() if pod["status"]["phase"] in ("Pending", "Running")]
            node = chance.choice(sorted(self.nodes.nodes))
            what = chance.choice(("delete", "force", "evict", "lose", "drain", "cut", "expire", "silence", "none"))
            if what in ("lose", "drain"):
                (self.nodes.lose if what == "lose" else self.nodes.drain)(node)
                self.loop.call_later(chance.uniform(5, 150), self.nodes.restore, node)
            elif what == "silence":
                streams.silence()
                self.loop.call_later(chance.uniform(5, 120), streams.silence, False)
            elif what in ("cut", "expire"):
                (streams.cut if what == "cut" else streams.expire)()
            elif pods and what != "none":
                self._end_pod(chance.choice(pods), what)

    def _end_pod(self, pod: Document, what: str) -> None:
        if what == "evict":
            self.nodes.disrupt(pod, "EvictionByEvictionAPI")
        else:
            self.nodes.delete(pod, 0 if what == "force" else None)

    def _repair(self) -> None:
        self.api.streams.silence(False)
        for name in self.nodes.nodes:
            if name != self.dead:
                self.nodes.restore(name)

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
        await asyncio.sleep(TIDYING)
        assert self.wrong == [], self.wrong
        jobs = {item.job.id: item.job for item in await self.lives.find()}
        check_whole(self.orders.answered, jobs)
        for job in jobs.values():
            check_timeline(job, await self.lives.timeline(job.id))
            if job.array is None or job.element is not None:
                self._check_truth(job)
        left = [
            key.words
            for key, document in self.api.objects._objects.items()
            if MANAGED_BY in (document["metadata"].get("labels") or {})
        ]
        assert left == [], f"left in the cluster: {left}"
        for entry in self.lives.controller.recorder.registry:
            assert entry.job == jobs[entry.job.id], "memory is not what the store says"

    def _check_truth(self, job: Job) -> None:
        """The job ended as its work did, with a cause."""
        assert job.ended_at is not None, job.id
        assert job.state is State.COMPLETED or job.reason or job.exit_code, f"{job.id} is {job.state} without a cause"
        asked = {job.id} if job.element is None else {job.id, job.element.array}
        if asked & self.orders.disturbed or job.id in self.touched:
            return
        work = read_work(job.spec.tasks[0].run)
        state = State.FAILED if work.code else State.COMPLETED
        told = f"{job.id} is {job.state} ({job.reason}) {job.exit_code}"
        assert (job.state, job.exit_code) == (state, work.code), told
        assert any(whose == job.id for _, whose in self.started), f"{job.id} has not started"


def read_job(pod: Document) -> int:
    """The number of the job that a pod belongs to."""
    return int(pod["metadata"]["labels"][JOB])
