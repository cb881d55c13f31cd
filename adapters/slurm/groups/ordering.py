"""Orders on groups: Slurm's commands for native jobs, lines in their orders files, and new ones for lost attempts.

Orders that end or change work go into the file in every state: a supervisor that starts at this moment reads its orders
before it starts anything. What an order means to a supervisor depends on who decides, and on nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from overspan.adapters.contract import Decider, Order, Refusal
from overspan.adapters.first_observation import await_first_observation
from overspan.adapters.slurm.groups.files import CLOSED, LOCKED, NO_FOLDER, append_words
from overspan.adapters.slurm.groups.handles import GroupHandle, NativeJob, find_decider, parse_group
from overspan.adapters.slurm.groups.limits import plan_times
from overspan.adapters.slurm.groups.projection import MARGIN, LostAttempt, LostRelaunch
from overspan.adapters.slurm.groups.submission import PartSubmitter
from overspan.adapters.slurm.groups.watch import KillDeadline, KnownGroup
from overspan.adapters.slurm.observation.outcomes import Phase
from overspan.adapters.slurm.observation.watch import Watch
from overspan.adapters.slurm.orders.command_lines import (
    SCANCEL,
    VERBS,
    OrderSteps,
    Words,
    render_change,
    withdraw_words,
)
from overspan.bridge.model import events
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.events import Event

REPORTED = (events.Suspend, events.Resume, events.Expire, events.SetTime)
"""Orders that are reported as events themselves where the daemon decides."""
_ON_QUEUE = (events.Hold, events.Release, events.SetPriority, events.SetNice, events.SetBegin)
_WRITTEN = {
    Decider.SUPERVISOR: (
        events.Cancel,
        events.Requeue,
        events.Restart,
        events.Preempt,
        events.Signal,
        events.SetPeers,
    ),
    Decider.DAEMON: (
        events.Terminate,
        events.Kill,
        events.Notice,
        events.Warn,
        events.NodeRelaunch,
        events.Signal,
        events.SetPeers,
    ),
}
"""Orders that supervisors get as lines in their files, by who decides."""
_FOR_STARTED = (events.Requeue, events.Restart, events.Preempt, events.Signal, events.SetPeers)
"""Of these the orders that a waiting job does not get: it has no process yet, and what it starts later is not meant."""
_WAIT = "40"
"""Timeout of a withdrawal in seconds: it may ask the controller twice for each native job."""
_TOGETHER = 100
"""Native jobs that one scontrol of a withdrawal names."""
_WITHDRAW_PARTS = """\
mode=$1; shift; waiting= started=
put() { LC_ALL=C scontrol update JobId="$1" StartTime="$2" 2>&1; }
for jobs; do
  list=$(printf %s "$jobs" | tr , ' ')
  case $jobs in
  *,*) if said=$(put "$jobs" now+1hour) && [ -z "$said" ]; then waiting="$waiting $list"; continue; fi;;
  esac
  for job in $list; do
    if said=$(put "$job" now+1hour); then waiting="$waiting $job"; continue; fi
    case $said in
    *"no longer pending"*) started="$started $job" late=$said;;
    *"Invalid job id"*|*"already"*) ;;
    *) printf '%s\\n' "$said" >&2; exit 1;;
    esac
  done
done
if [ -n "$started" ] && { [ "$mode" = any ] || [ -z "$waiting" ]; }; then
  for job in $waiting; do put "$job" now; done
  printf '%s\\n' "$late" >&2; exit 1
fi
[ -z "$waiting$started" ] || exec scancel $waiting $started
"""
"""Compare-and-set: withdraws a group of several native jobs only if it has not started.

`withdraw_words` does so with one native job, and its answer is Slurm's own; here what Slurm says of one native job
decides what happens to the others.

The start times of waiting jobs are moved an hour ahead. The controller refuses that for a job that has started, and a
job that was moved cannot start. One command moves many jobs; if it fails, they are moved one by one. A group that
starts together cannot begin any more once one job was moved: the others wait at the start gate.
"""


class LivePart(NamedTuple):
    """A native job that can still run something, for attempts from `first` on.

    `begun` says that its supervisor handles signals already: before that a signal would kill it, and it needs none.
    `phase` is Slurm's, None where it is not known.
    """

    job: NativeJob
    first: int
    begun: bool
    phase: Phase | None

    @property
    def started(self) -> bool:
        """Whether it may have started."""
        return self.begun or self.phase is not Phase.QUEUED


class GroupOrderer:
    """Plans the commands of orders on groups, and replaces native jobs under the submission lock."""

    def __init__(self, submitter: PartSubmitter, watch: Watch, lock: asyncio.Lock) -> None:
        self._submitter = submitter
        self._watch = watch
        self._lock = lock

    async def await_first_poll(self, orders: Sequence[Order]) -> None:
        """Wait a moment until a new process has polled the groups that the daemon decides about for the first time."""
        own = [order for order in orders if find_decider(order.handle) is Decider.DAEMON]
        await await_first_observation(lambda: all(self._is_polled(order) for order in own))

    def _is_polled(self, order: Order) -> bool:
        known = self._watch.groups.find(order.handle)
        if known is None or not isinstance(order.event, events.Launch):
            return known is not None
        part = known.now.part(order.event.task)
        if not part.submitted or known.is_over(part) or order.event.attempt <= max(part.first, part.attempt):
            return True
        return self._watch.view_of(str(known.handle.native_job(part))) is not None

    async def plan(self, order: Order) -> OrderSteps | Refusal:
        """The commands of an order; a transient refusal if the group has to be polled before."""
        known, event = self._watch.groups.find(order.handle), order.event
        if known is None:
            handle = parse_group(order.handle)
            if handle.decider is Decider.DAEMON:
                return Refusal(order.token, "the set has not been polled yet", transient=True)
            known = KnownGroup(handle, handle.begin())
        decides = known.handle.decider is Decider.DAEMON
        if decides and isinstance(event, events.Launch):
            return await self._launch(known, order, event)
        # A new wall time of one task may move the ends of the others.
        narrow = decides and not isinstance(event, events.SetTime)
        parts = self._list_live(known, getattr(event, "task", "") if narrow else "")
        if isinstance(event, events.SetTime):
            jobs = [one.job for one in parts]
            return await plan_times(known.handle, jobs, order, self._watch.transport, () if decides else _hint(parts))
        if isinstance(event, events.NodeRelaunch) and not parts:
            return self._report_lost_relaunch(order, event)
        if isinstance(event, events.Kill) and parts:
            known.kill_deadlines[event.task] = KillDeadline(event.attempt, time.time() + MARGIN)
        steps = plan_order(known.handle, order, parts, known.now.granted)
        where = "a set" if decides else "a Slurm cluster"
        return steps or Refusal(order.token, f"{type(event).__name__} is not carried out on {where}")

    def _list_live(self, known: KnownGroup, task: str) -> list[LivePart]:
        """The native jobs of a task, or of all tasks, that can still run something."""
        found = []
        for part in (known.now.part(task),) if task else known.now.parts:
            if not part.submitted:
                continue
            job = known.handle.native_job(part)
            # A native id that is another job's now must not get orders.
            if not (known.is_over(part) or self._watch.is_taken(str(job))):
                view = self._watch.view_of(str(job))
                phase = None if view is None else view.outcome.phase
                found.append(LivePart(job, part.first, self._watch.journals.has_begun(job), phase))
        return found

    async def _launch(self, known: KnownGroup, order: Order, event: events.Launch) -> OrderSteps | Refusal:
        part = known.now.part(event.task)
        job = known.handle.native_job(part)
        if event.attempt < part.first or event.attempt <= known.cursor.part(event.task).attempt:
            return OrderSteps(())
        if not part.submitted:
            return await self._replace(known, order, event)
        if event.attempt == part.first and not event.attempt and not known.handle.part(event.task).deferred:
            if known.is_over(part):
                return self._report_lost_attempt(known, order, event)
            return add_order(LivePart(job, part.first, self._watch.journals.has_begun(job), None), order)
        if event.attempt == part.first:
            if known.cursor.part(event.task).first == part.first:
                return OrderSteps(())
            return Refusal(order.token, "the new native job is not stored yet", transient=True)
        if not known.is_over(part):
            view = self._watch.view_of(str(job))
            if view is None:
                return Refusal(order.token, "the native job has not been polled yet", transient=True)
            if view.outcome.phase not in (Phase.ENDED, Phase.REQUEUED, Phase.ENDING):
                answer = await self._add(job, order)
                self._watch.groups.note_order(order.handle)
                if answer is not None:
                    return answer
        return await self._replace(known, order, event)

    def _report_lost_attempt(self, known: KnownGroup, order: Order, event: events.Launch) -> OrderSteps | Refusal:
        """Report an attempt as lost whose native job ended before its start; the next attempt gets a new job."""
        self._watch.groups.note_lost_attempt(order.handle, event.task, LostAttempt(event.attempt, time.time()))
        self._watch.fresh.set()
        return Refusal(order.token, "the native job has ended, and the attempt is reported as lost", transient=True)

    def _report_lost_relaunch(self, order: Order, event: events.NodeRelaunch) -> Refusal:
        """Report a node run as lost whose native job has ended: no journal will report it."""
        relaunch = LostRelaunch(event.task, event.attempt, event.node, event.run, time.time())
        self._watch.groups.note_lost_relaunch(order.handle, relaunch)
        self._watch.fresh.set()
        return Refusal(order.token, "the native job has ended, and the node run is reported as lost", transient=True)

    async def _add(self, job: NativeJob, order: Order) -> OrderSteps | Refusal | None:
        """Let the live native job run this attempt too; None if it takes no more orders."""
        done = await self._watch.transport.run(order_words(job, order))
        if done.rc == 0:
            return OrderSteps((hint_words(job.name),))
        if done.rc in (CLOSED, NO_FOLDER):
            return None
        why = "the orders are locked" if done.rc == LOCKED else done.words.strip()
        return Refusal(order.token, why or f"exit code {done.rc}", transient=True)

    async def _replace(self, known: KnownGroup, order: Order, event: events.Launch) -> Refusal:
        try:
            async with self._lock:
                native = await asyncio.shield(self._submitter.replace(known.handle, order, event))
        except OverspanError as error:
            return Refusal(order.token, error.message, transient=True)
        if isinstance(native, Refusal):
            return native
        self._watch.groups.add(order.handle, event.task, event.attempt, native)
        self._watch.fresh.set()
        # A transient refusal keeps the order in the outbox until a stored cursor has the new job: so a crash cannot
        # lose it.
        return Refusal(order.token, "the new native job is not stored yet", transient=True)


def plan_order(handle: GroupHandle, order: Order, parts: Sequence[LivePart], granted: bool) -> OrderSteps | None:
    """The commands of an order that launches nothing; None for one that is not carried out on such a group."""
    event, decider = order.event, handle.decider
    if isinstance(event, events.HoldOver) and decider is Decider.DAEMON:
        return OrderSteps(())
    if isinstance(event, events.Expire):
        # A group that was granted has started, and is not withdrawn.
        return OrderSteps(() if granted or not parts else (_withdraw(handle, [one.job.name for one in parts]),))
    if isinstance(event, _ON_QUEUE):
        return OrderSteps(tuple(_queue_words(one.job, event) for one in parts))
    if isinstance(event, _WRITTEN[decider]):
        steps = [_write_order(one, order) for one in parts if one.started or not isinstance(event, _FOR_STARTED)]
        first = tuple(words for one in steps for words in one.first)
        return OrderSteps(first, tuple(words for one in steps for words in one.hints))
    if isinstance(event, (events.Suspend, events.Resume)):
        # Slurm stops the supervisor too. It reads the order, which it needs for its clocks, when it runs again.
        lines = tuple(order_words(one.job, order) for one in parts)
        meant = [one for one in parts if one.started or decider is Decider.SUPERVISOR]
        changes = tuple(("scontrol", *VERBS[type(event)], one.job.name) for one in meant)
        if isinstance(event, events.Suspend) and changes:
            return OrderSteps(changes, then=lines)
        return OrderSteps((*lines, *changes))
    return None


def _write_order(one: LivePart, order: Order) -> OrderSteps:
    """Write an order for the supervisor. If it ends what the native job is for before that runs, cancel that too."""
    steps, event = add_order(one, order), order.event
    if isinstance(event, events.Cancel):
        ends = not event.task
    else:
        ends = isinstance(event, (events.Terminate, events.Kill)) and event.attempt == one.first
    if not ends or one.begun:
        return steps
    # The line is written first: a supervisor that starts before the scancel reads it.
    state = () if one.phase is Phase.STARTING else ("--state=PENDING",)
    return OrderSteps((*steps.first, (*SCANCEL, *state, one.job.name)))


def _withdraw(handle: GroupHandle, names: Sequence[str]) -> Words:
    if handle.decider is Decider.SUPERVISOR:
        return withdraw_words(names[0])
    return withdraw_parts_words(names, handle.together)


def withdraw_parts_words(names: Sequence[str], together: bool) -> Words:
    """Withdraw waiting parts: cancel all native jobs, or none if user code may have started (`_WITHDRAW_PARTS`).

    A group whose parts start `together` has started when its last native job has.
    """
    lists = [",".join(names[start : start + _TOGETHER]) for start in range(0, len(names), _TOGETHER)]
    return ("timeout", _WAIT, "/bin/sh", "-c", _WITHDRAW_PARTS, "withdraw", "all" if together else "any", *lists)


def _queue_words(job: NativeJob, event: Event) -> Words:
    changed = render_change(event)
    if changed:
        return ("scontrol", "update", f"JobId={job.name}", changed)
    return ("scontrol", *VERBS[type(event)], job.name)


def _hint(parts: Sequence[LivePart]) -> tuple[Words, ...]:
    return tuple(hint_words(one.job.name) for one in parts if one.begun)


def add_order(one: LivePart, order: Order) -> OrderSteps:
    """Write an order for a native job's supervisor, and signal one that handles signals already."""
    return OrderSteps((order_words(one.job, order),), _hint([one]))


def order_words(job: NativeJob, order: Order) -> Words:
    """The command that appends an order unless the supervisor takes no more."""
    return append_words(job.orders, order.token, order.event, f"{job.folder}/closed.{job.launch}")


def hint_words(native: str) -> Words:
    """Signal the supervisor, which is the batch program, that there are orders."""
    return (*SCANCEL, "--state=RUNNING", "--batch", "--signal=USR1", native)
