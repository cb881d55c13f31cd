"""Jobs in a simulated cluster: programs that ignore TERM, lost launches, late, repeated and reordered reports."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.lifecycle.strategies import GROUPS, ORDERS, SPECS
from tests.unit.lifecycle.world import World, lost, without_late

from overspan.bridge.lifecycle.eligibility import judge
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Attempt, Job
from overspan.bridge.model.spec import JobSpec, OnFailure, TaskSpec
from overspan.bridge.model.states import State

LONGEST_RUN = 50.0
KILL_SECONDS = 1.0
SLOWEST_MAIL = 3.0
ENOUGH = 30_000.0
"""Seconds in which every job of SPECS has to come to its end by itself."""


@dataclass
class Program:
    """One process as it really is."""

    task: str
    attempt: int
    node: int
    run: int
    start_at: float
    end_at: float
    exit_code: int
    signal: int = 0
    cause: str = ""
    obeys_term: bool = True
    started: bool = False


class Cluster:
    """Carries out what is decided, and reports it late, twice and in any order."""

    def __init__(self, spec: JobSpec, random: Random) -> None:
        self.world = World(spec)
        self.random = random
        self.programs: list[Program] = []
        self.mail: list[tuple[float, Event]] = []
        self.sent: list[Event] = []
        self.launch = 0
        self.grant_at: float | None = None

    def turn(self) -> None:
        """Decide at this moment and carry it out."""
        for event in self.world.decide():
            self._carry_out(event)
        job = self.world.job
        if job.over or job.launch != self.launch:
            assert not self.programs or self.launch != job.launch or job.over
            self.launch = job.launch
            self.grant_at = None
        verdict = judge(job, self.world.now)
        if verdict.now and self.grant_at is None:
            self.grant_at = self.world.now + self.random.choice([0.0, 2.0])

    def pass_time(self, seconds: float) -> None:
        """Go from one thing that happens to the next."""
        end = self.world.now + seconds
        self.turn()
        while True:
            at = self._next()
            if at is None or at > end:
                break
            self.world.now = max(at, self.world.now)
            self._happen()
            self.turn()
        self.world.now = end

    def lose_launch(self, cause: Cause) -> None:
        """The cluster takes everything away; the report of it is not late."""
        self.programs.clear()
        report = lost(self.world, cause)
        self.sent.append(report)
        self.world.apply(report)
        self.turn()

    def _next(self) -> float | None:
        times = [at for at, _ in self.mail]
        times += [program.end_at if program.started else program.start_at for program in self.programs]
        times += [at for at in (self.world.wake_at, self.grant_at, judge(self.world.job, self.world.now).at) if at]
        return min(times) if times else None

    def _happen(self) -> None:
        now = self.world.now
        if self.grant_at is not None and self.grant_at <= now:
            self.grant_at = None
            if judge(self.world.job, now).now:
                self.world.apply(events.Granted(now, (("a", 0, "n0", "127.0.0.1", ()),)))
        for program in list(self.programs):
            if not program.started and program.start_at <= now:
                program.started = True
                self._post(events.NodeStarted(now, program.task, program.attempt, program.node, program.run))
                self._post(events.TaskReady(now, program.task, program.attempt))
            if program.end_at <= now:
                self.programs.remove(program)
                self._post(self._end_of(program))
        due = [entry for entry in self.mail if entry[0] <= now]
        self.mail = [entry for entry in self.mail if entry[0] > now]
        for _, event in due:
            self.world.apply(event)

    def _end_of(self, program: Program) -> Event:
        keys = (program.task, program.attempt, program.node, program.run)
        return events.NodeEnded(self.world.now, *keys, program.exit_code, program.signal, program.cause)

    def _post(self, event: Event) -> None:
        self.sent.append(event)
        for _ in range(self.random.choice([1, 1, 1, 2])):
            self.mail.append((self.world.now + self.random.choice([0.0, 0.0, 0.5, SLOWEST_MAIL]), event))

    def _carry_out(self, event: Event) -> None:
        now = self.world.now
        if isinstance(event, events.Launch):
            attempt = self.world.attempt(event.task)
            for node in attempt.nodes:
                self._start(event.task, event.attempt, node.index, node.run)
        elif isinstance(event, events.NodeRelaunch):
            self._start(event.task, event.attempt, event.node, event.run)
        elif isinstance(event, events.Terminate):
            for program in self._of(event.task, event.attempt):
                if program.obeys_term:
                    self._end(program, now + self.random.choice([0.0, 1.0, 2.0]), 15)
        elif isinstance(event, events.Kill):
            for program in self._of(event.task, event.attempt):
                self._end(program, now + KILL_SECONDS, 9)

    def _of(self, task: str, attempt: int) -> list[Program]:
        return [program for program in self.programs if (program.task, program.attempt) == (task, attempt)]

    def _end(self, program: Program, at: float, signal: int) -> None:
        if at < program.end_at:
            program.end_at = at
            program.start_at = min(program.start_at, at)
            graceful = signal == 15 and self.random.random() < 0.5
            program.exit_code, program.signal, program.cause = 0, 0 if graceful else signal, ""

    def _start(self, task: str, attempt: int, node: int, run: int) -> None:
        assert not any((other.task, other.node) == (task, node) for other in self.programs), (
            f"a second copy of {task}-{node}"
        )
        random = self.random
        start = self.world.now + random.choice([0.0, 0.5])
        end = start + random.choice([0.0, 5.0, 20.0, LONGEST_RUN])
        code, cause = random.choice([(0, ""), (0, ""), (0, ""), (1, ""), (42, ""), (0, "node"), (0, "preemption")])
        obeys = random.random() < 0.6
        self.programs.append(Program(task, attempt, node, run, start, end, code, cause=cause, obeys_term=obeys))


def last_kill(job: Job, spec: TaskSpec, attempt: Attempt) -> float | None:
    """By when KILL has to be decided for a live attempt; None while its job may go on."""
    if attempt.stop is not None:
        return attempt.stop.kill_at
    ending = job.ending
    if ending is None or ending.hold_until is not None or ending.cause is not Cause.PRIMARIES_DONE:
        return None
    return ending.at + spec.termination_delay + spec.grace_period


def check_deadlines(world: World) -> None:
    """No attempt lives past its end, its delay and its grace without a KILL."""
    for task in world.job.tasks:
        attempt = task.current
        if attempt is None or not attempt.live or attempt.flush is not None:
            # Of one whose data is on its way no program is left.
            continue
        spec = world.job.spec_of(task.name)
        due = last_kill(world.job, spec, attempt)
        if due is not None and due <= world.now:
            assert attempt.stop is not None and attempt.stop.killed_at is not None
            assert attempt.stop.killed_at <= due
        ending = world.job.ending
        if ending is not None and ending.hold_until is None and ending.cause is not Cause.PRIMARIES_DONE:
            assert attempt.stop is not None, "an end that waits for nothing has reached everyone"


def check_budgets(job: Job) -> None:
    """No budget is exceeded."""
    for task in job.tasks:
        spec = job.spec_of(task.name)
        assert task.restarts <= spec.retry.max_restarts
        assert task.recoveries <= spec.retry.max_recoveries
        keeps = not spec.primary and spec.on_failure is OnFailure.RESTART
        assert keeps or task.errors <= spec.retry.max_restarts_on_errors
        # Orders cost nothing, restarts of one node make no attempt.
        assert (
            spec.restart is not None or job.spec.restart is not None or task.errors + task.recoveries <= task.restarts
        )


def check_stops(world: World, done_at: float | None) -> None:
    """Every TERM came when it was due, and KILL a grace period after it."""
    for event in world.taken:
        if isinstance(event, events.Terminate):
            spec = world.job.spec_of(event.task)
            assert event.kill_at == event.at + spec.grace_period
            if event.cause == Cause.PRIMARIES_DONE.value:
                assert done_at is not None
                due = done_at + spec.termination_delay
                assert due <= event.at <= max(due, done_at + SLOWEST_MAIL)
        elif isinstance(event, events.Kill):
            stop = world.job.task(event.task).attempts[event.attempt].stop
            assert stop is not None and event.at == stop.kill_at == stop.killed_at


@settings(max_examples=250, deadline=None)
@given(GROUPS, st.integers(0, 2**32))
def test_a_group_left_alone_ends_in_order(spec: JobSpec, seed: int) -> None:
    cluster = Cluster(spec, Random(seed))
    cluster.pass_time(ENOUGH)
    world = cluster.world
    job = world.job
    assert job.over, f"{world.states()} for ever"
    assert not cluster.programs
    assert job.ending is not None
    check_stops(world, job.ending.at if job.ending.cause is Cause.PRIMARIES_DONE else None)
    check_budgets(job)
    assert all((attempt.ended_at or 0) <= (job.ended_at or 0) for task in job.tasks for attempt in task.attempts)
    assert world.replayed() == job


@settings(max_examples=250, deadline=None)
@given(GROUPS, st.integers(0, 2**32), st.sampled_from(["a", "b", "c"]), st.sampled_from([0.0, 1.0, 7.0, 25.0]))
def test_a_cancelled_task_stays_so(spec: JobSpec, seed: int, name: str, at: float) -> None:
    cluster = Cluster(spec, Random(seed))
    world = cluster.world
    cluster.pass_time(at)
    if not world.apply(events.Cancel(world.now, name)):
        return
    attempts = len(world.task(name).attempts)
    cluster.turn()
    cluster.pass_time(cluster.random.choice([0.0, 1.0, 40.0]))
    if not world.job.over:
        cluster.lose_launch(Cause.NODE)
    cluster.pass_time(ENOUGH)
    assert world.job.over, f"{world.states()} for ever"
    assert len(world.task(name).attempts) == attempts
    assert world.task(name).over


class Life(RuleBasedStateMachine):
    """A job's life with people, losses and time."""

    cluster: Cluster

    @initialize(spec=SPECS, seed=st.integers(0, 2**32))
    def submit(self, spec: JobSpec, seed: int) -> None:
        """A new job."""
        self.cluster = Cluster(spec, Random(seed))
        self.cluster.turn()

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 30.0, 120.0]))
    def pass_time(self, seconds: float) -> None:
        """Time goes by."""
        self.cluster.pass_time(seconds)

    @rule(order=ORDERS)
    def order(self, order: Event) -> None:
        """Somebody wants something."""
        self.cluster.world.apply(order._replace(at=self.cluster.world.now))
        self.cluster.turn()

    @rule(cause=st.sampled_from([Cause.NODE, Cause.PREEMPTION, Cause.TIME, Cause.CANCEL, Cause.REQUEUE, Cause.BOOT]))
    def lose_launch(self, cause: Cause) -> None:
        """The allocation goes away."""
        self.cluster.lose_launch(cause)

    @precondition(lambda self: self.cluster.sent)
    @rule(place=st.floats(0, 1, exclude_max=True))
    def repeat(self, place: float) -> None:
        """An old report comes again; if it had been taken, it changes nothing."""
        report = self.cluster.sent[int(place * len(self.cluster.sent))]
        world = self.cluster.world
        # Events of two kinds may be equal as tuples.
        if any(taken is report for taken in world.taken):
            after = reduce(world.job, report)
            assert without_late(after) == without_late(world.job)
            assert after.late == world.job.late + 1

    @invariant()
    def deadlines_hold(self) -> None:
        """Nobody outlives a deadline."""
        check_deadlines(self.cluster.world)

    @invariant()
    def budgets_hold(self) -> None:
        """No budget is exceeded."""
        check_budgets(self.cluster.world.job)

    @invariant()
    def nothing_runs_after_the_end(self) -> None:
        """What is over has no processes, and what has processes is not over."""
        job = self.cluster.world.job
        live = {(program.task, program.attempt) for program in self.cluster.programs}
        known = {(task.name, task.attempts[-1].number) for task in job.tasks if task.live}
        assert live <= known
        assert not (job.over and live)

    def teardown(self) -> None:
        """Left alone, the job comes to its end, and the journal tells the same story."""
        if not hasattr(self, "cluster"):
            return
        world = self.cluster.world
        world.apply(events.Release(world.now))
        world.apply(events.Resume(world.now))
        self.cluster.pass_time(ENOUGH)
        self.nothing_runs_after_the_end()
        assert world.job.over, f"{world.states()} for ever"
        if world.job.state is State.COMPLETED:
            for spec in world.job.spec.tasks:
                assert not spec.primary or world.task(spec.name).state in (State.COMPLETED, State.CANCELLED)
        assert world.replayed() == world.job


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
