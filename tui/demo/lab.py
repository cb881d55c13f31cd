"""The simulated lab: jobs are submitted, wait, start, print, fail and end by a seeded plan.

It has no clock, no thread and no randomness but its seed: `advance` moves its time, and everything that was due by then
happens in order. The same seed and the same orders give the same lab, to the byte.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from random import Random

from overspan.tui.demo.capacity import MachineCapacity
from overspan.tui.demo.machines import CLUSTERS, list_machines
from overspan.tui.demo.records import (
    ENDS,
    ME,
    DemoJob,
    DemoTask,
    DemoWatch,
    JobWish,
    Life,
    Moment,
    RunOfNode,
    RunOfTask,
    TaskWish,
)

KEPT_SECONDS = 3600.0
"""How long the queue still tells of a job that has ended."""
BOOT_SECONDS = {"slurm": 3.0, "kubernetes": 9.0, "local": 0.2}
GRACE_SECONDS = 5.0
"""From the order to end to the last process's end."""
AGAIN_SECONDS = 5.0
"""Between two attempts."""
AGE_SECONDS = 20.0
"""Seconds of waiting that are worth one of priority."""
EXPECTED_SECONDS = 120.0
"""By how much the time at which a job may start has to change to be told."""
URGENT = 5000
"""The priority from which on a job that has no room keeps later ones of its partition waiting."""
_KINDS = {cluster.name: cluster.kind for cluster in CLUSTERS}


class DemoLab:
    """The jobs and the machines at `now`, epoch seconds. `me` takes the part of the person who looks."""

    def __init__(self, seed: int, now: float, me: str = ME) -> None:
        self.me = me
        self.now = self.begun_at = now
        self.seed = seed
        self.random = Random(seed)
        self.jobs: dict[int, DemoJob] = {}
        self.live: dict[int, DemoJob] = {}
        """Those that have not ended."""
        self._elements: dict[int, list[DemoJob]] = {}
        self.capacity = MachineCapacity(list_machines())
        self.revision = 0
        self.revisions: dict[int, int] = {}
        """By job, the revision of its last change, the oldest change first."""
        self.watches: list[DemoWatch] = []
        """What is evaluated of jobs' checkpoints."""
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._moments = itertools.count(1)
        self._numbers = itertools.count(1)

    def advance(self, to: float) -> None:
        """Let time pass; everything that is due happens."""
        while self._due and self._due[0][0] <= to:
            at, _, act = heapq.heappop(self._due)
            self.now = max(self.now, at)
            act()
        self.now = max(self.now, to)

    def plan(self, delay: float, act: Callable[[], None]) -> None:
        """Have something happen in so many seconds."""
        heapq.heappush(self._due, (self.now + delay, next(self._order), act))

    # --- submitting ---------------------------------------------------------------------------------------------------

    def submit(self, wish: JobWish, schedule: int = 0) -> DemoJob:
        """Take a job, or an array."""
        wish = wish._replace(user=self.me) if wish.user == ME else wish
        job = self._add(wish, schedule)
        if wish.array:
            job.array_id, job.waiting, job.throttle = job.id, list(wish.array), wish.throttle
        self._note(job, "", "", "PENDING", "Submitted", "submitted")
        if wish.begin_in:
            job.begin = self.now + wish.begin_in
            self.plan(wish.begin_in, lambda: self.schedule(wish.cluster))
        if wish.blocked_for:
            job.blocked_until = self.now + wish.blocked_for
            self.plan(wish.blocked_for, lambda: self.schedule(wish.cluster))
        self.schedule(wish.cluster)
        return job

    def _add(self, wish: JobWish, schedule: int = 0) -> DemoJob:
        # The ids of a group's tasks follow on its own.
        number = next(self._numbers)
        for _ in wish.tasks[1:]:
            next(self._numbers)
        job = DemoJob(
            number,
            wish,
            self.now,
            [DemoTask(task, limit=wish.limit) for task in wish.tasks],
            name=wish.name,
            comment=wish.comment,
            partition=wish.partition,
            priority=wish.priority,
            held=wish.held,
            after=wish.after,
            schedule=schedule,
        )
        self.jobs[number] = self.live[number] = job
        return job

    def join(self, group: DemoJob, task: DemoTask, number: int) -> None:
        """Give an elastic task of a group a further member, a job of its own."""
        own = task.wish._replace(nodes=1, primary=True, lives=task.wish.lives[-1:], waits_for="", most=0)
        member = self.submit(group.wish._replace(name=f"{own.name}-{number}", tasks=(own,), group=False))
        member.group, member.task, member.number = group, own.name, number
        task.members.append(member)
        self._touch(member)

    def _make_element(self, array: DemoJob, index: int) -> DemoJob:
        wish = array.wish
        chance = Random(f"{self.seed}/{array.id}/{index}")
        life = wish.tasks[0].lives[-1]
        ends = ("success",) * 17 + ("exit", "memory", "time")
        own = Life(life.seconds * chance.uniform(0.4, 1.6), chance.choice(ends) if life.end == "success" else life.end)
        own = own._replace(exit_code=1 if own.end == "exit" else 0, signal=9 if own.end == "memory" else 0)
        task = wish.tasks[0]._replace(lives=(own,))
        element = self._add(wish._replace(tasks=(task,), array=()))
        element.submitted_at, element.array_id, element.array_index = array.submitted_at, array.id, index
        element.name, element.priority, element.throttle = array.name, array.priority, array.throttle
        self._elements.setdefault(array.id, []).append(element)
        return element

    # --- starting -----------------------------------------------------------------------------------------------------

    def schedule(self, cluster: str) -> None:
        """Start what has room on a cluster, and say of the rest why it waits."""
        waiting = [
            job
            for job in self.live.values()
            if job.wish.cluster == cluster and (job.waiting or (job.state == "PENDING" and not job.is_array))
        ]
        # Who waits longer comes first in the end, as with Slurm's age factor.
        waiting.sort(key=lambda job: (-job.priority - (self.now - job.submitted_at) / AGE_SECONDS, job.id))
        first: dict[str, bool] = {}
        closed: set[str] = set()
        for job in waiting:
            reason = self._find_obstacle(job)
            if not reason:
                reason = "" if job.partition in closed else self._start_or_draw(job)
                if not reason and not job.waiting and job.state != "PENDING":
                    continue
                reason = reason or self._word_lack(job, first)
                if job.priority >= URGENT and not job.throttle:
                    closed.add(job.partition)
            self._explain(job, reason)

    def _find_obstacle(self, job: DemoJob) -> str:
        if job.held:
            return "JobHeldUser"
        if job.begin is not None and job.begin > self.now:
            return "BeginTime"
        needed = self.jobs.get(job.after or 0)
        if needed is not None and needed.state != "COMPLETED":
            return "DependencyNeverSatisfied" if needed.over else "Dependency"
        return job.wish.blocked if job.blocked_until > self.now else ""

    def _start_or_draw(self, job: DemoJob) -> str:
        """Start a job, or the next elements of an array; the reason why no more of them start, where it is not room."""
        if not job.is_array:
            places = self.capacity.take(job.wish.cluster, job.partition, job.wish.tasks)
            if places is not None:
                self._grant(job, places)
            return ""
        while job.waiting:
            live = sum(each.holds for each in self.list_elements(job))
            if job.throttle is not None and live >= job.throttle:
                return "JobArrayTaskLimit"
            places = self.capacity.take(job.wish.cluster, job.partition, job.wish.tasks)
            if places is None:
                return ""
            element = self._make_element(job, job.waiting.pop(0))
            self._touch(job)
            self._note(element, "", "", "PENDING", "Submitted", "submitted")
            self._grant(element, places)
        job.state = "RUNNING"
        return ""

    def list_elements(self, array: DemoJob) -> list[DemoJob]:
        """The elements of an array that are jobs."""
        return self._elements.get(array.id, [])

    def _word_lack(self, job: DemoJob, first: dict[str, bool]) -> str:
        if _KINDS[job.wish.cluster] == "kubernetes":
            lacking = "nvidia.com/gpu" if any(task.gpus for task in job.wish.tasks) else "cpu"
            return f"Resources: 0/5 nodes are available: 5 Insufficient {lacking}."
        reason = "Priority" if job.partition in first else "Resources"
        first[job.partition] = True
        return reason

    def _explain(self, job: DemoJob, reason: str) -> None:
        expected = None
        if reason in ("Resources", "Priority") and _KINDS[job.wish.cluster] == "slurm":
            expected = self._expect(job)
        if reason != job.reason or abs((expected or 0) - (job.expected_start or 0)) > EXPECTED_SECONDS:
            job.reason, job.expected_start = reason, expected
            for task in job.tasks:
                task.reason = reason
            self._touch(job)

    def _expect(self, job: DemoJob) -> float:
        """When the cluster thinks that there is room: the end of a time limit of what runs there."""
        ends = sorted(
            each.started_at + each.wish.limit
            for each in self.live.values()
            if each.holds and each.partition == job.partition and each.started_at and each.wish.limit
        )
        place = min(len(ends) - 1, sum(task.nodes for task in job.wish.tasks))
        return max(self.now + 60, ends[place]) if ends else self.now + 600

    def _grant(self, job: DemoJob, places: Sequence[Sequence[str]]) -> None:
        job.native_id = job.native_id or self._make_native_id(job)
        job.reason, job.expected_start = "None", None
        nodes = len({name for names in places for name in names})
        self._move(job, "CONFIGURING", "Granted", f"resources granted on {nodes} node(s)")
        for task, names in zip(job.tasks, places, strict=True):
            self._launch(job, task, names)
        self._plan_for(job, BOOT_SECONDS[_KINDS[job.wish.cluster]], lambda: self._begin(job))

    def _make_native_id(self, job: DemoJob) -> str:
        if _KINDS[job.wish.cluster] == "slurm":
            return str(480_000 + job.id * 3)
        return f"{job.wish.name}-{job.id}" if _KINDS[job.wish.cluster] == "kubernetes" else ""

    def _launch(self, job: DemoJob, task: DemoTask, names: Sequence[str]) -> None:
        number = len(task.attempts)
        life = task.wish.lives[min(number, len(task.wish.lives) - 1)]
        nodes = [RunOfNode(index, name) for index, name in enumerate(names)]
        task.attempts.append(RunOfTask(number, self.now, nodes, life))
        task.ended_at = task.ready_at = None
        before, task.state, task.reason = task.state, "CONFIGURING", "None"
        self._note(job, task.wish.name, before, "CONFIGURING", "Launch", f"attempt {number}")

    def _begin(self, job: DemoJob) -> None:
        job.started_at = self.now
        for task in job.tasks:
            if not task.wish.waits_for:
                self._begin_task(job, task)
            else:
                task.state, task.reason = "PENDING", "Dependency"
        first = next(
            (f"{task.wish.name}: " for task in job.tasks if len(job.tasks) > 1 and task.state == "RUNNING"), ""
        )
        self._move(job, "RUNNING", "NodeStarted", f"{first}node 0 started")

    def _begin_task(self, job: DemoJob, task: DemoTask) -> None:
        attempt = task.current
        assert attempt is not None
        before, attempt.state, attempt.started_at = task.state, "RUNNING", self.now
        for node in attempt.nodes:
            node.started_at = self.now
        task.state, task.reason = "RUNNING", "None"
        self._note(job, task.wish.name, before, "RUNNING", "NodeStarted", "node 0 started")
        if task.wish.ready_after:
            self._plan_for(job, task.wish.ready_after, lambda: self._become_ready(job, task, attempt))
        else:
            task.ready_at = self.now
        self._plan_end(job, task, attempt)

    def _become_ready(self, job: DemoJob, task: DemoTask, attempt: RunOfTask) -> None:
        if task.current is not attempt or not attempt.live:
            return
        task.ready_at = self.now
        self._note(job, task.wish.name, "", "", "TaskReady", "ready")
        for other in job.tasks:
            if other.wish.waits_for == task.wish.name and other.state == "PENDING" and other.attempts:
                self._begin_task(job, other)

    # --- ending -------------------------------------------------------------------------------------------------------

    def _plan_end(self, job: DemoJob, task: DemoTask, attempt: RunOfTask) -> None:
        left = self._find_left(job, task, attempt)[0]
        self._plan_for(job, max(0.0, left), lambda: self._look_at_end(job, task, attempt))

    def replan(self, job: DemoJob) -> None:
        """Plan anew when a job starts or ends, after its limits were changed."""
        for task in job.tasks:
            if task.state == "RUNNING" and task.current is not None:
                self._plan_end(job, task, task.current)
        if job.begin is not None and job.begin > self.now:
            self.plan(job.begin - self.now, lambda: self.schedule(job.wish.cluster))
        self.schedule(job.wish.cluster)

    def _find_left(self, job: DemoJob, task: DemoTask, attempt: RunOfTask) -> tuple[float, str]:
        """How many seconds an attempt still has, and which cause will end it."""
        ran = self.now - (attempt.started_at or self.now) - attempt.suspended
        if task.limit is not None and task.limit < attempt.life.seconds:
            return task.limit - ran, "time"
        return attempt.life.seconds - ran, attempt.life.end

    def _look_at_end(self, job: DemoJob, task: DemoTask, attempt: RunOfTask) -> None:
        if not attempt.live or job.suspended_at is not None or job.state != "RUNNING":
            return
        left, cause = self._find_left(job, task, attempt)
        if left > 0.01:
            self._plan_end(job, task, attempt)
            return
        life = attempt.life if cause == attempt.life.end else Life(end=cause, signal=15)
        again = attempt.number + 1 < len(task.wish.lives) and cause != "success"
        self.end_attempt(job, task, attempt, life, again)
        if again:
            self._plan_for(job, AGAIN_SECONDS, lambda: self.launch_again(job, task))
        else:
            self._settle(job)

    def end_attempt(self, job: DemoJob, task: DemoTask, attempt: RunOfTask, life: Life, again: bool = False) -> None:
        """An attempt ends; its task too, unless it is to start again."""
        state, reason = ENDS[life.end]
        before = task.state
        attempt.state, attempt.ended_at, attempt.cause, attempt.detail = state, self.now, life.end, life.detail
        attempt.exit_code, attempt.signal = life.exit_code, life.signal
        for node in attempt.nodes:
            node.ended_at, node.exit_code, node.signal = self.now, life.exit_code, life.signal
            node.detail = life.detail if node.index == 0 else ""
        self.capacity.free(task.wish, [node.node for node in attempt.nodes])
        task.state, task.reason = ("PENDING", reason) if again else (state, reason)
        task.ended_at = None if again else self.now
        task.restarts += again
        text = _word_end(life) + (f"; next attempt in {AGAIN_SECONDS:.1f} s" if again else "")
        self._note(job, task.wish.name, before, task.state, "NodeEnded", text)

    def launch_again(self, job: DemoJob, task: DemoTask) -> None:
        """Start the next attempt of a task, where it was; on other machines where these were given away meanwhile."""
        if job.over or task.state != "PENDING":
            return
        places = self.capacity.take(job.wish.cluster, job.partition, [task.wish])
        if places is None:
            self._plan_for(job, AGAIN_SECONDS, lambda: self.launch_again(job, task))
            return
        self._launch(job, task, places[0])
        self._begin_task(job, task)

    def _settle(self, job: DemoJob) -> None:
        """End the job when its primaries have ended, or one of them has failed."""
        primaries = [task for task in job.tasks if task.wish.primary]
        failed = next((task for task in primaries if task.ended_at and task.state != "COMPLETED"), None)
        if failed is None and any(task.ended_at is None for task in primaries):
            return
        first = failed or primaries[-1]
        last = first.current
        assert last is not None
        cause = last.cause or "success"
        rest = [task for task in job.tasks if task.ended_at is None]
        if not rest:
            self._finish(job, cause, last)
            return
        self._move(job, "COMPLETING", "NodeEnded", f"{first.wish.name}: {_word_end(last.life)}")
        for task in rest:
            task.state = "COMPLETING"
        others = "primary_failed" if failed else "primaries_done"
        self._plan_for(job, GRACE_SECONDS, lambda: self._end_rest(job, cause, others, last))

    def _end_rest(self, job: DemoJob, cause: str, others: str, last: RunOfTask) -> None:
        for task in job.tasks:
            if task.ended_at is None:
                self.stop_task(job, task, others)
        self._finish(job, cause, last)

    def stop_task(self, job: DemoJob, task: DemoTask, cause: str) -> None:
        """End a task from outside."""
        attempt = task.current
        if attempt is not None and attempt.live:
            self.end_attempt(job, task, attempt, Life(end=cause, signal=15 if cause != "primaries_done" else 0))
        elif task.ended_at is None:
            task.state, task.reason = ENDS[cause]
            task.ended_at = self.now

    def _finish(self, job: DemoJob, cause: str, last: RunOfTask | None) -> None:
        state, reason = ENDS[cause]
        job.ended_at, job.reason, job.suspended_at = self.now, reason, None
        self.live.pop(job.id, None)
        if last is not None:
            job.exit_code, job.signal = last.exit_code, last.signal
        self._move(job, state, "NodeEnded", _word_end(last.life) if last is not None else "cancelled")
        self.plan(KEPT_SECONDS, lambda: self._touch(job))
        for member in [member for task in job.tasks for member in task.staying]:
            self.end_job(member, "primaries_done" if state == "COMPLETED" else "cancel", "group")
        array = self.jobs.get(job.array_id or 0)
        if array is not None and array is not job:
            self._settle_array(array)
        self.schedule(job.wish.cluster)
        for cluster in {each.wish.cluster for each in self.live.values() if each.after == job.id}:
            self.schedule(cluster)

    def _settle_array(self, array: DemoJob) -> None:
        elements = self.list_elements(array)
        if array.waiting or not all(each.over for each in elements) or array.over:
            return
        states = {each.state for each in elements}
        if array.cancelled:
            array.state = "CANCELLED"
        else:
            array.state = "FAILED" if states - {"COMPLETED"} else "COMPLETED"
        array.ended_at, array.reason = self.now, "None"
        self.live.pop(array.id, None)
        array.started_at = min((each.started_at for each in elements if each.started_at), default=None)
        self.plan(KEPT_SECONDS, lambda: self._touch(array))
        self._touch(array)

    def end_job(self, job: DemoJob, cause: str, by: str) -> None:
        """End a job from outside: what runs completes first."""
        if job.over or job.state == "COMPLETING":
            return
        job.ended_by = by
        if job.is_array:
            job.cancelled, job.waiting = [*job.cancelled, *job.waiting], []
            for element in self.list_elements(job):
                self.end_job(element, cause, by)
            self._touch(job)
            self._settle_array(job)
            return
        job.epoch += 1
        if not job.holds:
            self._end_with(job, cause)
            return
        self._move(job, "COMPLETING", "Cancel", f"cancel by {by}")
        for task in job.tasks:
            if task.ended_at is None:
                task.state = "COMPLETING"
        self._plan_for(job, GRACE_SECONDS / 2, lambda: self._end_with(job, cause))

    def _end_with(self, job: DemoJob, cause: str) -> None:
        for task in job.tasks:
            self.stop_task(job, task, cause)
        runs = [task.current for task in job.tasks if task.wish.primary and task.current is not None]
        self._finish(job, cause, runs[0] if runs else None)

    def suspend_job(self, job: DemoJob, by: str) -> None:
        """Stop a running job in place."""
        job.suspended_at = self.now
        for task in job.tasks:
            task.state = "SUSPENDED" if task.state == "RUNNING" else task.state
        self._move(job, "SUSPENDED", "Suspend", f"suspend by {by}")

    def resume_job(self, job: DemoJob, by: str) -> None:
        """Let a suspended job go on."""
        since, job.suspended_at = job.suspended_at or self.now, None
        job.suspended += self.now - since
        self._move(job, "RUNNING", "Resume", f"resume by {by}")
        for task in job.tasks:
            attempt = task.current
            if attempt is not None and attempt.live and attempt.started_at is not None:
                task.state = "RUNNING"
                attempt.suspended += self.now - since
                self._plan_end(job, task, attempt)

    # --- what is told -------------------------------------------------------------------------------------------------

    def move_job(self, job: DemoJob, state: str, cause: str, text: str) -> None:
        """Give a job another state, for an order."""
        if state == "PENDING":
            self.live[job.id] = job
        self._move(job, state, cause, text)

    def _move(self, job: DemoJob, state: str, cause: str, text: str) -> None:
        before, job.state = job.state, state
        self._note(job, "", before, state, cause, text)

    def note_order(self, job: DemoJob, cause: str, by: str) -> None:
        """Write an order into the timeline."""
        self._note(job, "", "", "", cause, f"{cause.lower()} by {by}")

    def _note(self, job: DemoJob, task: str, start: str, end: str, cause: str, text: str) -> None:
        reason = next((each.reason for each in job.tasks if each.wish.name == task), job.reason)
        job.timeline.append(Moment(next(self._moments), self.now, task, start, end, reason, cause, text))
        self._touch(job)

    def _touch(self, job: DemoJob) -> None:
        self.revision += 1
        self.revisions.pop(job.id, None)
        self.revisions[job.id] = self.revision
        if job.group is not None:
            # Its task tells how many members it has.
            self._touch(job.group)

    def _plan_for(self, job: DemoJob, delay: float, act: Callable[[], None]) -> None:
        """Plan something for a job as it is now: a requeue, or a cancel, voids it."""
        epoch = job.epoch
        self.plan(delay, lambda: act() if job.epoch == epoch and not job.over else None)


def _word_end(life: Life) -> str:
    """How a run ended, in the words of a timeline."""
    end = f"ended with signal {life.signal}" if life.signal else f"ended with exit code {life.exit_code}"
    if life.end == "node":
        end = "is lost"
    return f"node 0 {end}" + (f": {life.detail}" if life.detail else "")


def sum_wishes(tasks: Sequence[TaskWish]) -> tuple[int, int, int, int]:
    """Nodes, CPUs and GPUs of these tasks together, and the memory (MiB) of their largest node."""
    return (
        sum(task.nodes for task in tasks),
        sum(task.nodes * task.cpus for task in tasks),
        max(task.memory for task in tasks),
        sum(task.nodes * task.gpus for task in tasks),
    )
