"""One seed of two scripted clusters: users, supervisors with the real lifecycle, and daemons that die."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import replace

from tests.simulation.clockwork import Chaos, LoopTimers, SteppedStore, wall_time
from tests.simulation.lives import Lives
from tests.simulation.machine import Machine
from tests.simulation.orders import Orders
from tests.simulation.promises import check_timeline, check_whole

from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.controller import ControllerParts
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.lifecycle.stages import carry
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Backoff, JobSpec, Need, NeedKind, Origin, RetryPolicy, Start, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.readers.submission import Submission

MISCHIEF = 40.0
"""Seconds of simulated time in which things go wrong; then everything works and has to come to its end."""
SETTLING = 900.0


class ScriptedDays:
    """One seed: two clusters and a store that stay, and one daemon after the other."""

    def __init__(self, seed: int) -> None:
        self.chaos = Chaos(seed)
        self.machine = Machine(self.chaos)
        self.far = Machine(self.chaos, "far", self.machine)
        self.lives = Lives(self.chaos, self._make_parts)
        # Tasks of the machines are of the cluster.
        self.machine.tasks = self.far.tasks = self.lives.staying
        self.orders = Orders(self.lives, MISCHIEF)
        self.moved = 0
        """Jobs that another cluster than their first has started."""

    @property
    def starts(self) -> int:
        """How many attempts were started."""
        return len(self.machine.started)

    def _make_parts(self, store: SteppedStore) -> ControllerParts:
        clusters = {name: {"kind": "local", "root": f"/{name}"} for name in ("local", "far")}
        settings = Settings.model_validate({"clusters": clusters})
        machines = {"far": self.far, "local": self.machine}
        return ControllerParts(
            store,
            settings,
            "/nowhere",
            LoopTimers(),
            wall_time,
            read,
            lambda kind: lambda config: machines[config.name],
        )

    async def play(self) -> None:
        """The whole run."""
        self.lives.staying.add(asyncio.current_task())  # type: ignore[arg-type]
        number = self.chaos.random.randint(3, 12)
        users = [self.lives.stay(self._use(place)) for place in range(number)]
        keeper = self.lives.stay(self.lives.keep())
        loop = asyncio.get_running_loop()
        while loop.time() < MISCHIEF:
            await asyncio.sleep(1.0)
        self.chaos.calm = True
        await asyncio.gather(*users)
        await self._settle()
        await self.check()
        keeper.cancel()
        self.lives.bury()

    async def _use(self, number: int) -> None:
        """A user: one submission, and some orders about any job."""
        chance = self.chaos.random
        await asyncio.sleep(chance.uniform(0, MISCHIEF / 2))
        name = f"job-{number}"
        codes = [chance.choice((0, 0, 0, 3)) for _ in range(chance.choice((1, 1, 2)))]
        words = [f"{chance.choice((0.0, 0.5, 7.0))}:{code}" for code in codes]
        words += [chance.choice(("chain", "chain", "fan", "prepare", "", ""))] * (len(codes) > 1)
        words += [word for word in ("hold", "begin", "retry", "list") if chance.random() < 0.15]
        await self.orders.submit(Submission("script", " ".join(words), user="me", name=name))
        await self.orders.meddle()

    async def _settle(self) -> None:
        """Release what is held, and wait for the end of every job."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLING
        while True:
            live = [stored.job for stored in await self.lives.find() if not stored.job.over]
            if not live and not await self.lives.ask(lambda daemon: self.lives.store.outbox()) and self._knows_all():
                return
            assert loop.time() < deadline, f"not over: {[(job.id, job.state, job.reason, job.held) for job in live]}"
            await self.orders.release([job for job in live if job.held])
            await asyncio.sleep(5.0)

    def _knows_all(self) -> bool:
        """Whether the daemon's memory has the ends that the store has: it takes them in just behind it."""
        return all(entry.job.over for entry in self.lives.controller.recorder.registry)

    async def check(self) -> None:
        """The promises."""
        assert self.machine.wrong == []
        stored = {item.job.id: item.job for item in await self.lives.find()}
        check_whole(self.orders.answered, stored)
        for job in stored.values():
            self._check_truth(job)
            self.moved += job.cluster == "far" and job.started_at is not None
            check_timeline(job, await self.lives.timeline(job.id))
        for entry in self.lives.controller.recorder.registry:
            assert entry.job == stored[entry.job.id], "memory is not what the store says"

    def _check_truth(self, job: Job) -> None:
        """The job ended as its work did."""
        machine = self.far if job.cluster == "far" else self.machine
        work = machine.works.get(f"{job.id}.{job.launch}")
        if work is not None:
            mine, theirs = plain(job), plain(work.job)
            if job.stage is not None:
                mine, theirs = (job.state, job.launch, carry(job).tasks), (work.job.state, job.launch, work.job.tasks)
                assert [task.name for task in work.job.tasks] == list(job.stage.tasks)
                check_turns(job)
            assert mine == theirs, f"job {job.id}:\n{mine}\n{theirs}"
        if job.id in self.orders.disturbed | self.machine.lost | self.machine.refused:
            return
        codes = [int(task.run.split()[1]) for task in job.spec.tasks]
        assert job.state is (State.FAILED if any(codes) else State.COMPLETED), f"job {job.id} is {job.state}"
        assert work is not None


def check_turns(job: Job) -> None:
    """No attempt was launched before what its task needs had succeeded, or while that ran again after a requeue."""
    for task in job.tasks:
        for before in (job.task(need.task) for need in job.spec_of(task.name).needs):
            for attempt in task.attempts:
                ran = [each for each in before.attempts if each.launched_at <= attempt.launched_at]
                ends = [each.ended_at for each in ran]
                assert ran and ran[-1].state is State.COMPLETED, f"job {job.id}: {task.name} began before {before.name}"
                assert all(end is not None and end <= attempt.launched_at for end in ends), f"job {job.id}: at once"


def plain(job: Job) -> tuple[object, ...]:
    """What daemon and supervisor have to agree on."""
    return (job.state, job.exit_code, job.signal, job.tasks, job.started_at, job.ended_at, job.launch)


def read(submission: Submission, kinds: Mapping[str, str], now: float) -> ParsedSubmission:
    """`SECONDS:CODE` for each task, then chain: a pipeline, hold, begin, retry, list: two clusters.

    fan: a group whose tasks need the success of the first one; prepare: the same, and that one is auxiliary.
    """
    words = submission.text.split()
    retry = RetryPolicy(max_restarts_on_errors=2, max_restarts=5, backoff=Backoff(first=1.0, limit=5.0))
    tasks = tuple(
        TaskSpec(
            name=f"t{place}",
            run=word.replace(":", " "),
            time=600,
            grace_period=2,
            retry=retry if "retry" in words else RetryPolicy(backoff=Backoff(first=1.0, limit=5.0)),
        )
        for place, word in enumerate(words)
        if ":" in word
    )
    begin = now + 10 if "begin" in words else None
    spec = JobSpec(submission.name, tasks, group=len(tasks) > 1, hold="hold" in words, begin=begin, partition="main")
    if "chain" in words:
        chained = (
            tasks[0],
            *(replace(task, needs=(Need(before.name, NeedKind.OK),)) for before, task in itertools.pairwise(tasks)),
        )
        spec = replace(spec, tasks=chained, group=False, start=Start.INDEPENDENT)
    elif "fan" in words or "prepare" in words:
        first = replace(tasks[0], primary="fan" in words)
        followers = (replace(task, needs=(Need(first.name, NeedKind.OK),)) for task in tasks[1:])
        spec = replace(spec, tasks=(first, *followers), start=Start.TURNS)
    if "list" in words:
        spec = replace(spec, clusters=("local", "far"), failover_after=2)
    return ParsedSubmission(replace(spec, origin=Origin(user="me", directory="/")))
