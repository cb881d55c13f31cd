"""The fake Slurm itself: it schedules jobs onto nodes and lets each live, on a clock that the test moves.

Nothing happens by itself: `catch_up` plays what is due until a moment. States, reasons and seconds follow Slurm 22.05,
and `slurm_timelines.json` holds them to a real one.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tests.fakes.slurm_jobs import AccountingRow, Behaviour, NativeJob, Request, take_row
from tests.fakes.slurm_nodes import FakeNode, Partition, choose, explain, list_candidates

TERM, KILL = 15, 9
HELD = {"user": "JobHeldUser", "admin": "JobHeldAdmin"}


@dataclass
class Site:
    """What a site has set; seconds. `kill_wait` and others are those of slurm.conf(5)."""

    kill_wait: float = 30.0
    epilog: float = 0.0
    start: float = 0.5
    """How long after a submission or an end the scheduler looks."""
    requeue: float = 121.0
    """For how long a requeued job waits with BeginTime (measured on 22.05)."""
    min_job_age: float = 300.0
    message_timeout: float = 10.0
    batch_start: float = 10.0
    """After how long a launch that no node answers is given up."""
    slurmd_timeout: float = 13.0
    """After how long such a node is then down."""
    hetjob_start: float = 4.0
    """How long backfill takes for a hetjob."""
    power_up: float = 60.0
    accounting_lag: float = 0.0
    accounting: bool = True
    backfill: bool = True
    max_array: int = 1001
    user: str = "ada"
    parameters: str = "(null)"
    """SlurmctldParameters."""


class FakeSlurm:
    """Controller, nodes and accounting. `behave` says what a run does; `starts` has each start: when, and whose."""

    def __init__(self, now: float, site: Site | None = None, nodes: Iterable[FakeNode] = ()) -> None:
        self.now = now
        self.site = site or Site()
        self.nodes = {node.name: node for node in nodes or (FakeNode(f"node{number}") for number in (1, 2, 3))}
        names = tuple(self.nodes)
        self.partitions = {"main": Partition("main", names, default=True), "short": Partition("short", names[:2], 600)}
        self.jobs: dict[int, NativeJob] = {}
        self.accounts: dict[tuple[int, int], AccountingRow] = {}
        self.starts: list[tuple[float, str]] = []
        self.behave: Callable[[NativeJob], Behaviour] = lambda job: Behaviour()
        self.on_start: Callable[[NativeJob], None] = lambda job: None
        self._ids = itertools.count(1)
        self._turns = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._looks: set[float] = set()

    # --- time --------------------------------------------------------------------------------------------------------

    def catch_up(self, now: float) -> None:
        """Let everything happen that is due until then."""
        while self._due and self._due[0][0] <= now:
            at, _, call = heapq.heappop(self._due)
            self.now = max(self.now, at)
            call()
        self.now = max(self.now, now)

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Have something happen."""
        heapq.heappush(self._due, (self.now + seconds, next(self._turns), call))

    def _of_run(self, job: NativeJob, call: Callable[[], None]) -> Callable[[], None]:
        run = job.run
        return lambda: call() if job.run == run else None

    # --- submission --------------------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[Request], indices: Sequence[int] = (), throttle: int = 0) -> int:
        """Take a job, an array, or the components of a hetjob; gives the id."""
        first = 0
        for offset, request in enumerate(requests):
            job = NativeJob(next(self._ids), request, self.now, limit=request.limit, dependency=request.dependency)
            first = first or job.id
            job.begin, job.held = request.begin, "user" if request.hold else ""
            if indices:
                job.array_job, job.indices, job.throttle = job.id, tuple(indices), throttle
            if len(requests) > 1:
                job.het_job, job.het_offset = first, offset
            job.reason = HELD.get(job.held, "None")
            self.jobs[job.id] = job
            self._note(job)
        self.look_soon()
        return first

    def can_hold(self, request: Request) -> bool:
        """Whether the cluster has nodes for a request at all."""
        candidates = list_candidates(self.nodes, self.partitions[request.partition], request)
        return len(candidates) >= max(request.nodes, len(request.nodelist))

    # --- scheduling --------------------------------------------------------------------------------------------------

    def look_soon(self, seconds: float | None = None) -> None:
        """Have the scheduler look."""
        at = self.now + (self.site.start if seconds is None else seconds)
        if at not in self._looks:
            self._looks.add(at)
            self.after(at - self.now, lambda: self._schedule(at))

    def _schedule(self, at: float) -> None:
        self._looks.discard(at)
        first: set[str] = set()
        waiting = sorted((job for job in self.jobs.values() if job.waits), key=lambda job: (-job.priority, job.id))
        for job in waiting:
            if job.held or not self._is_ready(job):
                continue
            if job.het_job:
                self._start_hetjob(job)
            elif job.indices:
                while job.indices and self._is_ready(job) and self._try(job, job.request.partition not in first):
                    pass
            else:
                self._try(job, job.request.partition not in first)
            if job.waits and job.reason in ("Resources", "Priority"):
                first.add(job.request.partition)

    def _is_ready(self, job: NativeJob) -> bool:
        if job.throttle and self._count_elements(job.array_job) >= job.throttle:
            job.reason = "JobArrayTaskLimit"
            return False
        if job.begin > self.now:
            job.reason = "BeginTime"
            self.look_soon(job.begin - self.now)
            return False
        met = self._judge_dependency(job)
        if met is False:
            job.reason = "DependencyNeverSatisfied"
            if job.request.kill_on_invalid_dep:
                self.cancel(job, 0)
        elif met is None:
            job.reason = "Dependency"
        return met is True

    def _judge_dependency(self, job: NativeJob) -> bool | None:
        """True: met; False: never; None: not yet. An id that nobody knows any more counts as met (measured)."""
        if not job.dependency:
            return True
        some = "?" in job.dependency
        verdicts = []
        for part in job.dependency.replace("?", ",").split(","):
            kind, *ids = part.split(":")
            if kind == "singleton":
                verdicts.append(None if self._find_namesake(job) else True)
            for text in ids:
                number = text.partition("_")[0].partition("+")[0]
                others = [one for one in self.jobs.values() if int(number) in (one.id, one.array_job)]
                verdicts += [_judge_need(kind, other) for other in others]
        if some:
            return True if True in verdicts else None if None in verdicts or not verdicts else False
        return False if False in verdicts else None if None in verdicts else True

    def _find_namesake(self, job: NativeJob) -> bool:
        return any(
            one.request.name == job.request.name and one.id < job.id and not one.over for one in self.jobs.values()
        )

    def _try(self, job: NativeJob, first: bool) -> bool:
        partition = self.partitions[job.request.partition]
        candidates = list_candidates(self.nodes, partition, job.request)
        nodes = choose(candidates, job.request)
        if nodes:
            self._start(self.split(job, job.indices[0]) if job.indices else job, nodes)
        else:
            job.reason = explain(candidates, job.request, first)
        return bool(nodes)

    def _count_elements(self, array: int) -> int:
        """The elements that have nodes, those that give them back too."""
        own = (job for job in self.jobs.values() if job.array_job == array)
        return sum(job.state == "RUNNING" or job.flag == "COMPLETING" for job in own)

    def split(self, array: NativeJob, index: int) -> NativeJob:
        """Make a waiting element a job of its own; the last one keeps the array's number."""
        number = array.id if array.indices == (index,) else next(self._ids)
        element = self.jobs[number] = array.split(index, number)
        if number != array.id:
            self._note(array)
        return element

    def withdraw(self, array: NativeJob, indices: Sequence[int]) -> None:
        """Take waiting elements out of an array; nothing is left of them (measured on 22.05)."""
        array.indices = tuple(index for index in array.indices if index not in indices)
        self._note(array)

    def _start_hetjob(self, job: NativeJob) -> None:
        parts = self.list_components(job.het_job)
        if job.submit + self.site.hetjob_start > self.now:
            job.reason = "Resources"
            self.look_soon(job.submit + self.site.hetjob_start - self.now)
            return
        if job.het_offset or not all(part.waits and not part.held for part in parts) or not self.site.backfill:
            return
        given: list[tuple[NativeJob, tuple[str, ...]]] = []
        for part in parts:
            candidates = list_candidates(self.nodes, self.partitions[part.request.partition], part.request)
            nodes = choose(candidates, part.request, [name for _, names in given for name in names])
            if not nodes:
                job.reason = explain(candidates, part.request, True)
                return
            given.append((part, nodes))
        for part, nodes in given:
            self._start(part, nodes)

    def list_components(self, leader: int) -> list[NativeJob]:
        """The components of a hetjob, the leader first."""
        return sorted((job for job in self.jobs.values() if job.het_job == leader), key=lambda job: job.het_offset)

    # --- a run -------------------------------------------------------------------------------------------------------

    def _start(self, job: NativeJob, nodes: tuple[str, ...]) -> None:
        request = job.request
        job.run, job.behaviour = job.run + 1, None
        job.state, job.reason, job.nodes, job.start, job.end, job.status = "RUNNING", "None", nodes, self.now, 0.0, 0
        own = [self.nodes[name] for name in nodes]
        for node in own:
            node.given[job.id] = (request.cpus, request.memory, request.gpus)
        limit = self.limit_of(job)
        self._note(job)
        if any(node.power for node in own):
            job.flag = "CONFIGURING"
            for node in own:
                node.power = node.power and "rising"
            self.after(self.site.power_up, self._of_run(job, lambda: self._boot(job)))
        else:
            self._launch(job)
        job.ends_at = self.now + limit
        self.after(limit, self._of_run(job, lambda: self._expire(job)))

    def limit_of(self, job: NativeJob) -> float:
        """Its time limit in seconds."""
        return self.partitions[job.request.partition].limit if job.limit is None else job.limit

    def _boot(self, job: NativeJob) -> None:
        if job.flag != "CONFIGURING":
            return
        job.flag = ""
        for name in job.nodes:
            self.nodes[name].power = ""
        self._launch(job)

    def _launch(self, job: NativeJob) -> None:
        if job.het_job and job.het_offset:
            return
        behaviour = self.behave(job)
        if behaviour.launch == "silent":
            self.after(self.site.batch_start, self._of_run(job, lambda: self._give_up(job)))
            return
        if behaviour.launch == "prolog":
            for name in job.nodes:
                self.nodes[name].drain, self.nodes[name].reason = True, "Prolog error"
            self._end(job, "REQUEUED", "None", again="launch failed requeued held")
            return
        job.behaviour = behaviour
        self.starts.append((self.now, job.name))
        self.on_start(job)
        if behaviour.seconds is not None:
            status = behaviour.signal or behaviour.code << 8
            self.after(behaviour.seconds, self._of_run(job, lambda: self._exit(job, status)))

    def _give_up(self, job: NativeJob) -> None:
        """No node has answered the launch: the job waits again when they are down."""
        if job.state != "RUNNING":
            return
        again = "None" if job.request.requeue else ""
        self._end(job, "NODE_FAIL", "None" if again else "NodeDown", again=again, free=False)
        for name in job.nodes:
            self.after(self.site.slurmd_timeout, functools.partial(self.set_down, name, "Not responding"))

    def end_script(self, job: NativeJob, run: int, code: int) -> None:
        """The batch script of that run ends by itself."""
        if job.run == run:
            self._exit(job, code << 8)

    def _exit(self, job: NativeJob, status: int) -> None:
        """The batch script has ended by itself."""
        if job.state != "RUNNING":
            return
        state = "FAILED" if status else "COMPLETED"
        reason = "None" if not status else "JobLaunchFailure" if status & 0x7F else "NonZeroExitCode"
        for part in self.list_components(job.het_job) if job.het_job else [job]:
            if part.state == "RUNNING":
                part.status = status
                self._end(part, state, reason, alive=False)

    def _expire(self, job: NativeJob) -> None:
        if job.state != "RUNNING" or job.ends_at is None:
            return
        if job.ends_at > self.now:
            self.after(job.ends_at - self.now, self._of_run(job, lambda: self._expire(job)))
            return
        self._end(job, "TIMEOUT", "TimeLimit")

    def _end(
        self, job: NativeJob, state: str, reason: str, *, again: str = "", alive: bool = True, free: bool = True
    ) -> None:
        """Fix the outcome; the nodes are free when the program has ended and the epilog has run.

        With `again`, the reason of its next wait, the job is PENDING for Slurm from here on, and `state` is the run's.
        """
        job.flag, job.reason, job.end, job.again = "COMPLETING", reason, self.now, again
        job.state = "PENDING" if again else state
        wait = 0.0
        if alive and job.behaviour is not None:
            grace = job.behaviour.on_term
            wait = self.site.kill_wait if grace is None else min(grace, self.site.kill_wait)
        for name in job.nodes:
            self.nodes[name].completing.add(job.id)
        self._note(job, state)
        if again:
            job.restarts, job.record = job.restarts + 1, job.record + 1
        if not free:
            return
        if all(self.nodes[name].down for name in job.nodes):
            wait = 0.0
        if wait or self.site.epilog:
            self.after(wait + self.site.epilog, self._of_run(job, lambda: self._free(job)))
        else:
            self._free(job)

    def _free(self, job: NativeJob, lost: bool = False) -> None:
        """Take the nodes back; where they are `lost`, squeue goes on showing them (measured on 22.05)."""
        if job.flag != "COMPLETING":
            return
        for name in job.nodes:
            self.nodes[name].given.pop(job.id, None)
            self.nodes[name].completing.discard(job.id)
        job.flag = ""
        if job.again:
            self._wait_again(job, job.nodes if lost else ())
        else:
            self.after(self.site.min_job_age, lambda: self._purge(job))
        self.look_soon()

    def _wait_again(self, job: NativeJob, nodes: tuple[str, ...] = ()) -> None:
        job.run += 1
        job.reason, job.again = job.again, ""
        job.held = "user" if job.reason.endswith(("held", "held state")) else ""
        job.begin = self.now + self.site.requeue if job.reason == "BeginTime" else 0.0
        job.submit, job.nodes, job.start, job.end = self.now, nodes, 0.0, 0.0
        if not nodes:
            self._note(job)

    def _purge(self, job: NativeJob) -> None:
        if job.over and self.jobs.get(job.id) is job:
            del self.jobs[job.id]

    def _note(self, job: NativeJob, state: str = "") -> None:
        """Tell the accounting, which hears it later."""
        key = (job.id, job.record)
        # The reason of the last wait stays (measured on 22.05).
        before = self.accounts.get(key)
        kept = before.reason if before is not None else "None"
        row = take_row(job, state, HELD.get(job.held, job.reason) if job.waits else kept)
        if self.site.accounting_lag:
            self.after(self.site.accounting_lag, lambda: self.accounts.update({key: row}))
        else:
            self.accounts[key] = row

    # --- what people do ----------------------------------------------------------------------------------------------

    def cancel(self, job: NativeJob, by: int = 1000) -> None:
        """End a job."""
        job.by = by
        for part in self.list_components(job.het_job) if job.het_job and not job.het_offset else [job]:
            if part.waits:
                part.by, part.state, part.end = by, "CANCELLED", self.now
                self._note(part)
                self.after(self.site.min_job_age, functools.partial(self._purge, part))
            elif part.flag == "COMPLETING" and part.again:
                # The accounting does not hear of it (measured on 22.05).
                part.by, part.state, part.again = by, "CANCELLED", ""
            elif part.state == "RUNNING":
                part.by = by
                self._end(part, "CANCELLED", "None")

    def signal(self, job: NativeJob, signal: int) -> None:
        """Send a signal to everything of a job that runs."""
        job.signals.append((self.now, signal))
        grace = None if job.behaviour is None else job.behaviour.on_term
        wait = {TERM: grace, KILL: 0.0}.get(signal)
        if job.behaviour is not None and wait is not None:
            self.after(wait, self._of_run(job, lambda: self._exit(job, signal)))

    def requeue(self, job: NativeJob, hold: bool = False) -> str:
        """Have a job run again; gives why not."""
        if job.waits or job.again:
            return "Job is pending execution"
        if not job.request.requeue:
            return "Requested operation is presently disabled"
        reason = "job requeued in held state" if hold else "BeginTime"
        for part in self.list_components(job.het_job) if job.het_job else [job]:
            if part.state == "RUNNING":
                self._end(part, "REQUEUED", reason if hold else "None", again=reason)
            elif part.flag == "COMPLETING":
                self._give_again(part, reason)
            else:
                self._give_again(part, reason)
                self._wait_again(part)
                self.look_soon()
        return ""

    def _give_again(self, job: NativeJob, reason: str) -> None:
        """Requeue what has ended already."""
        if not job.flag:
            self._note(job, "REQUEUED")
        job.state, job.again = "PENDING", reason
        job.restarts, job.record = job.restarts + 1, job.record + 1

    def hold(self, job: NativeJob, by: str) -> None:
        """Keep a waiting job from starting."""
        job.held, job.reason = by, HELD[by]

    def release(self, job: NativeJob) -> None:
        """Let a held job start."""
        job.held, job.reason, job.begin = "", "None", 0.0 if job.restarts else job.begin
        self.look_soon()

    def set_limit(self, job: NativeJob, seconds: int) -> None:
        """Change a time limit."""
        job.limit = seconds
        if job.state == "RUNNING":
            job.ends_at = job.start + seconds
            self.after(max(0.0, job.ends_at - self.now), self._of_run(job, lambda: self._expire(job)))

    # --- what happens to nodes ---------------------------------------------------------------------------------------

    def set_down(self, name: str, reason: str = "test") -> None:
        """A node is lost: its jobs are requeued, or end."""
        node = self.nodes[name]
        node.down, node.reason = True, reason
        for job in [self.jobs[number] for number in node.given]:
            if job.flag == "COMPLETING":
                if all(self.nodes[one].down for one in job.nodes):
                    self._free(job, lost=True)
                continue
            for part in self.list_components(job.het_job) if job.het_job else [job]:
                if part.request.requeue:
                    self._end(part, "NODE_FAIL", "None", again="BeginTime")
                else:
                    self._end(part, "NODE_FAIL", "NodeDown")

    def drain(self, name: str) -> None:
        """A node takes no more jobs."""
        self.nodes[name].drain, self.nodes[name].reason = True, "test"

    def power_off(self, name: str) -> None:
        """An idle node is powered off; a job has it powered up again."""
        self.nodes[name].power = "off"

    def resume(self, name: str) -> None:
        """A node is there again."""
        node = self.nodes[name]
        node.down = node.drain = False
        node.power = node.reason = ""
        self.look_soon()


def _judge_need(kind: str, other: NativeJob) -> bool | None:
    if kind == "after":
        return True if other.start or other.over else None
    if not other.over:
        return None
    good = other.state == "COMPLETED"
    return {"afterok": good, "afternotok": not good}.get(kind, True)
