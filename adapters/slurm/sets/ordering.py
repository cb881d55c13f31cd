"""Orders on sets: lines in the orders files of native jobs, and new native jobs for attempts that have none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from overspan.adapters.contract import Order, Refusal
from overspan.adapters.first_observation import await_first_observation
from overspan.adapters.slurm.groups.files import CLOSED, LOCKED, NO_FOLDER, append_words
from overspan.adapters.slurm.groups.ordering import hint_words
from overspan.adapters.slurm.groups.projection import MARGIN
from overspan.adapters.slurm.handles import GroupHandle
from overspan.adapters.slurm.observation.outcomes import Phase
from overspan.adapters.slurm.observation.watch import Watch
from overspan.adapters.slurm.orders.command_lines import SCANCEL, VERBS, OrderSteps, Words, render_change
from overspan.adapters.slurm.sets.handles import is_set_handle
from overspan.adapters.slurm.sets.limits import plan_times
from overspan.adapters.slurm.sets.projection import LostAttempt, LostRelaunch
from overspan.adapters.slurm.sets.submission import SetSubmitter
from overspan.adapters.slurm.sets.watch import KillDeadline, KnownSet
from overspan.bridge.model import events
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.events import Event

SET_ECHOED = (events.Suspend, events.Resume, events.Expire, events.SetTime)
"""Orders on sets that are reported as events themselves."""
_ON_QUEUE = (events.Hold, events.Release, events.SetPriority, events.SetNice, events.SetBegin)
_WAIT = "40"
"""Timeout of a withdrawal in seconds: it may ask the controller twice for each native job."""
_TOGETHER = 100
"""Native jobs that one scontrol of a withdrawal names."""
_WITHDRAW = """\
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
"""Compare-and-set: withdraws a set only if it has not started.

The start times of waiting jobs are moved an hour ahead. The controller refuses that for a job that has started, and a
job that was moved cannot start. One command moves many jobs; if it fails, they are moved one by one. A set that starts
together cannot begin any more once one job was moved: the others wait at the start gate.
"""
_FOR_TASK = (events.Terminate, events.Kill, events.Notice, events.Warn, events.NodeRelaunch)


class LivePart(NamedTuple):
    """A native job that can still run something, for attempts from `first` on.

    `begun` says that its supervisor handles signals already. `phase` is Slurm's, None where it is not known.
    """

    handle: GroupHandle
    first: int
    begun: bool
    phase: Phase | None


class SetOrderer:
    """Plans the commands of orders on sets, and replaces native jobs under the submission lock."""

    def __init__(self, submitter: SetSubmitter, watch: Watch, lock: asyncio.Lock) -> None:
        self._submitter = submitter
        self._watch = watch
        self._lock = lock

    async def await_first_poll(self, orders: Sequence[Order]) -> None:
        """Wait a moment until a new process has polled the sets of these orders for the first time."""
        own = [order for order in orders if is_set_handle(order.handle)]
        await await_first_observation(lambda: all(self._is_polled(order) for order in own))

    def _is_polled(self, order: Order) -> bool:
        known = self._watch.sets.find(order.handle)
        if known is None or not isinstance(order.event, events.Launch):
            return known is not None
        member = known.now.member(order.event.task)
        if known.is_over(member) or order.event.attempt <= max(member.first, member.attempt):
            return True
        return self._watch.view_of(str(known.name(member))) is not None

    async def plan(self, order: Order) -> OrderSteps | Refusal:
        """The commands of an order; a transient refusal if the set has not been polled yet."""
        known = self._watch.sets.find(order.handle)
        if known is None:
            return Refusal(order.token, "the set has not been polled yet", transient=True)
        if isinstance(order.event, events.Launch):
            return await self._launch(known, order, order.event)
        if isinstance(order.event, events.SetTime):
            return await plan_times(known.handle, list_live(known), order, self._watch.transport)
        members = self._list_live_members(known, getattr(order.event, "task", ""))
        if isinstance(order.event, events.NodeRelaunch) and not members:
            return self._report_lost_relaunch(order, order.event)
        if isinstance(order.event, events.Kill) and members:
            known.kill_deadlines[order.event.task] = KillDeadline(order.event.attempt, time.time() + MARGIN)
        steps = plan_order(known, order, members)
        kind = type(order.event).__name__
        return steps or Refusal(order.token, f"{kind} is not carried out on a set")

    def _list_live_members(self, known: KnownSet, task: str) -> list[LivePart]:
        """The native jobs of a task, or of all tasks, that can still run something."""
        begun, view_of = self._watch.journals.has_begun, self._watch.view_of
        now, found = known.now, []
        for member in (now.member(task),) if task else now.members:
            if not known.is_over(member):
                handle = known.name(member)
                view = view_of(str(handle))
                phase = None if view is None else view.outcome.phase
                found.append(LivePart(handle, member.first, begun(handle), phase))
        return found

    async def _launch(self, known: KnownSet, order: Order, event: events.Launch) -> OrderSteps | Refusal:
        member = known.now.member(event.task)
        handle = known.name(member)
        if event.attempt < member.first or event.attempt <= known.cursor.member(event.task).attempt:
            return OrderSteps(())
        if event.attempt == member.first and not event.attempt:
            if known.is_over(member):
                return self._report_lost_attempt(known, order, event)
            return add_order(handle, order, self._watch.journals.has_begun(handle))
        if event.attempt == member.first:
            if known.cursor.member(event.task).first == member.first:
                return OrderSteps(())
            return Refusal(order.token, "the new native job is not stored yet", transient=True)
        if not known.is_over(member):
            view = self._watch.view_of(str(handle))
            if view is None:
                return Refusal(order.token, "the native job has not been polled yet", transient=True)
            if view.outcome.phase not in (Phase.ENDED, Phase.REQUEUED, Phase.ENDING):
                answer = await self._add(handle, order)
                self._watch.sets.note_order(order.handle)
                if answer is not None:
                    return answer
        return await self._replace(known, order, event)

    def _report_lost_attempt(self, known: KnownSet, order: Order, event: events.Launch) -> OrderSteps | Refusal:
        """Report an attempt as lost whose native job ended before its start; the next attempt gets a new job."""
        self._watch.sets.note_lost_attempt(order.handle, event.task, LostAttempt(event.attempt, time.time()))
        self._watch.fresh.set()
        return Refusal(order.token, "the native job has ended, and the attempt is reported as lost", transient=True)

    def _report_lost_relaunch(self, order: Order, event: events.NodeRelaunch) -> Refusal:
        """Report a node run as lost whose native job has ended: no journal will report it."""
        relaunch = LostRelaunch(event.task, event.attempt, event.node, event.run, time.time())
        self._watch.sets.note_lost_relaunch(order.handle, relaunch)
        self._watch.fresh.set()
        return Refusal(order.token, "the native job has ended, and the node run is reported as lost", transient=True)

    async def _add(self, handle: GroupHandle, order: Order) -> OrderSteps | Refusal | None:
        """Let the live native job run this attempt too; None if it takes no more orders."""
        done = await self._watch.transport.run(order_words(handle, order))
        if done.rc == 0:
            return OrderSteps((hint_words(handle.name),))
        if done.rc in (CLOSED, NO_FOLDER):
            return None
        why = "the orders are locked" if done.rc == LOCKED else done.words.strip()
        return Refusal(order.token, why or f"exit code {done.rc}", transient=True)

    async def _replace(self, known: KnownSet, order: Order, event: events.Launch) -> Refusal:
        try:
            async with self._lock:
                native = await asyncio.shield(self._submitter.replace(known.handle, order, event))
        except OverspanError as error:
            return Refusal(order.token, error.message, transient=True)
        if isinstance(native, Refusal):
            return native
        self._watch.sets.add(order.handle, event.task, event.attempt, native)
        self._watch.fresh.set()
        # A transient refusal keeps the order in the outbox until a stored cursor has the new job: so a crash cannot
        # lose it.
        return Refusal(order.token, "the new native job is not stored yet", transient=True)


def plan_order(known: KnownSet, order: Order, members: Sequence[LivePart]) -> OrderSteps | None:
    """The commands of an order that launches nothing; None for one that a set does not have."""
    event, handles = order.event, [one.handle for one in members]
    if isinstance(event, events.HoldOver):
        return OrderSteps(())
    if isinstance(event, events.Expire):
        # A set that was granted has started, and is not withdrawn.
        names = [handle.name for handle in handles]
        return OrderSteps(() if known.now.granted or not names else (withdraw_words(names, known.handle.together),))
    if isinstance(event, _ON_QUEUE):
        return OrderSteps(tuple(_queue_words(handle, event) for handle in handles))
    started = [one for one in members if one.begun or one.phase is not Phase.QUEUED]
    if isinstance(event, (*_FOR_TASK, events.Signal)):
        # A waiting job has no process for the signal, and those that it starts later are not meant.
        chosen = started if isinstance(event, events.Signal) else members
        steps = [_write_order(one, order, event) for one in chosen]
        return OrderSteps(
            tuple(words for one in steps for words in one.first),
            tuple(words for one in steps for words in one.hints),
        )
    if isinstance(event, (events.Suspend, events.Resume)):
        # Slurm stops the supervisor too. It reads the order, which it needs for its clocks, when it runs again.
        lines = tuple(order_words(handle, order) for handle in handles)
        changes = tuple(("scontrol", *VERBS[type(event)], one.handle.name) for one in started)
        if isinstance(event, events.Suspend) and changes:
            return OrderSteps(changes, then=lines)
        return OrderSteps((*lines, *changes))
    return None


def _write_order(one: LivePart, order: Order, event: Event) -> OrderSteps:
    """Write an order for the supervisor. If the attempt is to end before its native job runs, cancel that too."""
    steps = add_order(one.handle, order, one.begun)
    ends = isinstance(event, (events.Terminate, events.Kill)) and event.attempt == one.first
    if not ends or one.begun:
        return steps
    # The line is written first: a supervisor that starts before the scancel reads it.
    state = () if one.phase is Phase.STARTING else ("--state=PENDING",)
    return OrderSteps((*steps.first, (*SCANCEL, *state, one.handle.name)))


def list_live(known: KnownSet) -> list[GroupHandle]:
    """The native jobs that can still run something."""
    return [known.name(member) for member in known.now.members if not member.over]


def withdraw_words(names: Sequence[str], together: bool) -> Words:
    """Withdraw a waiting set: cancel all of its native jobs, or none if user code may have started (`_WITHDRAW`).

    A set that starts `together` has started when its last native job has.
    """
    lists = [",".join(names[start : start + _TOGETHER]) for start in range(0, len(names), _TOGETHER)]
    return ("timeout", _WAIT, "/bin/sh", "-c", _WITHDRAW, "withdraw", "all" if together else "any", *lists)


def _queue_words(handle: GroupHandle, event: Event) -> Words:
    changed = render_change(event)
    if changed:
        return ("scontrol", "update", f"JobId={handle.name}", changed)
    return ("scontrol", *VERBS[type(event)], handle.name)


def add_order(handle: GroupHandle, order: Order, begun: bool) -> OrderSteps:
    """Write an order for a native job's supervisor; without `begun` it gets no signal, which would kill it."""
    return OrderSteps((order_words(handle, order),), (hint_words(handle.name),) if begun else ())


def order_words(handle: GroupHandle, order: Order) -> Words:
    """The command that appends an order unless the supervisor takes no more."""
    return append_words(handle.orders, order.token, order.event, f"{handle.folder}/closed.{handle.launch}")
